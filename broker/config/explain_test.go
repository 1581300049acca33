package config

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every key that a file may have is explained, with an example that is right; nothing
// else is.
func TestEveryKeyIsExplained(t *testing.T) {
	cert, key := pair(t)
	files := strings.NewReplacer(`"server.pem"`, `"`+cert+`"`, `"server-key.pem"`, `"`+key+`"`, `"a.pem"`, `"`+cert+`"`, `"a-key.pem"`, `"`+key+`"`, `"ca.pem"`, `"`+cert+`"`)
	used := map[string]bool{}
	foreign := 0
	for _, e := range explained() {
		if e.Foreign != "" {
			foreign++
			continue
		}
		if h, ok := helpOn(e.Key); ok {
			for name, other := range helps {
				if other.does == h.does {
					used[name] = true
				}
			}
		}
		if e.Does == "" || e.Example == "" || e.Takes == "" && !e.Block && e.Key != "cluster.routes" {
			t.Errorf("%s: does %q, takes %q, example %q", e.Key, e.Does, e.Takes, e.Example)
			continue
		}
		if _, err := parseExample(files.Replace(e.Example)); err != nil {
			t.Errorf("%s: its example is no configuration: %v\n%s", e.Key, err, e.Example)
		}
		last := e.Key[strings.LastIndexByte(e.Key, '.')+1:]
		names := append([]string{strings.Replace(last, "NAME", "accounts", 1)}, e.Names...)
		if !slices.ContainsFunc(names, func(n string) bool { return regexp.MustCompile(`\b` + n + `\b`).MatchString(e.Example) }) {
			t.Errorf("%s: its example doesn't have it: %s", e.Key, e.Example)
		}
	}
	for name := range helps {
		if !used[name] {
			t.Errorf("%s is explained and is no key", name)
		}
	}
	if foreign < 40 {
		t.Errorf("only %d of nats-server's other keys are found", foreign)
	}
}

func TestExplain(t *testing.T) {
	for key, want := range map[string][]string{
		"jetstream.max_mem":             {"jetstream.max_memory_store  (also max_mem_store, max_mem)", "a size such as 64MB", "default  0", "jetstream { max_memory_store: 1GB }", "by a reload"},
		"listen":                        {`"host:port"`},
		"jetstream.store_dir":           {"after a restart"},
		"max_payload":                   {"default  1048576", "a size from 1 to 67108864 bytes", "take hold by a reload", "to 64 MiB"},
		"PORT":                          {"takes    a number from -1 to 65535", "default  4222", "take hold after a restart"},
		"log_format":                    {"one of text, json, logfmt", `default  "text"`},
		"accounts.SHOP.users.user":      {"accounts { NAME { users"},
		"cluster.tls.verify":            {"cluster { port: 6222, tls {", "after a restart"},
		"websocket.compression":         {"websocket.compress", "default  false"},
		"leafnodes":                     {"of nats-server; refused: "},
		"cluster.pool_size":             {"of nats-server; ignored: "},
		"jetstream.sync_interval":       {"syncs to disk before it acknowledges"},
		"jetstream.limits":              {"jetstream.limits.duplicate_window", "jetstream.limits.batch.timeout"},
		"authorization.users.publish":   nil,
		"tls.timeout":                   {`default  "2s"`},
		"authorization.users.nkey":      {`starts with "U"`},
		"accounts.x.jetstream.max_disk": {"accounts.NAME.jetstream.max_store"},
		"console":                       {"default  true", "enabled, disabled"},
	} {
		text, err := Explain(key)
		if (err != nil) != (want == nil) {
			t.Errorf("%s: %v", key, err)
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %q in\n%s", key, w, text)
			}
		}
	}
	for key, want := range map[string]string{
		"max_paylod":       `did you mean "max_payload"?`,
		"duplicate_window": `stands in a block: jetstream.limits.duplicate_window`,
	} {
		if _, err := Explain(key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", key, err, want)
		}
	}
	all, err := Explain("")
	if err != nil || strings.Count(all, "\n") < 120 || !strings.Contains(all, "jetstream.store_dir") {
		t.Errorf("all: %v\n%s", err, all)
	}
}
