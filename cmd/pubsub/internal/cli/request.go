package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
)

func (a *app) requestCommand() *cobra.Command {
	var headers []string
	var replies int
	var wait time.Duration
	var expand bool
	cmd := &cobra.Command{
		Use:     "request SUBJECT [BODY]",
		Aliases: []string{"req"},
		Short:   "Publish and print the answer",
		Long: `Publish a message and print what is answered: the body alone, or the whole message
with -o. Without BODY the body is empty; with "-" it is standard input. Nobody
answering is exit code 4, no answer within --timeout is exit code 5. With
--replies 0 it prints every answer that comes within --wait.`,
		Example: `  pubsub request time.now
  pubsub request '$HERALD.ADV.LIST' -o json`,
		Args:              args(1, 2, "SUBJECT [BODY]"),
		ValidArgsFunction: a.completeSubjects,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("output") {
			a.ui.Format = "raw"
		}
		m, err := a.requestMessage(cmd, args, headers, expand)
		if err != nil {
			return err
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		out := a.ui.Messages(a.env.Out)
		if replies == 1 {
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			reply, err := c.Request(ctx, m.Subject, m.Data, client.WithHeaders(m.Header))
			if err != nil {
				return requestProblem(err, m.Subject)
			}
			return errors.Join(out.Print(toRecord(reply)), out.Close())
		}
		return a.gather(cmd, c, m, replies, wait)
	}
	fl := cmd.Flags()
	fl.StringArrayVarP(&headers, "header", "H", nil, `header "Name: value", repeatable`)
	fl.IntVar(&replies, "replies", 1, "how many answers to wait for; 0 is all within --wait")
	fl.DurationVarP(&wait, "wait", "w", time.Second, "with --replies 0: how long to collect answers")
	fl.BoolVarP(&expand, "expand", "e", false, expandHelp)
	return cmd
}

func (a *app) requestMessage(cmd *cobra.Command, args []string, headers []string, expand bool) (*nats.Msg, error) {
	h, err := parseHeaders(headers)
	if err != nil {
		return nil, usage(cmd, "%v", err)
	}
	m := &nats.Msg{Subject: args[0], Header: nats.Header(h)}
	if len(args) > 1 {
		m.Data = []byte(args[1])
		if args[1] == "-" {
			if m.Data, err = io.ReadAll(a.env.In); err != nil {
				return nil, fmt.Errorf("read the body: %w", err)
			}
		}
	}
	if expand {
		e := newExpander(a.env.Now, a.env.Getenv)
		body, err := e.expand(string(m.Data), 1)
		if err != nil {
			return nil, usage(cmd, "%v", err)
		}
		m.Data = []byte(body)
	}
	return m, nil
}

// gather prints several answers to one request.
func (a *app) gather(cmd *cobra.Command, c *client.Client, m *nats.Msg, replies int, wait time.Duration) error {
	inbox := c.Conn().NewInbox()
	incoming := make(chan *client.Message, 64)
	ended := make(chan struct{})
	sub, err := c.Subscribe(inbox, func(m *client.Message) error {
		select {
		case incoming <- m:
		case <-ended:
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer func() { close(ended); _ = sub.Close() }()
	if err := c.Publish(m.Subject, m.Data, client.WithHeaders(m.Header), client.ReplyTo(inbox)); err != nil {
		return err
	}
	limit := wait
	if replies > 0 {
		limit = a.timeout
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	out := a.ui.Messages(a.env.Out)
	for replies == 0 || out.Count() < replies {
		select {
		case reply := <-incoming:
			if reply.Header.Get("Status") == "503" && len(reply.Payload) == 0 {
				return errors.Join(requestProblem(nats.ErrNoResponders, m.Subject), out.Close())
			}
			if err := out.Print(toRecord(reply)); err != nil {
				return err
			}
		case <-cmd.Context().Done():
			return errors.Join(cmd.Context().Err(), out.Close())
		case <-timer.C:
			if replies > 0 || out.Count() == 0 {
				return errors.Join(requestProblem(client.ErrTimeout, m.Subject), out.Close())
			}
			return out.Close()
		}
	}
	return out.Close()
}

func (a *app) replyCommand() *cobra.Command {
	var queue, command string
	var headers []string
	var echo, expand bool
	var count int
	cmd := &cobra.Command{
		Use:   "reply SUBJECT [BODY]",
		Short: "Answer requests",
		Long: `Answer requests on a subject: with BODY, with the request itself (--echo), or with
the output of a command that gets the request's body on standard input and its
subject in HERALD_SUBJECT (--command). Each request is printed as sub would.`,
		Example: `  pubsub reply time.now --command date
  pubsub reply 'echo.>' --echo --count 1`,
		Args:              args(1, 2, "SUBJECT [BODY]"),
		ValidArgsFunction: a.completeSubjects,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ways := 0
		for _, given := range []bool{len(args) > 1, echo, command != ""} {
			if given {
				ways++
			}
		}
		if ways != 1 {
			return usage(cmd, "one of BODY, --echo and --command says what to answer")
		}
		h, err := parseHeaders(headers)
		if err != nil {
			return usage(cmd, "%v", err)
		}
		e := newExpander(a.env.Now, a.env.Getenv)
		return a.answer(cmd, args[0], queue, count, func(m *client.Message, n int) error {
			body := m.Payload
			switch {
			case command != "":
				run := exec.CommandContext(cmd.Context(), "/bin/sh", "-c", command)
				run.Stdin, run.Stderr = bytes.NewReader(m.Payload), a.env.Err
				run.Env = append(os.Environ(), "HERALD_SUBJECT="+m.Subject)
				out, err := run.Output()
				if err != nil {
					return fmt.Errorf("run %q: %w", command, err)
				}
				body = out
			case len(args) > 1:
				text := args[1]
				if expand {
					if text, err = e.expand(text, n); err != nil {
						return err
					}
				}
				body = []byte(text)
			}
			return m.RespondWith(h, body)
		})
	}
	fl := cmd.Flags()
	fl.StringVar(&queue, "queue", "pubsub-reply", "share the requests with the members of this group")
	fl.StringVar(&command, "command", "", "shell command whose output is the answer")
	fl.BoolVar(&echo, "echo", false, "answer with the request")
	fl.StringArrayVarP(&headers, "header", "H", nil, `header "Name: value", repeatable`)
	fl.IntVarP(&count, "count", "c", 0, "stop after this many")
	fl.BoolVarP(&expand, "expand", "e", false, expandHelp)
	return cmd
}

// answer calls respond for each request until count, printing the requests.
func (a *app) answer(cmd *cobra.Command, subject, queue string, count int, respond func(*client.Message, int) error) error {
	c, err := a.connect(cmd)
	if err != nil {
		return err
	}
	incoming := make(chan *client.Message, 64)
	ended := make(chan struct{})
	sub, err := c.Subscribe(subject, func(m *client.Message) error {
		select {
		case incoming <- m:
		case <-ended:
		}
		return nil
	}, client.Queue(queue))
	if err != nil {
		return err
	}
	defer func() { close(ended); _ = sub.Close() }()
	if err := a.refusal(); err != nil {
		return err
	}
	a.ui.Note("answering on %s", subject)
	out := a.ui.Messages(a.env.Out)
	for n := 1; count == 0 || out.Count() < count; n++ {
		select {
		case <-cmd.Context().Done():
			return errors.Join(cmd.Context().Err(), out.Close())
		case m := <-incoming:
			if m.Reply != "" {
				if err := respond(m, n); err != nil {
					a.ui.Warn("%s: %s", m.Subject, plain(err))
				}
			}
			if err := out.Print(toRecord(m)); err != nil {
				return err
			}
		}
	}
	return out.Close()
}
