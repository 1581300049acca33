package broker

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/heraldmq/herald/broker/config"
)

// Reload reads the options again and puts what has changed in force: who may
// connect, limits, TLS files, accounts, log level. A change that needs a restart
// is refused, and then nothing changes.
func (b *Broker) Reload() error {
	b.reload.Lock()
	defer b.reload.Unlock()
	if b.cfg.Reload == nil {
		return ErrNoReload
	}
	select {
	case <-b.ready:
	default:
		return errors.New("the broker is still starting")
	}
	next, err := b.cfg.Reload()
	if err != nil {
		return err
	}
	old := b.options.Load()
	changes := config.Diff(old, next)
	var restart []string
	for _, c := range changes {
		if c.Restart {
			restart = append(restart, c.String())
		}
	}
	if len(restart) > 0 {
		return fmt.Errorf("these changes need a restart: %s", strings.Join(restart, "; "))
	}
	fo, err := b.frontOptions(next)
	if err != nil {
		return err
	}
	if err := b.front.Reload(fo); err != nil {
		return err
	}
	b.options.Store(next)
	b.loaded.Store(time.Now().UnixNano())
	if b.cfg.Level != nil {
		b.cfg.Level.Set(next.Log.Level())
	}
	for _, c := range changes {
		b.cfg.Log.Info("Reloaded: " + c.String())
	}
	for _, w := range next.Warnings {
		b.cfg.Log.Warn(w)
	}
	var errs []error
	if s := b.sys.Load(); s != nil {
		errs = append(errs, s.Refresh())
	}
	errs = append(errs, b.serveFilters())
	if d := b.durable.Load(); d != nil {
		errs = append(errs, d.enable(next))
	}
	if b.links != nil {
		errs = append(errs, b.links.refresh(next))
	}
	return errors.Join(errs...)
}
