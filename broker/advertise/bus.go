package advertise

import "github.com/heraldmq/herald/broker/front"

// frontBus is an account as a bus.
type frontBus struct{ a *front.Account }

func (b frontBus) listen(subject string, h func(m *front.Message)) (func(), error) {
	sub, err := b.a.Subscribe(subject, "", h)
	if err != nil {
		return nil, err
	}
	return sub.Close, nil
}

func (b frontBus) publish(subject string, payload []byte) bool {
	return b.a.Publish(subject, "", nil, payload)
}

func (b frontBus) hasInterest(subject string) bool { return b.a.HasInterest(subject) }

func (b frontBus) watchInterest(subject string, f func(bool)) func() {
	return b.a.WatchInterest(subject, f)
}

func (b frontBus) subscribers(pattern string) int { return b.a.ClientSubscriptions(pattern) }

func (b frontBus) interested(pattern string) front.Interested { return b.a.Interested(pattern) }

func (b frontBus) setGate(g front.Gate) { b.a.SetGate(g) }

func (b frontBus) setObserver(o front.Observer) { b.a.SetObserver(o) }
