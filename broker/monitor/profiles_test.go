package monitor

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func TestProfilesAreOfThisMachineOnly(t *testing.T) {
	s, err := ListenProfiles(0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.Addr().String(), "127.0.0.1:") {
		t.Errorf("they are at %s", s.Addr())
	}
	for path, want := range map[string]string{"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "TestProfilesAreOfThisMachineOnly", "/varz": "404"} {
		r, err := http.Get("http://" + s.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, want %s in %.200s", path, err, want, text)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := http.Get("http://" + s.Addr().String() + "/debug/pprof/"); err == nil {
		t.Error("they are still there after Close")
	}
}
