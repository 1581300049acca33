package catalogue

import (
	"encoding/json"
	"testing"
	"time"
)

func TestTimeSpans(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`"90s"`: 90 * time.Second, `"7d"`: 7 * 24 * time.Hour, `"2w"`: 14 * 24 * time.Hour, `"1w1d"`: 8 * 24 * time.Hour,
		`"1d12h"`: 36 * time.Hour, `"0d"`: 0, `"-1s"`: -time.Second, `1000`: time.Microsecond, `"106751d"`: 106751 * 24 * time.Hour,
	} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s is %v, %v; want %v", text, time.Duration(d), err, want)
		}
	}
	for _, text := range []string{`"d"`, `""`, `"7"`, `"7 d"`, `"1d-1h"`, `"99999w"`, `"106752d"`, `"106751d48h"`, `"1d1d"`, `true`, `1.5`, `99999999999999999999`} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err == nil {
			t.Errorf("%s is read as %v", text, time.Duration(d))
		}
	}
}

func TestWhatIsWrongIsSaidInTheWordsOfJSON(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"a","subject":5}`:                               "subject: must be a text, not a number",
		`{"name":"a","subject":"s","tags":"x"}`:                  "tags: must be a list, not a text",
		`{"name":"a","subject":"s","owner":[]}`:                  "owner: must be an object, not a list",
		`{"name":"a","subject":"s","durable":{"max_msgs":{}}}`:   "durable.max_msgs: must be a whole number of at most 64 bits, not an object",
		`{"name":"a","subject":"s","durable":{"replicas":1e30}}`: "durable.replicas: must be a whole number of at most 64 bits, not the number 1e30",
		`{"name":"a","subject":"s","lease":{"ttl":"soon"}}`:      `time span "soon" is not like 90s, 15m or 7d`,
	} {
		_, f := ParseAdvertisement([]byte(body))
		if want = "advertisement is not valid: " + want; f == nil || f.Text != want {
			t.Errorf("%s gives %v\nwant %s", body, f, want)
		}
	}
}
