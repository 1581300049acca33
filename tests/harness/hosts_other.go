//go:build !linux

package harness

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
)

var errNoHosts = errors.New("network namespaces need Linux")

type hosts struct{}

func newHosts(testing.TB) (*hosts, error)       { return nil, errNoHosts }
func (h *hosts) add() (string, error)           { return "", errNoHosts }
func (h *hosts) start(int, *exec.Cmd) error     { return errNoHosts }
func (h *hosts) cut(from, to int, _ bool) error { return errNoHosts }

func withParent() *syscall.SysProcAttr { return nil }
