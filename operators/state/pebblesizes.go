package state

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// put notes where the tree stands once a batch is in it.
func (a standingAt) put(b *pebble.Batch) error {
	at := a.append()
	return errors.Join(b.Set(pebbleAt, at, nil), b.Set(pebbleSteps, a.steps.append(at), nil))
}

// steps are the sizes that were noted with where the tree stands, or what there is.
func (t *tree) steps(at []byte) (s sizes, err error) {
	v, closer, err := t.db.Get(pebbleSteps)
	if err == nil {
		noted, ok := parseSizes(v[min(len(at), len(v)):])
		ok = ok && bytes.HasPrefix(v, at)
		if err := closer.Close(); err != nil || ok {
			return noted, err
		}
	} else if !errors.Is(err, pebble.ErrNotFound) {
		return nil, err
	}
	i, err := t.db.NewIter(&pebble.IterOptions{LowerBound: dataKey(nil), UpperBound: pebbleEnd})
	if err != nil {
		return nil, err
	}
	for ok := i.First(); ok; ok = i.Next() {
		s.more(i.Key()[1:], len(i.Value()))
	}
	return s, errors.Join(i.Error(), i.Close())
}
