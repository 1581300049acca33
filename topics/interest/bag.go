package interest

import "slices"

// bagScanMax is how many values are searched one by one before a map of their
// positions is kept.
const bagScanMax = 16

// bag is an unordered set of values that is read far more often than changed:
// the list is what readers copy.
type bag[V comparable] struct {
	list []V
	at   map[V]int // positions in list; nil while it is short
}

func (b *bag[V]) find(v V) int {
	if b.at == nil {
		return slices.Index(b.list, v)
	}
	if i, ok := b.at[v]; ok {
		return i
	}
	return -1
}

func (b *bag[V]) add(v V) bool {
	if b.find(v) >= 0 {
		return false
	}
	b.list = append(b.list, v)
	switch {
	case b.at != nil:
		b.at[v] = len(b.list) - 1
	case len(b.list) > bagScanMax:
		b.at = make(map[V]int, len(b.list))
		for i, o := range b.list {
			b.at[o] = i
		}
	}
	return true
}

func (b *bag[V]) remove(v V) bool {
	i := b.find(v)
	if i < 0 {
		return false
	}
	last := len(b.list) - 1
	moved := b.list[last]
	b.list[i] = moved
	var zero V
	b.list[last] = zero
	b.list = b.list[:last]
	if b.at != nil {
		b.at[moved] = i
		delete(b.at, v)
	}
	if last == 0 {
		b.list, b.at = nil, nil
	}
	return true
}

func (b *bag[V]) any(test func(V) bool) bool {
	if test == nil {
		return len(b.list) > 0
	}
	return slices.ContainsFunc(b.list, test)
}

func (b *bag[V]) each(f func(V) bool) bool {
	for _, v := range b.list {
		if !f(v) {
			return false
		}
	}
	return true
}
