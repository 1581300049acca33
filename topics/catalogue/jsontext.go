package catalogue

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a time span that is written as "30s" and read from that, with weeks and
// days in front too ("7d", "1d12h"), or from a number of nanoseconds.
type Duration time.Duration

// MarshalJSON writes the span as Go writes it.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads "30s", "7d" or nanoseconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var n int64
	if json.Unmarshal(b, &n) == nil {
		*d = Duration(n)
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("time span %s is neither a text like \"30s\" nor nanoseconds", b)
	}
	t, ok := parseSpan(s)
	if !ok {
		return fmt.Errorf("time span %q is not like 90s, 15m or 7d", s)
	}
	*d = Duration(t)
	return nil
}

var weeksAndDays = regexp.MustCompile(`^(?:(\d{1,5})w)?(?:(\d{1,6})d)?`)

func parseSpan(s string) (time.Duration, bool) {
	m := weeksAndDays.FindStringSubmatch(s)
	weeks, _ := strconv.Atoi(m[1]) // "" is none
	days, _ := strconv.Atoi(m[2])
	if days += 7 * weeks; days > int(math.MaxInt64/(24*time.Hour)) {
		return 0, false
	}
	whole, rest := time.Duration(days)*24*time.Hour, s[len(m[0]):]
	if rest == "" && m[0] != "" {
		return whole, true
	}
	t, err := time.ParseDuration(rest)
	if err != nil || m[0] != "" && t < 0 || t > math.MaxInt64-whole {
		return 0, false
	}
	return whole + t, true
}

// JSONProblem says in the words of somebody who writes JSON, not Go, why a text can't be
// decoded.
func JSONProblem(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	got, _, _ := strings.Cut(wrong.Value, " ") // "number 1e30" names the number
	if rest := wrong.Value[len(got):]; got == "number" && rest != "" {
		got = "the number" + rest
	} else {
		got = map[string]string{"string": "a text", "number": "a number", "bool": "true or false", "array": "a list", "object": "an object"}[got]
	}
	want := map[reflect.Kind]string{
		reflect.String: "a text", reflect.Bool: "true or false", reflect.Slice: "a list", reflect.Array: "a list",
		reflect.Struct: "an object", reflect.Map: "an object", reflect.Float64: "a number",
	}[wrong.Type.Kind()]
	switch wrong.Type.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64:
		want = "a whole number of at most 64 bits"
	}
	if field := wrong.Field; field != "" {
		// What is embedded is told by the name of its Go type; what is in JSON begins small.
		for first, rest, more := strings.Cut(field, "."); more && first != "" && first[0] >= 'A' && first[0] <= 'Z'; first, rest, more = strings.Cut(field, ".") {
			field = rest
		}
		return fmt.Sprintf("%s: must be %s, not %s", field, want, got)
	}
	return fmt.Sprintf("must be %s, not %s", want, got)
}
