package catalogue

import (
	"encoding/json"

	"github.com/heraldmq/herald/topics"
)

// sentResult is a Result on its way to another node.
type sentResult struct {
	Topic         *Topic        `json:"topic,omitempty"`
	Created       bool          `json:"created,omitempty"`
	Advertisement *savedAdvert  `json:"advertisement,omitempty"`
	Kind          EventKind     `json:"kind,omitempty"` // of the event
	Revision      uint64        `json:"revision,omitempty"`
	Time          topics.Nanos  `json:"time,omitempty"`
	Fault         *topics.Fault `json:"fault,omitempty"`
	Operator      *Operator     `json:"operator,omitempty"`
	Tables        bool          `json:"tables,omitempty"`
	Mark          bool          `json:"mark,omitempty"`
}

// MarshalJSON encodes a result for another node.
func (r Result) MarshalJSON() ([]byte, error) {
	s := sentResult{Topic: r.Topic, Created: r.Created, Operator: r.Operator, Fault: r.Fault, Tables: r.Tables, Mark: r.Mark}
	a := r.Advertisement
	if r.Event != nil {
		s.Kind, s.Revision, s.Time = r.Event.Kind, r.Event.Revision, r.Event.Time
		a = r.Event.Advertisement
	}
	if a != nil {
		v := saved(a)
		s.Advertisement = &v
	}
	return json.Marshal(s)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Result) UnmarshalJSON(b []byte) error {
	var s sentResult
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*r = Result{Topic: s.Topic, Created: s.Created, Operator: s.Operator, Fault: s.Fault, Tables: s.Tables, Mark: s.Mark}
	if v := s.Advertisement; v != nil {
		a, fault := v.restore()
		if fault != nil {
			return fault
		}
		r.Advertisement = a
		if s.Kind != "" {
			r.Event = &Event{Kind: s.Kind, Revision: s.Revision, Time: s.Time, Advertisement: a}
		}
	}
	return nil
}

func (v *savedAdvert) restore() (*Advertisement, *topics.Fault) {
	a, fault := ParseAdvertisement(v.Body)
	if fault != nil {
		return nil, fault
	}
	a.Account, a.ID, a.Revision, a.Created, a.Changed, a.By = v.Account, v.ID, v.Revision, v.Created, v.Changed, v.By
	return a, nil
}
