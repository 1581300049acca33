package front

import (
	"net"
	"strconv"
)

// IsLameDuck tells whether clients are being told to go elsewhere.
func (s *Server) IsLameDuck() bool { return s.lame.Load() || s.away.Load() }

// ConnectURLs are the addresses, host:port, at which clients reach this server:
// what is advertised, or else where it listens, on all interfaces one by one.
func (s *Server) ConnectURLs() (client, websocket []string) {
	o := s.opts()
	if p := s.port(); p > 0 {
		client = reachable(o.Host, p, o.ClientAdvertise)
	}
	if p := s.websocketPort(); p > 0 && o.Websocket != nil {
		host := o.Websocket.Host
		if host == "" {
			host = o.Host
		}
		websocket = reachable(host, p, o.Websocket.Advertise)
	}
	return client, websocket
}

func reachable(host string, port int, advertise string) []string {
	p := strconv.Itoa(port)
	if advertise != "" {
		if _, _, err := net.SplitHostPort(advertise); err != nil {
			advertise = net.JoinHostPort(advertise, p)
		}
		return []string{advertise}
	}
	ip := net.ParseIP(host)
	if ip == nil || !ip.IsUnspecified() {
		return []string{net.JoinHostPort(host, p)}
	}
	var all []string
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		addrs = nil // as if there were none
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() || ip.To4() != nil && n.IP.To4() == nil {
			continue
		}
		all = append(all, net.JoinHostPort(n.IP.String(), p))
	}
	if len(all) == 0 {
		all = append(all, net.JoinHostPort("127.0.0.1", p))
	}
	return all
}
