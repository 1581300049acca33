package web_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// browser is a page in a headless Chromium, driven by its own debugging protocol.
type browser struct {
	t    *testing.T
	conn *websocket.Conn
	n    int
}

// openPage starts a browser on a page, or skips the test where there is none.
func openPage(t *testing.T, address string) *browser {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("SKIPPED: no Chromium on this machine to try docs/web/index.html in (apt install chromium)")
	}
	dir := t.TempDir()
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0", "--user-data-dir="+dir, "about:blank")
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		t.Skip("SKIPPED: Chromium does not start: ", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var port string
	wait(t, time.Minute, "Chromium to listen", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "DevToolsActivePort"))
		port, _, _ = strings.Cut(string(b), "\n")
		return err == nil && port != ""
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://127.0.0.1:"+port+"/json/new?"+url.QueryEscape(address), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var tab struct {
		Debugger string `json:"webSocketDebuggerUrl"`
	}
	if err := json.NewDecoder(r.Body).Decode(&tab); err != nil {
		t.Fatal(err)
	}
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), tab.Debugger, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &browser{t: t, conn: conn}
}

func wait(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.After(d); !ok(); {
		select {
		case <-end:
			t.Fatalf("waited in vain for %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// run evaluates an expression in the page and returns its value as text.
func (b *browser) run(expression string) string {
	b.t.Helper()
	b.n++
	err := b.conn.WriteJSON(map[string]any{
		"id": b.n, "method": "Runtime.evaluate", "params": map[string]any{"expression": "String(" + expression + ")", "returnByValue": true},
	})
	for err == nil {
		var answer struct {
			ID     int
			Result struct {
				Result struct{ Value string }
				Thrown *struct{ Text string } `json:"exceptionDetails"`
			}
		}
		if err = b.conn.ReadJSON(&answer); err == nil && answer.ID == b.n {
			if x := answer.Result.Thrown; x != nil {
				return "thrown: " + x.Text
			}
			return answer.Result.Result.Value
		}
	}
	b.t.Fatal(err)
	return ""
}

func (b *browser) until(expression, want string) {
	b.t.Helper()
	got := ""
	for end := time.After(30 * time.Second); ; {
		if got = b.run(expression); strings.Contains(got, want) {
			return
		}
		select {
		case <-end:
			b.t.Fatalf("%s is %q, want %q", expression, got, want)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestThePageInABrowser does with docs/web/index.html what a person would.
func TestThePageInABrowser(t *testing.T) {
	page := httptest.NewServer(http.FileServer(http.Dir("../../docs/web")))
	t.Cleanup(page.Close)
	r := run(t, t.TempDir(), fmt.Sprintf("web { allowed_origins: [%q] }", page.URL))
	r.topic("ORDERS", "orders.>")
	store := func(subject, payload string) {
		t.Helper()
		if _, err := r.js.Publish(t.Context(), subject, []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	store("orders.1", `{"amount":500}`)
	q := url.Values{"server": {"http://" + r.http}, "subject": {"orders.>"}, "where": {"amount > 100"}, "from": {"first"}}
	b := openPage(t, page.URL+"/index.html?"+q.Encode())
	const state, list = `document.getElementById("state").textContent`, `[...document.querySelectorAll("#list li")].map(x => x.textContent).join("|")`
	b.until(state, "subscribed to orders.> of topic ORDERS")
	b.until(list, `orders.1  {"amount":500}`)
	// Publishing from the page, by its form.
	for _, amount := range []int{7, 120} {
		b.run(fmt.Sprintf(`(document.getElementById("body").value = '{"amount":%d}', document.querySelector("#pub button").click())`, amount))
		b.until(state, fmt.Sprintf("stored as ORDERS %d", map[int]int{7: 2, 120: 3}[amount]))
	}
	b.until(list, `orders.1  {"amount":120}|orders.1  {"amount":500}`)
	// The connection breaks; it goes on behind the last message by itself.
	b.run(`socket.close()`)
	b.until(state, "closed: ")
	store("orders.2", `{"amount":300}`)
	b.until(state, "subscribed to")
	b.until(list, `orders.2  {"amount":300}|orders.1  {"amount":120}|orders.1  {"amount":500}`)
	if got := b.run(list); strings.Count(got, "|") != 2 {
		t.Errorf("the list is %s", got)
	}
	// What is wrong is said, and not tried again.
	b.run(`(document.getElementById("where").value = "amount >", document.querySelector("#sub button").click())`)
	b.until(state, "closed: 4400")
	b.run(`(document.getElementById("to").value = "a..b", document.querySelector("#pub button").click())`)
	b.until(state, "refused: ")
}
