package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
)

// URLs are where the demo's broker is reached.
type URLs struct {
	Client    string `json:"client"`
	Monitor   string `json:"monitoring,omitempty"`
	Websocket string `json:"websocket,omitempty"`
}

// Serve runs a broker until ctx ends or standard input does: the parent holds
// its other end, so that no broker outlives the demo. The first line written to
// out is the URLs as JSON.
func Serve(ctx context.Context, dir string, port int, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := config.Defaults()
	options.Port = port
	if port == 0 {
		options.Port = -1
	}
	options.ServerName = "quakes"
	options.HTTP.Port = -1
	options.Websocket.Port, options.Websocket.NoTLS = -1, true
	options.JetStream.Enabled = true
	b, err := broker.New(broker.Config{Options: options, StoreDir: dir})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }() // received below, whatever happens
	go func() {                         // ends with the process: nothing can wait for a read of standard input
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	select {
	case err := <-ended:
		return err
	case <-b.Ready():
	}
	err = json.NewEncoder(out).Encode(URLs{b.ClientURL(), b.MonitorURL(), b.WebsocketURL()})
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-ended)
}

// child is a broker in a process of its own.
type child struct {
	cmd  *exec.Cmd
	hold io.Closer // its standard input; it ends when this is closed
	urls URLs
}

// start starts the broker on a directory; port 0 is any free one. It returns
// when clients are let in.
func start(executable, dir string, port int) (*child, error) {
	cmd := exec.Command(executable, "demo", "broker", "--dir", dir, "--port", strconv.Itoa(port))
	cmd.Stderr = os.Stderr
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the broker: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the broker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the broker: %w", err)
	}
	c := &child{cmd: cmd, hold: hold}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c.urls)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the broker did not start: %w", err), c.stop())
	}
	return c, nil
}

// port is where its clients connect.
func (c *child) port() (int, error) {
	u, err := url.Parse(c.urls.Client)
	if err != nil {
		return 0, fmt.Errorf("the broker's URL: %w", err)
	}
	return strconv.Atoi(u.Port())
}

// kill is kill -9: no goodbye, no flush.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the broker: %w", err)
	}
	_ = c.cmd.Wait() // says that it was killed
	return nil
}

// stop asks it to end and waits.
func (c *child) stop() error {
	_ = c.hold.Close() // closed already when the process is gone
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("stop the broker: %w", err)
	}
	return nil
}
