// Package nvml adds to a topo.Machine what NVIDIA's management library knows: links, NUMA
// nodes, and the peer capabilities with their reasons.
//
// It is the only package that imports go-nvml. go-nvml's linker flags break a C shared library that contains
// it and hide missing C symbols, so nothing that goes into one may import this package;
// internal/archtest holds that.
//
// The library is opened at run time. Without it, without cgo, off Linux, or built with
// `-tags nonvml`, Augment answers ErrUnavailable and the machine is left as the driver described it. One case is beyond
// this package: a program that contains go-nvml and binds its symbols at start (LD_BIND_NOW=1, or
// linked with -z now) ends before main where the library is absent. Use `-tags nonvml` there.
package nvml

import (
	"errors"
	"fmt"
)

// Sentinels. Every error of Augment matches one of them.
var (
	ErrUnavailable = errors.New("NVML is unavailable")           // nothing was changed
	ErrNoMatch     = errors.New("device is not known to NVML")   // the other devices were filled
	ErrQuery       = errors.New("NVML cannot describe a device") // the other devices were filled
)

// Error is what NVML refused, and the remedy.
type Error struct {
	Op     string // "nvmlInit_v2", "open libnvidia-ml.so.1", …
	Code   int    // nvmlReturn_t; 0 when the call never reached NVML
	Text   string // NVML's or the loader's own words, may be empty
	Detail string // what was asked, and the remedy where one is known
	Kind   error  // one of the sentinels
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %v", e.Op, e.Kind)
	if e.Text != "" {
		s += fmt.Sprintf(" (%s", e.Text)
		if e.Code != 0 {
			s += fmt.Sprintf(", %d", e.Code)
		}
		s += ")"
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap gives the sentinel.
func (e *Error) Unwrap() error { return e.Kind }

// emulatedError refuses to look for emulated devices in NVML: it describes real ones only.
func emulatedError() error {
	return &Error{Op: "match devices", Kind: ErrUnavailable, Detail: "the machine is emulated, and NVML describes real devices only"}
}
