package steps

import (
	"bytes"
	"strings"
)

// header returns the first value of a header in a block, "" without one.
func header(block []byte, name string) string {
	for len(block) > 0 {
		line, rest, _ := bytes.Cut(block, []byte("\r\n"))
		block = rest
		if len(line) > len(name) && line[len(name)] == ':' && string(line[:len(name)]) == name {
			return strings.TrimSpace(string(line[len(name)+1:]))
		}
	}
	return ""
}
