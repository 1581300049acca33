//go:build !linux

package harness

import (
	"errors"
	"testing"
)

// Disk is a file system whose power can be cut; only Linux has one.
type Disk struct{ Dir string }

var errNoDisk = errors.New("cutting the power needs Linux")

// NewDisk returns an error.
func NewDisk(testing.TB, int) (*Disk, error) { return nil, errNoDisk }

// Cut returns an error.
func (d *Disk) Cut() error { return errNoDisk }

// Restore returns an error.
func (d *Disk) Restore() error { return errNoDisk }
