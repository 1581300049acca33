package monitor_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/heraldmq/herald/broker/monitor"
)

// A node that has started says so while it serves nothing for want of the others.
func TestStartupNeedsNoQuorum(t *testing.T) {
	for _, c := range []struct {
		name    string
		opened  bool
		pending []string
		startup int
		body    string
		ready   int
	}{
		{"starting", false, []string{"starting"}, http.StatusServiceUnavailable, `{"started":false,"reason":`, http.StatusServiceUnavailable},
		{"alone", true, []string{"forming: 1 of 3 nodes"}, http.StatusOK, `{"started":true}`, http.StatusServiceUnavailable},
		{"serving", true, nil, http.StatusOK, `{"started":true}`, http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := monitor.New(monitor.Sources{
				Opened:  func() bool { return c.opened },
				Pending: func() []string { return c.pending },
				Durable: func() monitor.Durable { return nil },
			})
			ask := func(path string) (int, string) {
				w := httptest.NewRecorder()
				m.Handler("/m").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/m"+path, nil))
				return w.Code, w.Body.String()
			}
			if status, body := ask("/startupz"); status != c.startup || !strings.HasPrefix(body, c.body) {
				t.Errorf("startupz: %d %s", status, body)
			}
			if status, body := ask("/readyz"); status != c.ready {
				t.Errorf("readyz: %d %s", status, body)
			}
			if status, body := ask("/livez"); status != http.StatusOK {
				t.Errorf("livez: %d %s", status, body)
			}
		})
	}
}
