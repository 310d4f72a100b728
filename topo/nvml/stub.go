//go:build !cgo || !linux || nonvml

package nvml

import "github.com/fenceline/fenceline/topo"

// Augment answers ErrUnavailable: this build has no NVML.
func Augment(m *topo.Machine) error {
	if m.Emulated {
		return emulatedError()
	}
	return &Error{Op: "open NVML", Kind: ErrUnavailable,
		Detail: "this build has no NVML: build on Linux with CGO_ENABLED=1, a C compiler and without -tags nonvml"}
}
