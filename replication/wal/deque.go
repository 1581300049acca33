package wal

// deque is a slice that gives up its front cheaply.
type deque[T any] struct {
	items []T
	head  int
}

func (d *deque[T]) len() int    { return len(d.items) - d.head }
func (d *deque[T]) at(i int) *T { return &d.items[d.head+i] }
func (d *deque[T]) push(v T)    { d.items = append(d.items, v) }

// dropFront forgets the first n items. It moves the rest down only when at least
// half of the slice is dead, so a drop costs O(1) amortised.
func (d *deque[T]) dropFront(n int) {
	clear(d.items[d.head : d.head+n])
	d.head += n
	if d.head > 64 && d.head >= len(d.items)/2 {
		n := copy(d.items, d.items[d.head:])
		clear(d.items[n:])
		d.items, d.head = d.items[:n], 0
	}
}

// truncate keeps the first n items.
func (d *deque[T]) truncate(n int) {
	clear(d.items[d.head+n:])
	d.items = d.items[:d.head+n]
}
