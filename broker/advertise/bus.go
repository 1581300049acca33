package advertise

import "github.com/heraldmq/herald/broker/front"

// frontBus is an account as a bus.
type frontBus struct{ a *front.Account }

func (b frontBus) subscribe(subject string, h func(request)) (func(), error) {
	sub, err := b.a.Subscribe(subject, "", func(m *front.Message) {
		if len(m.Reply) == 0 || m.Client == nil {
			return // nobody would hear the answer; or a client made the broker say it
		}
		own := m.Clone()
		h(request{
			payload: own.Payload, reply: string(own.Reply), respond: func(p []byte) { own.Respond(nil, p) },
			client: own.Client.ID, may: own.Client.MayPublish,
		})
	}, front.Local)
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
