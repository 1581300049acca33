package topics

import "fmt"

// Fault is a refusal that is told to a client. It carries the JetStream error
// code (err_code), which clients branch on, the HTTP-like status, and the text
// they know. It is a value: results of applied entries are compared between
// replicas.
type Fault struct {
	Status  int    // HTTP-like: 400, 404, 500, 503
	ErrCode uint16 // JetStream err_code, 10000..10999
	Text    string // description, as nats-server words it
}

func (f *Fault) Error() string { return fmt.Sprintf("%s (%d)", f.Text, f.ErrCode) }

// Is makes errors.Is compare by code, since some texts carry numbers.
func (f *Fault) Is(target error) bool {
	t, ok := target.(*Fault)
	return ok && t.ErrCode == f.ErrCode
}

// NewFault returns a fault with a formatted text.
func NewFault(status int, code uint16, format string, args ...any) *Fault {
	return &Fault{Status: status, ErrCode: code, Text: fmt.Sprintf(format, args...)}
}
