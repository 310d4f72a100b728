package gpu

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels. Errors of this package and of every driver match one of them with errors.Is.
var (
	ErrNotSupported   = errors.New("not supported")
	ErrNoDriver       = errors.New("no GPU driver")              // library absent, or it has no device
	ErrMissingSymbol  = errors.New("driver lacks a symbol")      // libcuda is there, a required function is not
	ErrInvalidValue   = errors.New("invalid value")              // bad argument, refused before any work
	ErrInvalidHandle  = errors.New("invalid handle")             // destroyed, foreign or zero handle
	ErrOutOfMemory    = errors.New("out of memory")              //
	ErrNotFound       = errors.New("not found")                  // entry or symbol
	ErrInvalidPTX     = errors.New("invalid PTX")                // does not parse or compile
	ErrDriverTooOld   = errors.New("driver too old")             // PTX newer than the driver, or the driver newer than needed
	ErrPeerAccess     = errors.New("no peer access")             // the pair has none
	ErrIllegalAddress = errors.New("illegal address")            // sticky: a kernel or copy touched what it may not
	ErrMisaligned     = errors.New("misaligned address")         // sticky
	ErrLaunchFailed   = errors.New("launch failed")              // sticky: trap, and faults of other kinds
	ErrDeadlock       = errors.New("kernel does not end")        // emulator: step budget used up
	ErrCapture        = errors.New("graph capture")              // call not permitted during capture, or capture broken
	ErrClosed         = errors.New("driver closed")              //
	ErrUnknown        = errors.New("unspecified driver failure") //
)

// Error is a failed driver call: what was asked, on which device, and what the driver answered.
type Error struct {
	Op     string // "cuMemAlloc", "StreamCreate", …
	Device int    // ordinal, -1 when none is involved
	Code   int    // CUresult, 0 when the call never reached the driver
	Name   string // "CUDA_ERROR_OUT_OF_MEMORY", may be empty
	Detail string // what was asked, and the remedy where one is known
	Kind   error  // one of the sentinels
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Device >= 0 {
		fmt.Fprintf(&b, " on device %d", e.Device)
	}
	if e.Kind != nil {
		fmt.Fprintf(&b, ": %v", e.Kind)
	}
	if e.Name != "" {
		fmt.Fprintf(&b, " (%s, %d)", e.Name, e.Code)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	return b.String()
}

// Unwrap gives the sentinel.
func (e *Error) Unwrap() error { return e.Kind }

// FaultError is a kernel's fault, located as well as the driver can. The emulator fills every field, and its
// other devices work on. CUDA knows only the device and the kind, and may lose the contexts of all devices of the
// process.
type FaultError struct {
	Kind   error // ErrIllegalAddress, ErrMisaligned, ErrLaunchFailed or ErrDeadlock
	Device int
	Kernel string // entry name, or "copy" and "memset" for copy-engine faults
	Block  Dim3
	Thread Dim3
	File   string // PTX module name
	Line   int    // PTX line, 0 when unknown
	Text   string // the PTX instruction
	Addr   uint64
	Size   int
	Detail string // "freed 64-byte allocation of device 1", "no peer access from 0 to 1", …
}

func (e *FaultError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "device %d: %v", e.Device, e.Kind)
	if e.Kernel != "" {
		fmt.Fprintf(&b, " in %s block (%d,%d,%d) thread (%d,%d,%d)", e.Kernel,
			e.Block.X, e.Block.Y, e.Block.Z, e.Thread.X, e.Thread.Y, e.Thread.Z)
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, " at %s:%d `%s`", e.File, e.Line, e.Text)
	}
	if e.Size > 0 {
		fmt.Fprintf(&b, ", %d bytes at %#x", e.Size, e.Addr)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	return b.String()
}

// Unwrap gives the sentinel.
func (e *FaultError) Unwrap() error { return e.Kind }

// UUIDString renders a device UUID as nvidia-smi does: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.
func UUIDString(u [16]byte) string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
