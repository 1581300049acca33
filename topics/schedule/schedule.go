// Package schedule reads the patterns of scheduled messages (the header
// Nats-Schedule) and tells when they are due.
//
//	@at 2026-11-30T12:00:00Z      once
//	@every 5s                     from a second on, in whole seconds
//	0 30 9 * * mon-fri            cron with a field for seconds
//	@hourly @daily @weekly @monthly @yearly (@midnight, @annually)
//
// Everything is a pure function of its arguments, but for time zones, which are
// looked up in the system's database and else in the one built in.
package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // where the system has none
)

// Errors of Parse.
var (
	ErrPattern = errors.New("schedule pattern is invalid")
	ErrZone    = errors.New("schedule time zone is invalid")
)

// Schedule is a parsed pattern. It is immutable.
type Schedule struct {
	at    time.Time
	every time.Duration
	cron  [fields]set // used when every is 0 and at is zero
	zone  *time.Location
}

// set has bit n for each value n of a cron field.
type set uint64

// The fields of a cron pattern.
const (
	seconds = iota
	minutes
	hours
	days
	months
	weekdays
	fields
)

var bounds = [fields]struct{ low, high int }{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}}

var words = map[string]string{
	"@yearly": "0 0 0 1 1 *", "@annually": "0 0 0 1 1 *", "@monthly": "0 0 0 1 * *", "@weekly": "0 0 0 * * 0",
	"@daily": "0 0 0 * * *", "@midnight": "0 0 0 * * *", "@hourly": "0 0 * * * *",
}

var names = [fields]string{months: "jan feb mar apr may jun jul aug sep oct nov dec", weekdays: "sun mon tue wed thu fri sat"}

// Parse reads a pattern. A zone may only be given for cron patterns; "" is UTC.
func Parse(pattern, zone string) (*Schedule, error) {
	s := &Schedule{zone: time.UTC}
	word, rest, _ := strings.Cut(pattern, " ")
	switch {
	case (word == "@at" || word == "@every") && zone != "":
		return nil, fmt.Errorf("%w: %s has no time zone", ErrPattern, word)
	case word == "@at":
		at, err := time.Parse(time.RFC3339, rest)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPattern, err)
		}
		s.at = at.UTC()
		return s, nil
	case word == "@every":
		d, err := time.ParseDuration(rest)
		if err != nil || d < time.Second {
			return nil, fmt.Errorf("%w: @every takes a duration of at least a second", ErrPattern)
		}
		s.every = d.Truncate(time.Second)
		return s, nil
	}
	if full, ok := words[pattern]; ok {
		pattern = full
	}
	list := strings.Fields(pattern)
	if len(list) != fields {
		return nil, fmt.Errorf("%w: cron takes six fields", ErrPattern)
	}
	for i, f := range list {
		v, err := parseField(strings.ToLower(f), i)
		if err != nil {
			return nil, err
		}
		s.cron[i] = v
	}
	if s.cron[weekdays]&(1<<7) != 0 {
		s.cron[weekdays] |= 1 // Sunday has two numbers
	}
	if zone != "" {
		loc, err := time.LoadLocation(zone)
		if err != nil || zone == "Local" {
			return nil, fmt.Errorf("%w: %q", ErrZone, zone)
		}
		s.zone = loc
	}
	return s, nil
}

func parseField(text string, field int) (set, error) {
	var out set
	for _, item := range strings.Split(text, ",") {
		span, stepText, stepped := strings.Cut(item, "/")
		low, high := bounds[field].low, bounds[field].high
		if field == weekdays {
			high = 6
		}
		step := 1
		if span != "*" && span != "?" {
			from, to, ranged := strings.Cut(span, "-")
			var err error
			if low, err = number(from, field); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if high, err = number(to, field); err != nil {
					return 0, err
				}
			case !stepped:
				high = low
			}
		}
		if stepped {
			n, err := strconv.Atoi(stepText)
			if err != nil || n < 1 {
				return 0, fmt.Errorf("%w: step %q", ErrPattern, stepText)
			}
			step = n
		}
		if low > high {
			return 0, fmt.Errorf("%w: range %q", ErrPattern, span)
		}
		for v := low; v <= high; v += step {
			out |= 1 << v
		}
	}
	return out, nil
}

func number(text string, field int) (int, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < bounds[field].low || n > bounds[field].high {
			return 0, fmt.Errorf("%w: %d is out of range", ErrPattern, n)
		}
		return n, nil
	}
	for i, name := range strings.Fields(names[field]) {
		if text == name {
			return i + bounds[field].low, nil
		}
	}
	return 0, fmt.Errorf("%w: %q", ErrPattern, text)
}

// Once tells whether the schedule is due only once.
func (s *Schedule) Once() bool { return !s.at.IsZero() }

// Next returns the first due time after t, in UTC; false when there is none. One
// that is due once is due at its time, whatever t is.
func (s *Schedule) Next(t time.Time) (time.Time, bool) {
	switch {
	case s.Once():
		return s.at, true
	case s.every > 0:
		return t.UTC().Truncate(time.Second).Add(s.every), true
	}
	return s.nextCron(t)
}

// searchYears bounds the search for patterns like "February 30th".
const searchYears = 9

func (s *Schedule) nextCron(after time.Time) (time.Time, bool) {
	t := after.In(s.zone).Truncate(time.Second).Add(time.Second)
	last := t.Year() + searchYears
	has := func(field, v int) bool { return s.cron[field]&(1<<v) != 0 }
	for t.Year() <= last {
		switch {
		case !has(months, int(t.Month())):
			t = time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, s.zone)
		case !s.day(t):
			t = time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, s.zone)
		case !has(hours, t.Hour()):
			t = later(t, time.Date(t.Year(), t.Month(), t.Day(), t.Hour()+1, 0, 0, 0, s.zone), time.Hour)
		case !has(minutes, t.Minute()):
			t = t.Truncate(time.Minute).Add(time.Minute)
		case !has(seconds, t.Second()):
			t = t.Add(time.Second)
		default:
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// later guards against an hour that comes twice: the clock must go on.
func later(now, next time.Time, step time.Duration) time.Time {
	if next.After(now) {
		return next
	}
	return now.Add(step)
}

// day tells whether a day is meant: by the day of the month and by the weekday,
// or by either where both are restricted.
func (s *Schedule) day(t time.Time) bool {
	const anyDay, anyWeekday = set(1)<<32 - 2, set(1)<<7 - 1
	inMonth := s.cron[days]&(1<<t.Day()) != 0
	inWeek := s.cron[weekdays]&(1<<int(t.Weekday())) != 0
	if s.cron[days] == anyDay || s.cron[weekdays]&anyWeekday == anyWeekday {
		return inMonth && inWeek
	}
	return inMonth || inWeek
}
