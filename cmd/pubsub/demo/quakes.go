// Package demo shows Herald at work on real data: a broker in a process of its
// own, an advertised feed of earthquakes, a kill -9 in the middle of publishing,
// and an account of what arrived.
//
// [Run] is the demo; [Serve] is the broker that it starts as a child process of
// the same executable, so that it can really be killed.
package demo

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/heraldmq/herald/client"
)

//go:embed earthquakes.ndjson
var events []byte

// quake is one event of the feed.
type quake struct {
	ID      string   `json:"id"`
	Time    int64    `json:"time"`    // ms since 1970: when the ground shook
	Updated int64    `json:"updated"` // ms since 1970: when the report last changed
	Mag     *float64 `json:"mag"`
	Place   string   `json:"place"`
	Net     string   `json:"net"`
	Type    string   `json:"type"`
	Depth   *float64 `json:"depth"`
	Felt    *int     `json:"felt"`

	line []byte // as it is in the file
}

// tokens are what its subject is made of; a type may have spaces.
func (q *quake) tokens() client.Tokens {
	return client.Tokens{"net": q.Net, "type": strings.ReplaceAll(q.Type, " ", "_")}
}

// quakes parses the embedded file.
func quakes() ([]quake, error) {
	var all []quake
	for line := range strings.Lines(string(events)) {
		line = strings.TrimSuffix(line, "\n")
		var q quake
		if err := json.Unmarshal([]byte(line), &q); err != nil {
			return nil, fmt.Errorf("embedded earthquakes, line %d: %w", len(all)+1, err)
		}
		q.line = []byte(line)
		all = append(all, q)
	}
	return all, nil
}

// feed is the advertisement of the events.
func feed() client.Advertisement {
	return client.Advertisement{
		Name:        "quakes",
		Subject:     "quakes.{net}.{type}",
		Kind:        "event",
		Summary:     "Seismic events as they are reported and revised",
		Description: "Events of the US Geological Survey's real-time feed. `time` is when the ground shook, `updated` when the report last changed; messages come in the order of `updated`.",
		Tags:        []string{"geo", "demo"},
		Owner:       client.Owner{Team: "seismology", Service: "quake-feed", Version: "1.0.0", Contact: "https://earthquake.usgs.gov"},
		ContentType: "application/json",
		Schema:      &client.Schema{Format: "json-schema", Version: "1", Compat: "backward", Inline: json.RawMessage(schema)},
		Rate:        &client.Rate{Expected: "250/d", MaxPayload: "1KiB"},
		Keep:        &client.Keep{Topic: "quakes", MaxAge: client.Duration(30 * 24 * time.Hour)},
	}
}

const schema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Seismic event",
  "type": "object",
  "required": ["id", "time", "updated", "net", "type", "lon", "lat"],
  "properties": {
    "id": {"type": "string"},
    "time": {"type": "integer", "description": "when the ground shook, ms since 1970 UTC"},
    "updated": {"type": "integer", "description": "when the report last changed, ms since 1970 UTC"},
    "mag": {"type": ["number", "null"], "description": "magnitude; small ones are negative"},
    "magType": {"type": ["string", "null"]},
    "place": {"type": ["string", "null"]},
    "net": {"type": "string", "description": "network that reports it"},
    "type": {"type": "string", "description": "earthquake, explosion, quarry blast, …"},
    "status": {"type": "string"},
    "sig": {"type": "integer"},
    "nst": {"type": ["integer", "null"]},
    "gap": {"type": ["number", "null"]},
    "rms": {"type": ["number", "null"]},
    "tsunami": {"type": "integer"},
    "felt": {"type": ["integer", "null"]},
    "lon": {"type": "number"},
    "lat": {"type": "number"},
    "depth": {"type": ["number", "null"], "description": "km"}
  }
}`
