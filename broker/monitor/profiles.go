package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"
)

// ListenProfiles serves Go's profiles at /debug/pprof/ of a port of 127.0.0.1: they show what
// is in memory, so nobody from elsewhere sees them. Port 0 is any free one. A profile of
// processor time takes as long as it is asked for.
func ListenProfiles(port int, log *slog.Logger) (*Server, error) {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for profiles on %s (prof_port): %w", addr, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := &Server{ln: ln, done: make(chan error, 1), http: &http.Server{
		Handler: mux, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: 2 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}}
	go func() { s.done <- s.http.Serve(ln) }() // ends by Close, which waits
	return s, nil
}
