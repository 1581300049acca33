package operate

import (
	"fmt"
	"slices"

	"github.com/heraldmq/herald/operators/engine"
)

// sized waits until each replica on the node tells how big the step's state is, which is what
// there is of it; and together with the engine's own it is all. The step has no timers.
func (p *place) sized(operator, step string) {
	p.Helper()
	o := p.Operator("A", operator)
	all := int64(0)
	for _, k := range instances(o) {
		u := p.ops.unit(k, o)
		if u == nil {
			continue
		}
		keys := int64(0)
		wait(p, "the size of step "+step, func() (bool, string) {
			st := u.store.Load()
			if st == nil {
				return false, "no state"
			}
			s, err := st.Snapshot()
			if err != nil {
				return false, err.Error()
			}
			defer s.Close()
			r := u.report()
			want, own := StateSize{Step: step}, StateSize{}
			err = s.Scan(nil, nil, func(key, v []byte) bool {
				at := &own
				if k, ok := engine.ParseStateKey(key); ok && k.Node == o.IDs[step] {
					at = &want
				}
				at.Keys++
				at.Bytes += int64(len(key) + len(v))
				return true
			})
			if err != nil {
				return false, err.Error()
			}
			sizes := []StateSize{own, want}
			if keys = want.Keys; keys == 0 {
				sizes = sizes[:1] // an instance without a key
			}
			return r.Seq == s.Seq() && slices.Equal(r.Sizes, sizes) && r.Keys == own.Keys+want.Keys && r.Bytes == own.Bytes+want.Bytes,
				fmt.Sprintf("%+v, in all %d, %d; wanted %+v", r.Sizes, r.Keys, r.Bytes, sizes)
		})
		all += keys
	}
	if all == 0 {
		p.Errorf("step %s of %s has no state", step, operator)
	}
}
