package config

import (
	"math"
	"strings"
	"time"
)

// Web is what the monitoring listener serves to subscribers and publishers without a
// NATS client: /subscribe and /publish. It is off unless asked for: pages that run in
// a browser on this machine reach its loopback interface.
type Web struct {
	Enabled        bool
	SameOrigin     bool     // only pages of the listener's own host and AllowedOrigins
	AllowedOrigins []string // "https://example.com"
	UserCookie     string
	PassCookie     string
	TokenCookie    string
	MaxConnections int           // subscribers; 0 = the built-in bound
	MaxPending     int64         // bytes that wait for one subscriber; 0 = the built-in bound
	Heartbeat      time.Duration // 0 = the built-in interval
	WriteDeadline  time.Duration // 0 = the built-in one
	At             string
}

// web reads the block, or "web: enabled".
func (d *decoder) web(n node, w *Web) {
	w.At = n.place()
	switch v := n.value.(type) {
	case bool:
		w.Enabled = v
		return
	case string:
		switch strings.ToLower(v) {
		case "enabled", "enable":
			w.Enabled = true
		case "disabled", "disable":
			w.Enabled = false
		default:
			d.fault(n, "web wants enabled, disabled or a block { }, not %s", n.kind())
		}
		return
	}
	w.Enabled = true
	d.block(n, "web", []key{
		{"enabled|enable", d.flag("enabled", &w.Enabled)},
		{"same_origin", d.flag("same_origin", &w.SameOrigin)},
		{"allowed_origins|allowed_origin|allow_origins|allow_origin|origins|origin", d.texts("allowed_origins", &w.AllowedOrigins)},
		{"user_cookie", d.text("user_cookie", &w.UserCookie)},
		{"pass_cookie", d.text("pass_cookie", &w.PassCookie)},
		{"token_cookie", d.text("token_cookie", &w.TokenCookie)},
		{"max_connections|max_conn", d.number("max_connections", &w.MaxConnections, 0, math.MaxInt32)},
		{"max_pending", d.size("max_pending", &w.MaxPending)},
		{"heartbeat|ping_interval", d.span("heartbeat", &w.Heartbeat)},
		{"write_deadline", d.span("write_deadline", &w.WriteDeadline)},
	})
}
