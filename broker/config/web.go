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
	if _, isBlock := n.value.(map[string]any); !isBlock {
		d.enabled(n, "web", &w.Enabled)
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

// enabled reads "enabled", "disabled", true or false.
func (d *decoder) enabled(n node, name string, to *bool) {
	switch v := n.value.(type) {
	case bool:
		*to = v
		return
	case string:
		switch strings.ToLower(v) {
		case "enabled", "enable":
			*to = true
			return
		case "disabled", "disable":
			*to = false
			return
		}
	}
	or := ""
	if name == "web" {
		or = " or a block { }"
	}
	d.fault(n, "%s wants enabled, disabled%s, not %s", name, or, n.kind())
}
