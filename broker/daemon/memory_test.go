package daemon

import "testing"

func TestHeadroomIsBounded(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 100, 20 << 20: 100, 256 << 20: 100, 512 << 20: 50, 1 << 30: 25, 64 << 30: 25,
	} {
		if got := percentFor(live, false); got != want {
			t.Errorf("with %d MiB alive the heap may grow by %d %%, want %d", live>>20, got, want)
		}
	}
}

func TestABusySmallHeapMayGrowByMore(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 1600, 4 << 20: 1600, 16 << 20: 400, 64 << 20: 100, 256 << 20: 100, 1 << 30: 25,
	} {
		if got := percentFor(live, true); got != want {
			t.Errorf("with %d MiB alive the heap may grow by %d %%, want %d", live>>20, got, want)
		}
	}
}
