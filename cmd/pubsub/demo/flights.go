package demo

import (
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed flights.ndjson
var flightsFile string

//go:embed airports.csv
var airportsFile string

// flight is one of January 2001.
type flight struct {
	Date        string `json:"date"` // local time
	Delay       int    `json:"delay"`
	Origin      string `json:"origin"`
	Destination string `json:"destination"`

	line []byte // as it is in the file
}

// airport is what a code names.
type airport struct {
	IATA    string `json:"iata"`
	Name    string `json:"name"`
	City    string `json:"city"`
	State   string `json:"state"`
	Country string `json:"country"`

	line []byte // as it is published
}

// data parses what is embedded.
func data() ([]quake, []flight, []airport, error) {
	q, err := quakes()
	if err != nil {
		return nil, nil, nil, err
	}
	var flights []flight
	for line := range strings.Lines(flightsFile) {
		line = strings.TrimSuffix(line, "\n")
		f := flight{line: []byte(line)}
		if err := json.Unmarshal(f.line, &f); err != nil {
			return nil, nil, nil, fmt.Errorf("embedded flights, line %d: %w", len(flights)+1, err)
		}
		flights = append(flights, f)
	}
	rows, err := csv.NewReader(strings.NewReader(airportsFile)).ReadAll()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("embedded airports: %w", err)
	}
	var airports []airport
	for _, r := range rows[1:] { // behind the names of the columns
		a := airport{IATA: r[0], Name: r[1], City: r[2], State: r[3], Country: r[4]}
		if a.line, err = json.Marshal(a); err != nil {
			return nil, nil, nil, fmt.Errorf("embedded airports: %w", err)
		}
		airports = append(airports, a)
	}
	return q, flights, airports, nil
}
