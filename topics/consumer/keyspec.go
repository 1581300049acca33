package consumer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/heraldmq/herald/topics"
)

// Key says where in a message its key is.
type Key struct {
	header  string   // value of this header
	pointer []string // of the JSON payload
	token   int      // of the subject, from 1
}

// keyMost bounds a key: a longer value is none.
const keyMost = 1024

// ParseKey reads "header:NAME", "json:/a/b" (a JSON pointer, RFC 6901; "json:" may be
// left out) or "token:N" (of the subject, from 1).
func ParseKey(text string) (Key, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch {
	case strings.HasPrefix(text, "/"):
		return pointerKey(text)
	case kind == "json" && strings.HasPrefix(rest, "/"):
		return pointerKey(rest)
	case kind == "header" && rest != "" && !strings.ContainsAny(rest, ": \t\r\n"):
		return Key{header: rest}, nil
	case kind == "token":
		if n, err := strconv.Atoi(rest); err == nil && n > 0 && n <= 1000 {
			return Key{token: n}, nil
		}
	}
	return Key{}, fmt.Errorf("%q is not a key: use header:NAME, json:/pointer/into/payload or token:N (of the subject, from 1)", text)
}

func pointerKey(text string) (Key, error) {
	parts := strings.Split(text[1:], "/")
	for i, p := range parts {
		for rest := p; ; {
			_, after, found := strings.Cut(rest, "~")
			if !found {
				break
			}
			if after == "" || after[0] != '0' && after[0] != '1' {
				return Key{}, fmt.Errorf("%q is not a JSON pointer: ~ is written ~0, / in a name ~1", text)
			}
			rest = after
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return Key{pointer: parts}, nil
}

// Of returns a message's key. It has none when the header, field or token isn't there,
// the payload isn't JSON, the field is null, an object or a list, or the key is longer
// than 1024 bytes. JSON values are compared as written: 1, 1.0 and "1" are three keys.
func (k *Key) Of(m *topics.Message) (key string, has bool) {
	switch {
	case k.header != "":
		key, has = headerOf(m.Header, k.header)
	case k.token > 0:
		key, has = tokenOf(m.Subject, k.token)
	default:
		key, has = fieldOf(m.Payload, k.pointer)
	}
	return key, has && len(key) <= keyMost
}

func tokenOf(subject string, n int) (string, bool) {
	for ; n > 1; n-- {
		var more bool
		if _, subject, more = strings.Cut(subject, "."); !more {
			return "", false
		}
	}
	first, _, _ := strings.Cut(subject, ".")
	return first, true
}

// headerOf returns the first value of a header. Names are matched as they are written.
func headerOf(block []byte, name string) (string, bool) {
	_, rest, _ := bytes.Cut(block, []byte("\r\n"))
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if len(line) > len(name) && line[len(name)] == ':' && string(line[:len(name)]) == name {
			return string(bytes.TrimSpace(line[len(name)+1:])), true
		}
	}
	return "", false
}

// fieldOf returns the text of a scalar in a JSON document.
func fieldOf(doc []byte, path []string) (string, bool) {
	if !json.Valid(doc) {
		return "", false
	}
	at := json.RawMessage(doc)
	for _, name := range path {
		switch at = bytes.TrimSpace(at); at[0] {
		case '{':
			var o map[string]json.RawMessage
			if json.Unmarshal(at, &o) != nil {
				return "", false
			}
			v, ok := o[name]
			if !ok {
				return "", false
			}
			at = v
		case '[':
			var list []json.RawMessage
			i, err := strconv.Atoi(name)
			if err != nil || name != strconv.Itoa(i) || json.Unmarshal(at, &list) != nil || i < 0 || i >= len(list) {
				return "", false
			}
			at = list[i]
		default:
			return "", false
		}
	}
	switch at = bytes.TrimSpace(at); at[0] {
	case '{', '[', 'n':
		return "", false
	}
	return string(at), true
}
