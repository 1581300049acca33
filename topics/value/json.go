package value

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
)

// AppendJSON appends a value as JSON: without spaces, fields in their order, a
// number from JSON as it came. NaN and infinities, which JSON doesn't have, become
// null. The same value gives the same bytes on every machine.
func AppendJSON(dst []byte, v Value) []byte {
	switch v.kind {
	case Null:
		return append(dst, "null"...)
	case Bool:
		return strconv.AppendBool(dst, v.num != 0)
	case Int:
		return strconv.AppendInt(dst, int64(v.num), 10)
	case Uint:
		return strconv.AppendUint(dst, v.num, 10)
	case Double:
		if v.str != "" {
			return append(dst, v.str...)
		}
		return appendFloat(dst, math.Float64frombits(v.num))
	case Decimal:
		if v.str != "" {
			return append(dst, v.str...)
		}
		return append(dst, decimalText(v.ref.(*apd.Decimal))...)
	case String:
		return appendString(dst, v.str)
	case Bytes:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, []byte(v.str))
		return append(dst, '"')
	case Time:
		dst = append(dst, '"')
		dst = time.Unix(0, int64(v.num)).UTC().AppendFormat(dst, time.RFC3339Nano)
		return append(dst, '"')
	case Duration:
		return appendString(dst, time.Duration(v.num).String())
	case List:
		dst = append(dst, '[')
		for i, item := range v.List() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendJSON(dst, item)
		}
		return append(dst, ']')
	}
	o := v.ref.(*fields).whole()
	dst = append(dst, '{')
	for i, name := range o.names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, name), ':')
		dst = AppendJSON(dst, o.values[i])
	}
	return append(dst, '}')
}

// appendFloat writes the fewest digits that read back as f, as JavaScript does.
func appendFloat(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, 64)
}

// decimalText writes a decimal without an exponent unless that would be long.
func decimalText(d *apd.Decimal) string {
	if d.Exponent > 0 && d.Exponent <= 40 || d.Exponent <= 0 && d.Exponent >= -400 {
		return d.Text('f')
	}
	return d.Text('E')
}

const hexDigits = "0123456789abcdef"

func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[start:i]...), `\ufffd`...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

// String returns the value as JSON, for people.
func (v Value) String() string { return string(AppendJSON(nil, v)) }

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) { return AppendJSON(nil, v), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(b []byte) error {
	parsed, err := Parse(b, Options{})
	if err != nil {
		return fmt.Errorf("read a value: %w", err)
	}
	*v = parsed
	return nil
}
