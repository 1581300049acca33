package topics

import (
	"math"
	"testing"
	"time"
)

// TestTimesThatClientsName: nothing wraps around, whatever the year.
func TestTimesThatClientsName(t *testing.T) {
	for _, c := range []struct {
		n    Nanos
		d    time.Duration
		want Nanos
	}{
		{5, 3, 8},
		{5, -3, 5},
		{5, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64},
		{-5, math.MaxInt64, math.MaxInt64 - 5},
		{math.MinInt64, 1, math.MinInt64 + 1},
		{0, math.MinInt64, 0},
	} {
		if got := c.n.After(c.d); got != c.want {
			t.Errorf("%d after %d: %d, want %d", c.d, c.n, got, c.want)
		}
	}
	for text, want := range map[string]Nanos{
		"1970-01-01T00:00:01Z": 1e9, "0001-01-01T00:00:00Z": math.MinInt64, "9999-12-31T23:59:59-23:59": math.MaxInt64,
		"2262-04-12T00:00:00Z": math.MaxInt64, "1600-01-01T00:00:00Z": math.MinInt64, "1969-12-31T23:59:59Z": -1e9,
	} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := NanosOf(at); got != want {
			t.Errorf("%s is %d, want %d", text, got, want)
		}
	}
}
