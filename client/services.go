package client

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// serviceInfoType is the type of what NATS's micro services answer to $SRV.INFO.
const serviceInfoType = "io.nats.micro.v1.info_response"

// servicesMax bounds how many answers are taken.
const servicesMax = 10_000

// Services asks the micro services of NATS (ADR-32) what they are, and returns their
// endpoints as advertisements with the role responds: one for each subject, however many
// instances answer. They are asked once, and those that have not answered when nobody has
// for the time of pause are not there (0: 150 ms).
func (c *Client) Services(ctx context.Context, pause time.Duration) ([]Advertisement, error) {
	if pause <= 0 {
		pause = 150 * time.Millisecond
	}
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, failed("discover", "services", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishRequest("$SRV.INFO", inbox, nil); err != nil {
		return nil, failed("discover", "services", err)
	}
	found := map[advKey]*Advertisement{}
	for range servicesMax {
		within, cancel := context.WithTimeout(ctx, pause)
		m, err := sub.NextMsgWithContext(within)
		cancel()
		if err != nil || len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			break
		}
		takeService(found, m.Data)
	}
	out := make([]Advertisement, 0, len(found))
	for _, ad := range found {
		out = append(out, *ad)
	}
	slices.SortFunc(out, func(a, b Advertisement) int { return strings.Compare(a.Name, b.Name) })
	return out, ctx.Err()
}

// takeService reads what one instance answers.
func takeService(found map[advKey]*Advertisement, data []byte) {
	var info struct {
		Type        string            `json:"type"`
		Name        string            `json:"name"`
		Version     string            `json:"version"`
		Description string            `json:"description"`
		Metadata    map[string]string `json:"metadata"`
		Endpoints   []struct {
			Name     string            `json:"name"`
			Subject  string            `json:"subject"`
			Metadata map[string]string `json:"metadata"`
		} `json:"endpoints"`
	}
	if json.Unmarshal(data, &info) != nil || info.Type != serviceInfoType {
		return
	}
	for _, e := range info.Endpoints {
		ad := &Advertisement{
			Name: info.Name + "." + e.Name, Subject: e.Subject, Role: "responds", Summary: info.Description,
			Owner: Owner{Service: info.Name, Version: info.Version},
		}
		if text := e.Metadata["schema"]; text != "" {
			inline := json.RawMessage(text)
			if !json.Valid(inline) {
				inline, _ = json.Marshal(text) // a text always encodes
			}
			ad.Schema = &Schema{Format: "json-schema", Inline: inline}
		}
		ad.Extra = map[string]json.RawMessage{"x-nats-service": json.RawMessage("true")}
		found[advKey{ad.Name, ad.Subject}] = ad
	}
}
