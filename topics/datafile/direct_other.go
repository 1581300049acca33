//go:build !linux

package datafile

import (
	"errors"
	"os"
)

// setDirect is for Linux.
func setDirect(_ *os.File, on bool) error {
	if on {
		return errors.ErrUnsupported
	}
	return nil
}
