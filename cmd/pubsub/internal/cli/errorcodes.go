package cli

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// errorTable has a line for each error of the broker: code, status, text. A test
// holds it against the sources.
//
//go:embed errors.tsv
var errorTable string

// meaning is one meaning of an error code. Some codes of Herald's own have several,
// of different services.
type meaning struct {
	Code   int    `json:"code"`
	Status int    `json:"status"`
	What   string `json:"what"`
	Why    string `json:"why"`
	Do     string `json:"do"`
}

// meanings reads the table.
func meanings() []meaning {
	var out []meaning
	for line := range strings.Lines(errorTable) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		code, _ := strconv.Atoi(f[0]) // a test reads the table too
		status, _ := strconv.Atoi(f[1])
		m := meaning{Code: code, Status: status, What: placeholders.Replace(f[2])}
		m.Why, m.Do = advise(&m)
		out = append(out, m)
	}
	return out
}

// placeholders stand in a text for what the broker fills in.
var placeholders = strings.NewReplacer("%s", "…", "%d", "…", "%q", "…")

// advice is why an error comes and what to do about it.
type advice struct{ why, do string }

// adviceOf is for codes of which more can be said than their kind tells.
var adviceOf = map[int]advice{
	10002: {"the account's limits of storage, streams or consumers are reached", "purge or delete, or raise the account's jetstream limits in the broker's configuration"},
	10005: {"no set of nodes can hold as many replicas, or they are draining", "pubsub cluster status; ask for fewer replicas, or add nodes"},
	10008: {"a group has no leader just now, or the node is starting or stopping", "try again; if it stays, pubsub cluster status says which group"},
	10013: {"a consumer of this name exists with other settings", "take another name, or delete it: pubsub consumer rm TOPIC NAME"},
	10014: {"it was never made, was deleted, or was ephemeral and idle for too long", "pubsub consumer ls TOPIC"},
	10023: {"the disk or memory of the node is short", "pubsub doctor; free space, then publish again"},
	10025: {"the body of the request is not JSON, or has fields that are not known", "correct the request; jetstream { strict: false } lets unknown fields pass"},
	10037: {"it was never stored, has expired, or was deleted or purged", "pubsub topic info TOPIC shows the first and last sequence"},
	10039: {"the account has no jetstream key in the broker's configuration, or others have and it has not", "give the account jetstream: enabled"},
	10047: {"max_file_store, the account's limit or the disk is used up", "purge topics, lower their max_bytes, or raise the limit"},
	10054: {"the body and headers are larger than max_payload or the topic's max_msg_size", "send less at a time, or raise the limit: pubsub topic edit"},
	10058: {"a topic of this name exists with other settings", "pubsub topic info NAME; change it with pubsub topic edit, or take another name"},
	10059: {"no topic has this name in this account", "pubsub topic ls; the name may be of another account or domain"},
	10060: {"the header Nats-Expected-Stream names another topic than the one that captures the subject", "leave the header out, or correct it"},
	10065: {"a message belongs to one topic at most, and another captures some of the subjects", "pubsub topic ls; take other subjects"},
	10070: {"somebody else published since: the last message id is another one", "read the last message, decide, publish with the new id"},
	10071: {"somebody else published since: the last sequence is another one", "read again, decide, publish with the sequence the text names"},
	10074: {"the broker is one node alone", "ask for one replica, or make a cluster"},
	10076: {"the broker runs without durable topics", "start it with -js, or give the configuration a jetstream block"},
	10077: {"the topic is full and its discard policy is new", "purge it, raise its limits, or let it discard the oldest: pubsub topic edit"},
	10109: {"the topic is sealed: nothing is added, deleted or changed any more", "store elsewhere; sealing can't be undone"},
	10148: {"a consumer of this name exists, and the request was to create one that is new", "use the one that exists, or take another name: pubsub consumer ls TOPIC"},
	10149: {"the request was to change a consumer, and there is none", "create it: pubsub consumer create TOPIC NAME"},
	10164: {"a message of the batch expects another last sequence", "read again, decide, send the whole batch again"},
	20006: {"the advertisement is durable, and the topic it names exists without its subject", "give another durable.topic, or add the subject: pubsub topic edit"},
	20016: {"another advertisement that overlaps it says something else", "pubsub discover --subject SUBJECT shows it; agree with its owner"},
	20018: {"the account puts more advertisements in a second than are taken", "wait a second and try again"},
	20019: {"only the user that put it may change it", "pubsub discover NAME says whose it is"},
	20030: {"the subject is advertised as exclusive, and you hold no advertisement of it", "pubsub discover --subject SUBJECT says who does; its user publishes with pubsub pub --advertisement NAME"},
	20031: {"the schema of an advertisement is enforced on the subject", "pubsub advertise check NAME tries stored messages on the schema and says what is wrong with each"},
}

// advise returns why an error comes and what to do: its own advice, or its kind's.
func advise(m *meaning) (why, do string) {
	if a, ok := adviceOf[m.Code]; ok {
		return a.why, a.do
	}
	switch {
	case m.Status == 404:
		return "nothing has this name or number, or no more", "look at what there is, and ask again"
	case m.Status == 403:
		return "the user's permissions or the owner do not allow it", "pubsub context show --explain tells who you are; ask for the permission"
	case m.Status == 409:
		return "somebody else was there first, or it has changed meanwhile", "read again, decide, and try with the new state"
	case m.Status == 413:
		return "it is larger than what is taken", "make it smaller"
	case m.Status == 429:
		return "more is under way than the broker's bounds allow", "wait until some has ended, then try again"
	case m.Status == 503:
		return "the broker can't do it just now", "try again; pubsub cluster status and pubsub doctor say what is missing"
	case m.Status >= 500:
		return "the topic, its settings or the node do not allow it", "the rest of the text says what; pubsub topic info shows the settings, the broker's log what failed"
	}
	return "the request asks for what can't be, or for settings that do not go together", "change what the text names; the same request fails again"
}

func (a *app) explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain CODE", Short: "Say what an error code of the broker means, and what to do", Args: args(1, 1, "an error code"),
		Long: `Say what an error code means, why it comes and what to do about it. No broker is
asked. Codes from 20000 are Herald's own; one of them may come with several texts. The
exit code is 3 for a code that no broker of this version gives.`,
		Example: "  pubsub explain 10148\n  pubsub explain 20006 -o json",
	}
	cmd.ValidArgsFunction = func(_ *cobra.Command, in []string, _ string) ([]string, cobra.ShellCompDirective) {
		var codes []string
		for _, m := range meanings() {
			if code := fmt.Sprintf("%d\t%s", m.Code, m.What); len(in) == 0 {
				codes = append(codes, code)
			}
		}
		return codes, cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, in []string) error {
		code, err := strconv.Atoi(strings.TrimPrefix(strings.ToUpper(in[0]), "E"))
		if err != nil {
			return usage(cmd, "an error code is a number such as 10148, not %q", in[0])
		}
		var found []meaning
		rows := ui.Rows{Columns: []string{"code", "status", "what", "why", "do"}}
		for _, m := range meanings() {
			if m.Code == code {
				found = append(found, m)
				rows.Cells = append(rows.Cells, []string{strconv.Itoa(m.Code), strconv.Itoa(m.Status), m.What, m.Why, m.Do})
			}
		}
		if len(found) == 0 {
			near := nearCodes(code)
			return &problem{code: exitNotFound, what: fmt.Sprintf("no error has the code %d (near: %s)", code, strings.Join(near, ", ")), next: "pubsub explain " + near[0], err: client.ErrNotFound}
		}
		return a.ui.List(toAny(found), rows)
	}
	return cmd
}

// nearCodes returns the three codes closest to one that is unknown.
func nearCodes(code int) []string {
	var all []int
	for _, m := range meanings() {
		all = append(all, m.Code)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	slices.SortStableFunc(all, func(a, b int) int { return max(a-code, code-a) - max(b-code, code-b) })
	var out []string
	for _, c := range all[:3] {
		out = append(out, strconv.Itoa(c))
	}
	return out
}
