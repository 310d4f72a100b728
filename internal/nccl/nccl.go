// Package nccl calls NCCL, which it loads at run time, for comparison with it. Nothing of ours goes over NCCL.
//
// Building needs neither NCCL nor its header. Without cgo, or off Linux, Open answers ErrUnavailable.
//
// NCCL's multicast (NVLS) is turned off before the library is loaded, whatever the environment says.
package nccl

import (
	"errors"
	"fmt"
)

// DefaultLibrary is what the loader looks for, unless a path is given.
const DefaultLibrary = "libnccl.so.2"

// IDBytes is the size of the identifier by which the ranks of a communicator find each other.
const IDBytes = 128

// Sentinels. Every error of this package matches one of them.
var (
	ErrUnavailable = errors.New("NCCL is unavailable")    // not there, not loadable, or this build cannot load it
	ErrFailed      = errors.New("NCCL reported an error") // with its code
	ErrArgument    = errors.New("not a call that NCCL takes")
)

// Error is what went wrong, and the remedy.
type Error struct {
	Op     string // "ncclCommInitAll", "dlopen libnccl.so.2"
	Code   int    // ncclResult_t; 0 when the call never reached NCCL
	Text   string // NCCL's or the loader's own words, may be empty
	Detail string // what was asked, and the remedy where one is known
	Kind   error  // one of the sentinels
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %v", e.Op, e.Kind)
	switch {
	case e.Text != "" && e.Code != 0:
		s += fmt.Sprintf(" (%s, %d)", e.Text, e.Code)
	case e.Text != "":
		s += fmt.Sprintf(" (%s)", e.Text)
	case e.Code != 0:
		s += fmt.Sprintf(" (%d)", e.Code)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap gives the sentinel.
func (e *Error) Unwrap() error { return e.Kind }

// DType is an element type, with the values of ncclDataType_t.
type DType int

// The element types that are compared.
const (
	F16  DType = 6
	F32  DType = 7
	BF16 DType = 9
)

// Call is one rank's part of an all-reduce: count elements from Send to Recv, which may be the same, on a CUDA stream.
type Call struct {
	Send, Recv uintptr // device addresses
	Stream     uintptr // a CUstream
}
