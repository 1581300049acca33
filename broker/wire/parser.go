package wire

import "bytes"

// Verb is what a protocol line asks for.
type Verb uint8

// The verbs a client may send. Info, OK and Err are tolerated.
const (
	None Verb = iota
	Connect
	Pub
	HPub
	Sub
	Unsub
	Ping
	Pong
	Info
	OK
	Err
)

var verbNames = [...]string{"", "CONNECT", "PUB", "HPUB", "SUB", "UNSUB", "PING", "PONG", "INFO", "+OK", "-ERR"}

func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return "?"
}

// Command is one parsed operation. All slices point into the read buffer.
// Fields that the verb doesn't have, as listed, mean nothing.
type Command struct {
	Verb    Verb
	Subject []byte // PUB, HPUB, SUB
	Reply   []byte // PUB, HPUB; may be empty
	Queue   []byte // SUB; may be empty
	SID     []byte // SUB, UNSUB
	Max     int    // UNSUB; 0 when absent
	Header  []byte // HPUB
	Payload []byte // PUB, HPUB
	// Tail is what follows "subject " up to and with the last CRLF: byte for
	// byte what a MSG carries after its sid. nil when the client used other
	// white space than single spaces, so that it must be written anew.
	Tail []byte
	Arg  []byte // the rest of the line of CONNECT, INFO, -ERR
}

// Limits bound what the parser accepts; 0 or less means no limit.
type Limits struct {
	ControlLine int // bytes of a line without its end
	Payload     int // bytes of a message, header included
}

// Next parses the first operation in buf into c and returns its length. When
// buf holds only a part of it the length is 0; need is then how long buf must
// get for the whole, or 0 when that isn't known yet.
func Next(buf []byte, c *Command, l Limits) (n, need int, err error) {
	if len(buf) == 0 {
		return 0, 0, nil
	}
	if n, ok := quick(buf, c, l); ok {
		return n, 0, nil
	}
	verb, args, short := verbOf(buf)
	if verb == None {
		if short {
			return 0, 0, nil
		}
		return 0, 0, ErrOperation
	}
	scan := buf
	if l.ControlLine > 0 && len(scan) > l.ControlLine+2 {
		scan = scan[:l.ControlLine+2]
	}
	end := bytes.IndexByte(scan, '\n')
	if end < 0 {
		if l.ControlLine > 0 && len(buf) > l.ControlLine+1 {
			return 0, 0, ErrControlLine
		}
		return 0, 0, nil
	}
	lineEnd, crlf := end, false
	if lineEnd > 0 && buf[lineEnd-1] == '\r' {
		lineEnd, crlf = lineEnd-1, true
	}
	if l.ControlLine > 0 && lineEnd > l.ControlLine {
		return 0, 0, ErrControlLine
	}
	*c = Command{Verb: verb}
	if args > lineEnd {
		args = lineEnd
	}
	line := buf[args:lineEnd]
	// A lone CR would end a line for some clients that are sent this subject.
	if bytes.IndexByte(line, '\r') >= 0 {
		return 0, 0, ErrArguments
	}
	switch verb {
	case Pub, HPub:
		return message(buf, c, args, lineEnd, end+1, crlf, l)
	case Sub:
		err = subscribe(line, c)
	case Unsub:
		err = unsubscribe(line, c)
	case Connect, Info, Err:
		c.Arg = bytes.TrimSpace(line)
	}
	if err != nil {
		return 0, 0, err
	}
	return end + 1, 0, nil
}

// verbOf returns the verb at the start of buf and where its arguments begin;
// short tells that more bytes might still make a verb.
func verbOf(buf []byte) (v Verb, args int, short bool) {
	switch buf[0] | 0x20 {
	case 'p':
		if v, args, short = word(buf, "PUB", Pub, true); v != None || short {
			return v, args, short
		}
		if v, args, short = word(buf, "PING", Ping, false); v != None || short {
			return v, args, short
		}
		return word(buf, "PONG", Pong, false)
	case 'h':
		return word(buf, "HPUB", HPub, true)
	case 's':
		return word(buf, "SUB", Sub, true)
	case 'u':
		return word(buf, "UNSUB", Unsub, true)
	case 'c':
		return word(buf, "CONNECT", Connect, true)
	case 'i':
		return word(buf, "INFO", Info, true)
	case '+' | 0x20:
		return word(buf, "+OK", OK, false)
	case '-' | 0x20:
		return word(buf, "-ERR", Err, false)
	}
	return None, 0, false
}

// word checks for one verb; with arguments, white space must follow it.
func word(buf []byte, name string, v Verb, arguments bool) (Verb, int, bool) {
	n := min(len(buf), len(name))
	for i := 0; i < n; i++ {
		b := buf[i]
		if b >= 'a' && b <= 'z' {
			b -= 'a' - 'A'
		}
		if b != name[i] {
			return None, 0, false
		}
	}
	if n < len(name) {
		return None, 0, true
	}
	if !arguments {
		return v, n, false
	}
	if len(buf) == n {
		return None, 0, true
	}
	if !blank(buf[n]) {
		return None, 0, false
	}
	return v, n + 1, false
}

func blank(b byte) bool { return b == ' ' || b == '\t' }

// token returns the next token of line from i and where it ends.
func token(line []byte, i int) (start, end int) {
	for i < len(line) && blank(line[i]) {
		i++
	}
	start = i
	for i < len(line) && !blank(line[i]) {
		i++
	}
	return start, i
}

// quick parses a whole PUB or HPUB that is written as clients write it: in
// capitals, with single spaces. Everything else, errors too, is left to the
// patient way, which tells why.
func quick(buf []byte, c *Command, l Limits) (n int, ok bool) {
	if len(buf) < 8 {
		return 0, false
	}
	i, sizes := 4, 1
	switch {
	case buf[0] == 'P' && buf[1] == 'U' && buf[2] == 'B' && buf[3] == ' ':
	case buf[0] == 'H' && buf[1] == 'P' && buf[2] == 'U' && buf[3] == 'B' && buf[4] == ' ':
		i, sizes = 5, 2
	default:
		return 0, false
	}
	most := len(buf)
	if l.ControlLine > 0 {
		most = min(most, l.ControlLine)
	}
	var ends [4]int // of the tokens
	count, start := 0, i
	for ; i < most; i++ {
		b := buf[i]
		if b > ' ' {
			continue
		}
		if i == start || count == len(ends) {
			return 0, false
		}
		ends[count] = i
		count++
		start = i + 1
		if b != ' ' {
			break
		}
	}
	if i+1 >= most || buf[i] != '\r' || buf[i+1] != '\n' || count != sizes+1 && count != sizes+2 {
		return 0, false
	}
	total, plain := size(buf[ends[count-2]+1 : i])
	if !plain {
		return 0, false
	}
	body, header := i+2, 0
	if sizes == 2 {
		if header, plain = size(buf[ends[count-3]+1 : ends[count-2]]); !plain || header == 0 || header > total {
			return 0, false
		}
	}
	n = body + total + 2
	if l.Payload > 0 && total > l.Payload || len(buf) < n || buf[n-2] != '\r' || buf[n-1] != '\n' {
		return 0, false
	}
	c.Verb, c.Subject = Pub, buf[3+sizes:ends[0]]
	c.Header, c.Reply = nil, nil
	if sizes == 2 {
		c.Verb, c.Header = HPub, buf[body:body+header]
	}
	if count == sizes+2 {
		c.Reply = buf[ends[0]+1 : ends[1]]
	}
	c.Payload, c.Tail = buf[body+header:n-2], buf[ends[0]+1:n]
	return n, true
}

// message parses PUB and HPUB: the line in buf[args:lineEnd], the bytes from
// body on.
func message(buf []byte, c *Command, args, lineEnd, body int, canonical bool, l Limits) (n, need int, err error) {
	line := buf[:lineEnd]
	var at [5][2]int
	count := 0
	for i := args; ; {
		start, end := token(line, i)
		if start == end {
			break
		}
		if count == len(at) {
			return 0, 0, ErrArguments
		}
		// One blank, and that a space, before each token keeps the line as a
		// MSG would have it.
		if start != i && (start != i+1 || line[i] != ' ') || start == i && count > 0 {
			canonical = false
		}
		at[count] = [2]int{start, end}
		count++
		i = end
	}
	sizes := 1
	if c.Verb == HPub {
		sizes = 2
	}
	if count != sizes+1 && count != sizes+2 {
		return 0, 0, ErrArguments
	}
	arg := func(i int) []byte { return line[at[i][0]:at[i][1]] }
	c.Subject = arg(0)
	if count == sizes+2 {
		c.Reply = arg(1)
	}
	if control(c.Subject) || control(c.Reply) {
		return 0, 0, ErrArguments
	}
	total, plain := size(arg(count - 1))
	header, hplain := 0, true
	if sizes == 2 {
		header, hplain = size(arg(count - 2))
	}
	if total < 0 || header < 0 || header > total {
		return 0, 0, ErrArguments
	}
	if l.Payload > 0 && total > l.Payload {
		return 0, 0, ErrPayload
	}
	end := body + total + 2
	if len(buf) < end {
		return 0, end, nil
	}
	if buf[end-2] != '\r' || buf[end-1] != '\n' {
		return 0, 0, ErrOperation
	}
	c.Payload = buf[body+header : end-2]
	if header > 0 {
		c.Header = buf[body : body+header]
	} else if c.Verb == HPub {
		c.Verb, canonical = Pub, false
	}
	if canonical && plain && hplain && at[count-1][1] == lineEnd {
		c.Tail = buf[at[0][1]+1 : end]
	}
	return end, 0, nil
}

// size parses a decimal; -1 when it isn't one. plain tells that it is written
// as it would be printed.
func size(b []byte) (n int, plain bool) {
	if len(b) == 0 || len(b) > 10 {
		return -1, false
	}
	for _, d := range b {
		if d < '0' || d > '9' {
			return -1, false
		}
		n = n*10 + int(d-'0')
	}
	if n > 1<<31-1 {
		return -1, false
	}
	return n, len(b) == 1 || b[0] != '0'
}

// control tells whether b has a control character. Clients that cut their lines
// at any white space would take what follows one for the next argument.
func control(b []byte) bool {
	for _, c := range b {
		if c < ' ' {
			return true
		}
	}
	return false
}

func fields(line []byte, dst [][]byte) (n int, ok bool) {
	for i := 0; ; n++ {
		start, end := token(line, i)
		if start == end {
			return n, true
		}
		if n == len(dst) {
			return n, false
		}
		dst[n] = line[start:end]
		i = end
	}
}

func subscribe(line []byte, c *Command) error {
	var f [3][]byte
	n, ok := fields(line, f[:])
	switch {
	case ok && n == 2:
		c.Subject, c.SID = f[0], f[1]
	case ok && n == 3:
		c.Subject, c.Queue, c.SID = f[0], f[1], f[2]
	default:
		return ErrArguments
	}
	return nil
}

func unsubscribe(line []byte, c *Command) error {
	var f [2][]byte
	n, ok := fields(line, f[:])
	if !ok || n == 0 {
		return ErrArguments
	}
	c.SID = f[0]
	if n == 2 {
		if c.Max, _ = size(f[1]); c.Max < 0 {
			// A maximum that isn't a number is none, as clients rely on.
			c.Max = 0
		}
	}
	return nil
}
