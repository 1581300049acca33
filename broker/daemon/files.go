package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// writePid writes the process id, decimal and nothing else.
func writePid(path string) error {
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	return nil
}

// ports is the content of a ports file.
type ports struct {
	Nats       []string `json:"nats,omitempty"`
	Cluster    []string `json:"cluster,omitempty"`
	Monitoring []string `json:"monitoring,omitempty"`
	Websocket  []string `json:"websocket,omitempty"`
}

// writePorts writes the addresses in use to <dir>/<program>_<pid>.ports, whole
// or not at all, and returns the file's name.
func (p *process) writePorts(dir string) (string, error) {
	var v ports
	for _, u := range []struct {
		list *[]string
		url  string
	}{{&v.Nats, p.broker.ClientURL()}, {&v.Cluster, p.broker.ClusterURL()}, {&v.Monitoring, p.broker.MonitorURL()}, {&v.Websocket, p.broker.WebsocketURL()}} {
		if u.url != "" {
			*u.list = []string{u.url}
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode ports file: %w", err)
	}
	name := filepath.Join(dir, fmt.Sprintf("%s_%d.ports", filepath.Base(os.Args[0]), os.Getpid()))
	temp := name + ".new"
	if err := os.WriteFile(temp, b, 0o644); err != nil {
		return name, fmt.Errorf("write ports file: %w", err)
	}
	if err := os.Rename(temp, name); err != nil {
		return name, fmt.Errorf("write ports file: %w", err)
	}
	return name, nil
}

// readPid reads a pid, or the pid in the file of that name.
func readPid(s string) (int, error) {
	if pid, err := strconv.Atoi(s); err == nil && pid > 0 {
		return pid, nil
	}
	b, err := os.ReadFile(s)
	if err != nil {
		return 0, fmt.Errorf("%q is neither a process id nor a pid file: %w", s, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("pid file %s holds no process id", s)
	}
	return pid, nil
}
