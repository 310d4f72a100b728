package main

import (
	"os"

	"github.com/fenceline/fenceline/topo"
)

// checkTarget refuses a file that could not be written once all is measured, and the one that the results are printed into.
func checkTarget(flag, path string) error {
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
		for _, f := range []*os.File{os.Stdout, os.Stderr} {
			if out, err := f.Stat(); err == nil && os.SameFile(st, out) {
				return usagef(flag, path, "what this program prints goes into it: name another file")
			}
		}
	}
	if err := topo.CheckTarget(path); err != nil {
		return &usageError{Flag: flag, Err: err}
	}
	return nil
}
