package expr

import (
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/heraldmq/herald/topics/value"
)

// Message is what an expression is evaluated over. Each method is called at most
// once an evaluation and only when the expression asks. Payload may fail: then so
// does the evaluation.
type Message interface {
	Payload() (value.Value, error)
	Subject() string
	Header() []byte // the block "NATS/1.0\r\n…", or empty
	Key() value.Value
	Time() int64 // nanoseconds since 1970
	Sequence() uint64
	Now() int64 // the logged clock
}

// activation gives an evaluation the names it asks for.
type activation struct {
	m       Message
	payload ref.Val // once asked for
	failed  error   // what came of asking for it, where that was done
	err     error   // why the payload can't be had, once it is missed
}

func (a *activation) Parent() interpreter.Activation { return nil }

func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "this":
		if a.payload == nil {
			a.ask()
		}
		return a.payload, true
	case "subject":
		return types.String(a.m.Subject()), true
	case "tokens":
		return types.NewStringList(adapter{}, strings.Split(a.m.Subject(), ".")), true
	case "header":
		first := map[string]string{}
		eachHeader(a.m.Header(), func(k, v string) {
			if _, ok := first[k]; !ok {
				first[k] = v
			}
		})
		return types.NewStringStringMap(adapter{}, first), true
	case "headers":
		all := map[string][]string{}
		eachHeader(a.m.Header(), func(k, v string) { all[k] = append(all[k], v) })
		return types.NewDynamicMap(adapter{}, all), true
	case "key":
		return fromValue(a.m.Key()), true
	case "time":
		return types.Timestamp{Time: time.Unix(0, a.m.Time()).UTC()}, true
	case "now":
		return types.Timestamp{Time: time.Unix(0, a.m.Now()).UTC()}, true
	case "seq":
		return types.Int(a.m.Sequence()), true
	}
	return nil, false
}

// ask asks for the payload, unless that was done.
func (a *activation) ask() {
	v, err := value.Value{}, a.failed
	if err == nil {
		v, err = a.m.Payload()
	}
	if err != nil {
		a.err, a.payload = err, types.WrapErr(err)
		return
	}
	a.payload = fromValue(v)
}

// eachHeader calls f for each line of a header block behind the first. Names keep
// their case, as everywhere in NATS.
func eachHeader(block []byte, f func(k, v string)) {
	lines := strings.Split(string(block), "\r\n")
	for _, line := range lines[min(1, len(lines)):] {
		if k, v, ok := strings.Cut(line, ":"); ok {
			f(k, strings.TrimSpace(v))
		}
	}
}
