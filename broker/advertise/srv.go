package advertise

import (
	"time"

	"github.com/heraldmq/herald/broker/front"
)

// The advertise service is one of NATS's micro services (ADR-32) as well: it answers
// $SRV.PING, INFO and STATS. Only where it is asked for by name: those who ask all and
// take the first answer mean the services of users.

const serviceName = "herald-advertise"

type serviceIdentity struct {
	Name     string            `json:"name"`
	ID       string            `json:"id"`
	Version  string            `json:"version"`
	Metadata map[string]string `json:"metadata"`
	Type     string            `json:"type"`
}

type serviceInfo struct {
	serviceIdentity
	Description string            `json:"description"`
	Endpoints   []serviceEndpoint `json:"endpoints"`
}

type serviceEndpoint struct {
	Name       string            `json:"name"`
	Subject    string            `json:"subject"`
	QueueGroup string            `json:"queue_group"`
	Metadata   map[string]string `json:"metadata,omitempty"`
}

type serviceStats struct {
	serviceIdentity
	Started   time.Time       `json:"started"`
	Endpoints []endpointStats `json:"endpoints"`
}

type endpointStats struct {
	Name        string `json:"name"`
	Subject     string `json:"subject"`
	QueueGroup  string `json:"queue_group"`
	NumRequests int64  `json:"num_requests"`
	NumErrors   int64  `json:"num_errors"`
	LastError   string `json:"last_error"`
}

// answerServices answers $SRV.> for an account.
func (s *Service) answerServices(v *served) error {
	id := serviceIdentity{Name: serviceName, ID: s.o.ID, Version: s.o.Version, Metadata: map[string]string{"docs": "docs/advertise.md"}}
	for verb, answer := range map[string]func() any{
		"PING": func() any {
			id := id
			id.Type = "io.nats.micro.v1.ping_response"
			return id
		},
		"INFO": func() any {
			i := serviceInfo{serviceIdentity: id, Description: "Herald: what is on the bus"}
			i.Type = "io.nats.micro.v1.info_response"
			for _, v := range verbs {
				i.Endpoints = append(i.Endpoints, serviceEndpoint{Name: v, Subject: "$HERALD.ADV." + v})
			}
			return i
		},
		"STATS": func() any {
			st := serviceStats{serviceIdentity: id, Started: s.started.UTC()}
			st.Type = "io.nats.micro.v1.stats_response"
			for i, verb := range verbs {
				st.Endpoints = append(st.Endpoints, endpointStats{Name: verb, Subject: "$HERALD.ADV." + verb, NumRequests: v.asked[i].Load()})
			}
			return st
		},
	} {
		for _, subject := range []string{"$SRV." + verb + "." + serviceName, "$SRV." + verb + "." + serviceName + "." + s.o.ID} {
			unsubscribe, err := v.bus.listen(subject, func(m *front.Message) { m.Respond(nil, encode(answer())) })
			if err != nil {
				return err
			}
			v.closers = append(v.closers, unsubscribe)
		}
	}
	return nil
}
