package wire

import "strconv"

// CRLF ends every line and every message.
const CRLF = "\r\n"

// Ready-made lines.
var (
	PingLine = []byte("PING\r\n")
	PongLine = []byte("PONG\r\n")
	OKLine   = []byte("+OK\r\n")
)

// AppendErr appends a -ERR line. Use the Text constants and the permission
// texts below.
func AppendErr(dst []byte, text string) []byte {
	dst = append(dst, "-ERR '"...)
	dst = append(dst, text...)
	return append(dst, "'\r\n"...)
}

// AppendTail appends what a MSG or HMSG has after its sid and a space.
func AppendTail(dst []byte, reply, header, payload []byte) []byte {
	if len(reply) > 0 {
		dst = append(dst, reply...)
		dst = append(dst, ' ')
	}
	if len(header) > 0 {
		dst = strconv.AppendInt(dst, int64(len(header)), 10)
		dst = append(dst, ' ')
	}
	dst = strconv.AppendInt(dst, int64(len(header)+len(payload)), 10)
	dst = append(dst, CRLF...)
	dst = append(dst, header...)
	dst = append(dst, payload...)
	return append(dst, CRLF...)
}

// AppendMsg appends a whole MSG, or HMSG when there is a header.
func AppendMsg(dst, subject, sid, reply, header, payload []byte) []byte {
	if len(header) > 0 {
		dst = append(dst, 'H')
	}
	dst = append(dst, "MSG "...)
	dst = append(dst, subject...)
	dst = append(dst, ' ')
	dst = append(dst, sid...)
	dst = append(dst, ' ')
	return AppendTail(dst, reply, header, payload)
}

// DeniedPublish is the text for a publish that permissions don't allow.
func DeniedPublish(subject string) string {
	return `Permissions Violation for Publish to "` + subject + `"`
}

// DeniedReply is the text for a publish whose reply subject isn't allowed.
func DeniedReply(reply string) string {
	return `Permissions Violation for Publish with Reply of "` + reply + `"`
}

// DeniedSubscribe is the text for a subscription that permissions don't allow.
func DeniedSubscribe(subject, queue string) string {
	s := `Permissions Violation for Subscription to "` + subject + `"`
	if queue != "" {
		s += ` using queue "` + queue + `"`
	}
	return s
}
