package yaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// scan reads flow style from a text.
type scan struct {
	text string
	at   int
	open bool // failed only because the text ended
}

func (s *scan) ended() error {
	s.open = true
	return errors.New("a bracket or quote is not closed")
}

// space skips white space and comments.
func (s *scan) space() {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == ' ' || c == '\n' || c == '\t':
			s.at++
		case c == '#' && s.at > 0 && strings.IndexByte(" \n\t", s.text[s.at-1]) >= 0:
			end := strings.IndexByte(s.text[s.at:], '\n')
			if end < 0 {
				end = len(s.text) - s.at
			}
			s.at += end
		default:
			return
		}
	}
}

func (s *scan) value(depth int) (any, error) {
	if depth > depthMax {
		return nil, fmt.Errorf("nested more than %d deep", depthMax)
	}
	if s.space(); s.at >= len(s.text) {
		return nil, s.ended()
	}
	switch s.text[s.at] {
	case '{':
		return s.mapping(depth)
	case '[':
		return s.sequence(depth)
	case '"', '\'':
		return s.quoted()
	case '&', '*', '!', '%', '@', '`', '|', '>':
		return nil, fmt.Errorf("%q can't start a value; quote it", s.text[s.at])
	}
	return scalar(s.plain()), nil
}

// plain reads up to what ends plain text inside brackets.
func (s *scan) plain() string {
	start := s.at
	for s.at < len(s.text) {
		c := s.text[s.at]
		if c == ',' || c == ']' || c == '}' || c == '{' || c == '[' || c == '\n' {
			break
		}
		if c == ':' && (s.at+1 == len(s.text) || strings.IndexByte(" ,]}\n", s.text[s.at+1]) >= 0) {
			break
		}
		if c == '#' && s.at > start && s.text[s.at-1] == ' ' {
			break
		}
		s.at++
	}
	return strings.TrimRight(s.text[start:s.at], " ")
}

func (s *scan) sequence(depth int) (any, error) {
	s.at++
	list := []any{}
	for {
		if s.space(); s.at >= len(s.text) {
			return nil, s.ended()
		}
		if s.text[s.at] == ']' {
			s.at++
			return list, nil
		}
		before := s.at
		v, err := s.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if s.at == before {
			return nil, fmt.Errorf("%q is not expected here", s.text[s.at])
		}
		list = append(list, v)
		if err := s.comma(']'); err != nil {
			return nil, err
		}
	}
}

func (s *scan) mapping(depth int) (any, error) {
	s.at++
	m := map[string]any{}
	for {
		if s.space(); s.at >= len(s.text) {
			return nil, s.ended()
		}
		if s.text[s.at] == '}' {
			s.at++
			return m, nil
		}
		var key string
		if c := s.text[s.at]; c == '"' || c == '\'' {
			var err error
			if key, err = s.quoted(); err != nil {
				return nil, err
			}
		} else if key = s.plain(); key == "" {
			return nil, fmt.Errorf("%q is not a key", s.text[s.at])
		}
		if _, twice := m[key]; twice {
			return nil, fmt.Errorf("%q is there twice", key)
		}
		if s.space(); s.at >= len(s.text) {
			return nil, s.ended()
		}
		var v any
		if s.text[s.at] == ':' {
			s.at++
			if s.space(); s.at >= len(s.text) {
				return nil, s.ended()
			}
			if c := s.text[s.at]; c != ',' && c != '}' {
				var err error
				if v, err = s.value(depth + 1); err != nil {
					return nil, err
				}
			}
		}
		m[key] = v
		if err := s.comma('}'); err != nil {
			return nil, err
		}
	}
}

// comma moves over a comma; the closing bracket may follow instead.
func (s *scan) comma(closing byte) error {
	if s.space(); s.at >= len(s.text) {
		return s.ended()
	}
	switch s.text[s.at] {
	case ',':
		s.at++
		return nil
	case closing:
		return nil
	}
	return fmt.Errorf("%q where a comma or %q is expected", s.text[s.at], closing)
}

// quoted reads quoted text; a line break in it is a space.
func (s *scan) quoted() (string, error) {
	quote := s.text[s.at]
	start := s.at
	for i := start + 1; i < len(s.text); i++ {
		switch {
		case quote == '"' && s.text[i] == '\\':
			i++
		case s.text[i] == quote && quote == '\'' && i+1 < len(s.text) && s.text[i+1] == quote:
			i++
		case s.text[i] == quote:
			s.at = i + 1
			raw := strings.ReplaceAll(s.text[start:s.at], "\n", " ")
			if quote == '\'' {
				return strings.ReplaceAll(raw[1:len(raw)-1], "''", "'"), nil
			}
			var v string
			if err := json.Unmarshal([]byte(raw), &v); err != nil {
				return "", fmt.Errorf("%s: only JSON's escapes are supported in double quotes", raw)
			}
			return v, nil
		}
	}
	return "", s.ended()
}

// scalar gives plain text its type, by the rules of YAML 1.2.
func scalar(text string) any {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return nil
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	}
	if strings.IndexByte("+-.0123456789", text[0]) < 0 {
		return text
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if strings.Trim(text, "+-.eE0123456789") != "" {
		return text
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return text
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
}
