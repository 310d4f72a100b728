package launcher

import (
	"fmt"
	"strings"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// Sentinels, to be matched with errors.Is. They are the driver seam's own values, so errors of
// the layers below match them too.
var (
	ErrNotSupported   = gpu.ErrNotSupported   // this driver, device or build cannot do it
	ErrNoDriver       = gpu.ErrNoDriver       // no GPU driver library, or it has no device
	ErrMissingSymbol  = gpu.ErrMissingSymbol  // the driver library lacks a required function
	ErrInvalidValue   = gpu.ErrInvalidValue   // bad argument, refused before any work
	ErrInvalidHandle  = gpu.ErrInvalidHandle  // the driver does not know the handle
	ErrOutOfMemory    = gpu.ErrOutOfMemory    //
	ErrNotFound       = gpu.ErrNotFound       // no such entry in the module
	ErrInvalidPTX     = gpu.ErrInvalidPTX     // PTX that does not parse, compile, or suit the device
	ErrDriverTooOld   = gpu.ErrDriverTooOld   // PTX newer than the driver
	ErrPeerAccess     = gpu.ErrPeerAccess     // the pair of devices has no peer access
	ErrIllegalAddress = gpu.ErrIllegalAddress // a kernel or copy touched what it may not; sticky
	ErrMisaligned     = gpu.ErrMisaligned     // sticky
	ErrLaunchFailed   = gpu.ErrLaunchFailed   // trap and other faults; sticky
	ErrDeadlock       = gpu.ErrDeadlock       // emulator: the step budget is used up; sticky
	ErrCapture        = gpu.ErrCapture        // not permitted during capture, or the capture broke
	ErrClosed         = gpu.ErrClosed         // use of a closed or freed handle
	ErrUnknown        = gpu.ErrUnknown        //
)

// DriverError is a refused or failed driver call.
//
//	Op     string // "cuMemAlloc", "Alloc", …
//	Device int    // ordinal, -1 when none is involved
//	Code   int    // CUresult, 0 when the call never reached the driver
//	Name   string // "CUDA_ERROR_OUT_OF_MEMORY", may be empty
//	Detail string // what was asked, and the remedy where one is known
//	Kind   error  // the sentinel that it matches
type DriverError = gpu.Error

// FaultError is a kernel's fault, after which its device answers every call with the same error until the runtime
// is closed; on CUDA it may take the process's other devices with it. The emulator fills in everything; CUDA knows only Device, Kind and Detail.
//
//	Kind   error  // ErrIllegalAddress, ErrMisaligned, ErrLaunchFailed or ErrDeadlock
//	Device int
//	Kernel string // entry name, or "copy" and "memset" for faults of the copy engine
//	Block  Dim3   // index in the grid
//	Thread Dim3   // index in the block
//	File   string // name given to Load
//	Line   int    // PTX line, 0 when unknown
//	Text   string // the PTX instruction
//	Addr   uint64 // address of the access
//	Size   int    // bytes of the access, 0 when it was none
//	Detail string // "freed 64-byte allocation of device 1", "no peer access from 0 to 1", …
type FaultError = gpu.FaultError

// PTXError is a refusal of PTX text.
//
//	File string // name given to Load
//	Line int    // from 1
//	Text string // the line, trimmed
//	Msg  string // what is wrong
type PTXError = ptx.Error

// ConfigError is a Config that cannot be used. It matches ErrInvalidValue.
type ConfigError struct {
	Field string
	Value string
	Msg   string // what is wrong, and what would be right
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("launcher config: %s %q: %s", e.Field, e.Value, e.Msg)
}

// Unwrap gives ErrInvalidValue.
func (e *ConfigError) Unwrap() error { return ErrInvalidValue }

// ClosedError is the use of something closed or freed. It matches ErrClosed.
type ClosedError struct {
	Op   string // what was attempted
	What string // "runtime", "stream of device 0", …
}

func (e *ClosedError) Error() string { return fmt.Sprintf("%s: %s is closed", e.Op, e.What) }

// Unwrap gives ErrClosed.
func (e *ClosedError) Unwrap() error { return ErrClosed }

// TimeoutError is a wait that ended before what it waited for. The work stays queued; it is
// neither lost nor done.
type TimeoutError struct {
	What   string // "stream of device 0", …
	Device int
	Last   string // the work queued last on a stream: "kernel add_peer", "copy", …; may be empty
	Waited time.Duration
	Cause  error // the context's cause; context.DeadlineExceeded when Config.WaitLimit ended the wait
}

func (e *TimeoutError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "waited %v for the %s", e.Waited.Round(time.Microsecond), e.What)
	if e.Last != "" {
		fmt.Fprintf(&b, " (queued last: %s)", e.Last)
	}
	fmt.Fprintf(&b, ": %v", e.Cause)
	return b.String()
}

// Unwrap gives the cause: context.DeadlineExceeded, context.Canceled, or the caller's own.
func (e *TimeoutError) Unwrap() error { return e.Cause }

// Timeout reports true, as net.Error does.
func (e *TimeoutError) Timeout() bool { return true }

// ArgError is an argument that does not suit its kernel parameter. It matches ErrInvalidValue.
type ArgError struct {
	Kernel string
	Index  int    // position, from 0; -1 when the number of arguments is wrong
	Param  string // the parameter's name in the PTX
	Want   string
	Got    string
}

func (e *ArgError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("kernel %s: want %s, got %s", e.Kernel, e.Want, e.Got)
	}
	return fmt.Sprintf("kernel %s: argument %d (%s): want %s, got %s", e.Kernel, e.Index, e.Param, e.Want, e.Got)
}

// Unwrap gives ErrInvalidValue.
func (e *ArgError) Unwrap() error { return ErrInvalidValue }

// LeakError lists what was still open when the runtime closed. All of it has been released.
type LeakError struct {
	Allocs, HostAllocs, Streams, Events, Modules, Graphs, GraphExecs int
}

func (e *LeakError) Error() string {
	var parts []string
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	add(e.Allocs, "buffer", "buffers")
	add(e.HostAllocs, "host buffer", "host buffers")
	add(e.Streams, "stream", "streams")
	add(e.Events, "event", "events")
	add(e.Modules, "module", "modules")
	add(e.Graphs, "graph", "graphs")
	add(e.GraphExecs, "executable graph", "executable graphs")
	return "runtime closed with live objects, now released: " + strings.Join(parts, ", ")
}

// invalid is a refusal of bad input. dev is -1 when no device is meant.
func invalid(op string, dev int, format string, args ...any) error {
	return &gpu.Error{Op: op, Device: dev, Kind: gpu.ErrInvalidValue, Detail: fmt.Sprintf(format, args...)}
}
