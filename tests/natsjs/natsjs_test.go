// Package natsjs drives nats.js, unmodified from npm, against brokerd: over TCP
// and over websocket.
package natsjs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// install puts the pinned packages into a folder of its own, so that the
// checkout stays clean. Skips, loudly, where node or the registry is missing.
func install(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: no %s on this machine", tool)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "check.mjs"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: nats.js can't be installed from the npm registry: %v\n%s", err, out)
	}
	return dir
}

func TestNatsJS(t *testing.T) {
	dir := install(t)
	port := harness.FreePort(t)
	b := harness.Start(t, fmt.Sprintf("websocket { host: \"127.0.0.1\", port: %d, no_tls: true, compression: true }\n", port))
	for kind, url := range map[string]string{"tcp": b.URL, "ws": fmt.Sprintf("ws://127.0.0.1:%d", port)} {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "node", "check.mjs", kind, url)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			t.Logf("\n%s", out)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
