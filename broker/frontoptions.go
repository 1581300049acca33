package broker

import (
	"cmp"
	"net/http"

	"github.com/heraldmq/herald/broker/auth"
	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/front"
)

// frontOptions says in the front's words what the options say.
func (b *Broker) frontOptions(o *config.Options) (front.Options, error) {
	f := front.Options{
		Host: o.Host, Port: listenPort(o.Port),
		ServerID: b.id, ServerName: b.name(o), Version: NATSVersion, Herald: Version, Cluster: o.Cluster.Name, Domain: o.JetStream.Domain,
		ClientAdvertise: o.ClientAdvertise, JetStream: o.JetStream.Enabled, APILevel: APILevel, NoHeaders: o.NoHeaders,
		MaxPayload: o.MaxPayload, MaxControlLine: o.MaxControlLine, MaxConnections: o.MaxConnections,
		MaxSubscriptions: o.MaxSubscriptions, MaxSubTokens: o.MaxSubTokens, MaxPending: o.MaxPending,
		MaxClosedClients: o.MaxClosedClients, WriteDeadline: o.WriteDeadline, PingInterval: o.PingInterval,
		PingMax: o.PingMax, LameDuckDuration: o.LameDuck, LameDuckGrace: o.LameDuckGrace,
		NoFastProducerStall: o.NoProducerStall, Auth: b.authConfig(o), AllowNonTLS: o.AllowNonTLS,
		Log: b.cfg.Log, Trace: o.Log.Trace, MaxTracedMsgLen: o.Log.MaxTraced,
		OnConnect: b.onConnect, OnDisconnect: b.onDisconnect, OnAuthError: b.onAuthError,
	}
	var err error
	if f.TLS, err = tlsOptions(o.TLS); err != nil {
		return f, err
	}
	if w := o.Websocket; w.Port != 0 {
		f.Websocket = &front.WebsocketOptions{
			Host: w.Host, Port: listenPort(w.Port), Advertise: w.Advertise, NoTLS: w.NoTLS,
			Compression: w.Compression, AnyOrigin: !w.SameOrigin && len(w.AllowedOrigins) == 0, AllowedOrigins: w.AllowedOrigins,
			HandshakeTimeout: w.HandshakeTimeout, UserCookie: w.UserCookie, PassCookie: w.PassCookie,
			TokenCookie: w.TokenCookie, NoAuthUser: w.NoAuthUser, PingInterval: w.PingInterval, Headers: http.Header{},
		}
		for k, v := range w.Headers {
			f.Websocket.Headers.Set(k, v)
		}
		if f.Websocket.TLS, err = tlsOptions(w.TLS); err != nil {
			return f, err
		}
	}
	return f, nil
}

// listenPort turns "-1 is any free port" into the network's "0 is".
func listenPort(p int) int { return max(p, 0) }

func tlsOptions(t *config.TLS) (*front.TLSOptions, error) {
	if t == nil {
		return nil, nil
	}
	c, err := t.Build()
	if err != nil {
		return nil, err
	}
	return &front.TLSOptions{
		Config: c, Timeout: t.Timeout, HandshakeFirst: t.HandshakeFirst, HandshakeFallback: t.FirstWait,
		PinnedCerts: t.PinnedCerts, RateLimit: t.ConnectionsPerS,
	}, nil
}

// authConfig says who may connect.
func (b *Broker) authConfig(o *config.Options) auth.Config {
	c := auth.Config{
		Token: o.Auth.Token, SystemAccount: o.SystemAccount, NoAuthUser: o.NoAuthUser,
		DefaultPermissions: showPermissions(o.Auth.Default), Timeout: o.Auth.Timeout,
		TLSMap: o.TLS != nil && o.TLS.VerifyAndMap,
	}
	if o.Auth.User != "" {
		c.Users = append(c.Users, authUser(config.User{Name: o.Auth.User, Password: o.Auth.Password}, "", c.TLSMap))
	}
	for _, u := range o.Auth.Users {
		c.Users = append(c.Users, authUser(u, "", c.TLSMap))
	}
	for _, a := range o.Accounts {
		c.Accounts = append(c.Accounts, auth.Account{
			Name: a.Name, Nkey: a.NKey, DefaultPermissions: showPermissions(a.Default),
			Limits: auth.Limits{
				MaxConnections: max(a.MaxConnections, 0), MaxSubscriptions: max(a.MaxSubscriptions, 0), MaxPayload: max(a.MaxPayload, 0),
			},
		})
		for _, u := range a.Users {
			c.Users = append(c.Users, authUser(u, a.Name, c.TLSMap))
		}
	}
	if o.SystemUsersOnly() {
		// Everybody else is let into the global account, as somebody whose name
		// and password nobody can guess.
		c.Users = append(c.Users, auth.User{Name: b.guest, Password: b.guestPass})
		c.NoAuthUser = b.guest
	}
	return c
}

// emptyPassword is the bcrypt hash of no password: nats-server lets a user without
// one in by name alone, which auth.User can't say in plain.
const emptyPassword = "$2a$04$3MwpgnhvwJcC7Rjng/p.le6QeWCDMovu6JnyxtD/jQm3B02ENKVAe"

func authUser(u config.User, account string, mapped bool) auth.User {
	if u.Password == "" && u.NKey == "" && !mapped {
		u.Password = emptyPassword
	}
	return auth.User{
		Name: u.Name, Password: u.Password, Nkey: u.NKey, Account: account,
		Permissions: showPermissions(u.Permissions), ConnectionTypes: u.Connections,
	}
}

func showPermissions(p *config.Permissions) *auth.Permissions {
	if p == nil {
		return nil
	}
	subjects := func(s *config.Subjects) *auth.SubjectPermission {
		if s == nil {
			return nil
		}
		return &auth.SubjectPermission{Allow: s.Allow, Deny: s.Deny}
	}
	out := &auth.Permissions{
		Publish: subjects(p.Publish), Subscribe: subjects(p.Subscribe), Advertise: subjects(p.Advertise),
		Discover: subjects(p.Discover), Sample: subjects(p.Sample), Enforce: subjects(p.Enforce),
	}
	if p.Responses != nil {
		out.Responses = &auth.ResponsePermission{Max: p.Responses.Max, Expires: p.Responses.Expires}
	}
	return out
}

// name is what the server calls itself.
func (b *Broker) name(o *config.Options) string { return cmp.Or(o.ServerName, b.id) }
