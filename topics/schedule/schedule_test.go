package schedule

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNextDueTimes(t *testing.T) {
	for _, tt := range []struct{ pattern, zone, after, want string }{
		{"@at 2026-11-30T12:00:00Z", "", "2030-01-01T00:00:00Z", "2026-11-30T12:00:00Z"},
		{"@at 2026-11-30T12:00:00+02:00", "", "2020-01-01T00:00:00Z", "2026-11-30T10:00:00Z"},
		{"@every 5s", "", "2026-11-30T12:00:00.7Z", "2026-11-30T12:00:05Z"},
		{"@hourly", "", "2026-11-30T12:00:00Z", "2026-11-30T13:00:00Z"},
		{"@daily", "", "2026-11-30T12:00:00Z", "2026-12-01T00:00:00Z"},
		{"@weekly", "", "2026-11-30T12:00:00Z", "2026-12-06T00:00:00Z"},
		{"@monthly", "", "2026-11-30T12:00:00Z", "2026-12-01T00:00:00Z"},
		{"@yearly", "", "2026-11-30T12:00:00Z", "2027-01-01T00:00:00Z"},
		{"0 30 * * * *", "", "2026-11-30T12:30:00Z", "2026-11-30T13:30:00Z"},
		{"*/15 * * * * *", "", "2026-11-30T12:00:44Z", "2026-11-30T12:00:45Z"},
		{"0 0 9 * * mon-fri", "", "2026-12-04T10:00:00Z", "2026-12-07T09:00:00Z"},
		{"0 0 0 29 feb *", "", "2026-11-30T12:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 0 13 * 5", "", "2026-11-30T12:00:00Z", "2026-12-04T00:00:00Z"},
		{"0 0 0 * * 7", "", "2026-11-30T12:00:00Z", "2026-12-06T00:00:00Z"},
		{"0 0 9 * * *", "America/New_York", "2026-11-30T12:00:00Z", "2026-11-30T14:00:00Z"},
		{"0 30 2 * * *", "America/New_York", "2026-03-08T05:00:00Z", "2026-03-09T06:30:00Z"}, // no 02:30 that night
	} {
		s, err := Parse(tt.pattern, tt.zone)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		after, _ := time.Parse(time.RFC3339, tt.after)
		got, ok := s.Next(after)
		if !ok || got.Format(time.RFC3339) != tt.want {
			t.Errorf("%s after %s: got %s, want %s", tt.pattern, tt.after, got.Format(time.RFC3339), tt.want)
		}
	}
	if s, err := Parse("0 0 0 30 2 *", ""); err != nil {
		t.Error(err)
	} else if at, ok := s.Next(time.Now()); ok {
		t.Errorf("February has a 30th: %s", at)
	}
}

func TestBadPatterns(t *testing.T) {
	for pattern, zone := range map[string]string{
		"": "", "junk": "", "@at nope": "", "@every 1ms": "", "@every x": "", "* * * * *": "", "60 * * * * *": "",
		"* * * * 0 *": "", "5-1 * * * * *": "", "*/0 * * * * *": "", "x * * * * *": "", "@every 5s": "Europe/Paris",
		"@at 2026-11-30T12:00:00Z": "Europe/Paris",
	} {
		if _, err := Parse(pattern, zone); !errors.Is(err, ErrPattern) {
			t.Errorf("%q in %q: %v", pattern, zone, err)
		}
	}
	if _, err := Parse("@daily", "Nowhere/X"); !errors.Is(err, ErrZone) {
		t.Errorf("got %v", err)
	}
}

func TestNextIsTheFirstDueSecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.SampledFrom([]string{"*", "*/7", "3", "10-20/3", "1,59"})
		s, err := Parse(field.Draw(t, "s")+" "+field.Draw(t, "m")+" * * * *", "")
		if err != nil {
			t.Fatal(err)
		}
		after := time.Unix(rapid.Int64Range(0, 1<<31).Draw(t, "after"), 0).UTC()
		got, ok := s.Next(after)
		for at := after.Add(time.Second); ; at = at.Add(time.Second) {
			if s.cron[seconds]&(1<<at.Second()) != 0 && s.cron[minutes]&(1<<at.Minute()) != 0 {
				if !ok || !got.Equal(at) {
					t.Fatalf("got %s, want %s", got, at)
				}
				return
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("*/5 1-3,7 * * jan mon", "Europe/Paris", int64(1e9))
	f.Fuzz(func(t *testing.T, pattern, zone string, after int64) {
		s, err := Parse(pattern, zone)
		if err != nil {
			return
		}
		at := time.Unix(after%(1<<40), 0)
		if next, ok := s.Next(at); ok && !s.Once() && !next.After(at) {
			t.Fatalf("%q after %s is due at %s", pattern, at, next)
		}
	})
}
