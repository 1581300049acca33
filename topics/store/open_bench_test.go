package store

import "testing"

func BenchmarkOpenEmpty(b *testing.B) {
	for b.Loop() {
		s, err := Open(Options{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
