// Package examples holds small kernels for package check: right ones to learn from, and classic faults that it finds. Each
// is NAME.cu, the PTX that build.sh made of it, and NAME.spec.
package examples

import (
	"embed"
	"fmt"
)

// Files are the sources, the PTX and the specs.
//
//go:embed *.cu *.cuh *.ptx *.spec
var Files embed.FS

// Example is one of them.
type Example struct {
	Name  string
	About string
	Fault bool // something must be found
}

// Examples lists them, the faults last.
func Examples() []Example {
	return []Example{
		{"correct", "stage, start flag, read, end flag", false},
		{"push_packets", "data and flag in one 64-bit word, two halves, no barrier", false},
		{"twoshot_pull", "slices added up where they belong, gathered behind a second flag", false},
		{"twoshot_push", "slices and sums pushed as 64-bit words, no barrier", false},
		{"broken", "start flag relaxed", true},
		{"fault_scope", "start flag released at .gpu, between devices", true},
		{"fault_closing", "closing flag relaxed, the next call overwrites", true},
		{"fault_slot", "one slot for two synchronisation points", true},
		{"fault_epoch", "epoch an argument, frozen in a graph", true},
		{"fault_vector", "data and flag in separate elements of a vector", true},
	}
}

// PTX is the example's kernel.
func (e *Example) PTX() (name string, text []byte, err error) {
	return e.read(".ptx")
}

// Spec is how it is checked.
func (e *Example) Spec() (name string, text []byte, err error) {
	return e.read(".spec")
}

func (e *Example) read(ending string) (name string, text []byte, err error) {
	name = e.Name + ending
	if text, err = Files.ReadFile(name); err != nil {
		return "", nil, fmt.Errorf("example %s: %w", e.Name, err)
	}
	return name, text, nil
}
