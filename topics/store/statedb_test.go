package store

import (
	"errors"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestCommitOfUnknownOutcomeIsFatal has a commit fail after it reached the file:
// what the file shows then may be in the kernel's memory only, so it must neither
// be relied on nor tried again.
func TestCommitOfUnknownOutcomeIsFatal(t *testing.T) {
	d, err := openStateDB(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = d.commit(1, func(tx *bolt.Tx) error {
		tx.OnCommit(func() { panic(syscall.ENOSPC) })
		return nil
	})
	if err == nil || noSpace(err) {
		t.Errorf("the commit ended with %v, want an error that isn't tried again", err)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
}

// TestRefusedCommitIsTriedAgain has a commit fail before it reached the file.
func TestRefusedCommitIsTriedAgain(t *testing.T) {
	d, err := openStateDB(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.commit(1, func(*bolt.Tx) error { return syscall.ENOSPC }); !noSpace(err) {
		t.Errorf("the commit ended with %v", err)
	}
	if err := d.commit(2, func(*bolt.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := errors.Join(d.mark(), d.close()); err != nil {
		t.Error(err)
	}
}
