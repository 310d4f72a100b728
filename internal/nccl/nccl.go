// Package nccl calls NCCL, which it loads at run time.
//
// Building needs neither NCCL nor its header. Without cgo, or off Linux, Open answers ErrUnavailable.
//
// The environment is left as it is. A program that wants no multicast objects (NVLS) sets NCCL_NVLS_ENABLE=0 before NCCL is loaded.
package nccl

import (
	"errors"
	"fmt"
	"sync"
	"time"
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
	ErrTimeout     = errors.New("NCCL did not come back in time")
	ErrClosed      = errors.New("NCCL's communicators are closed")
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
	s := e.What()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// What is the error without its Detail.
func (e *Error) What() string {
	s := fmt.Sprintf("%s: %v", e.Op, e.Kind)
	switch {
	case e.Text != "" && e.Code != 0:
		s += fmt.Sprintf(" (%s, %d)", e.Text, e.Code)
	case e.Text != "":
		s += fmt.Sprintf(" (%s)", e.Text)
	case e.Code != 0:
		s += fmt.Sprintf(" (%d)", e.Code)
	}
	return s
}

// Unwrap gives the sentinel.
func (e *Error) Unwrap() error { return e.Kind }

// DType is an element type, with the values of ncclDataType_t.
type DType int

// The element types that are used.
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

// Member is where one rank of a communicator is: on a device, which must be no other's, and in the context of a stream.
type Member struct {
	Device int
	Stream uintptr // a CUstream
}

// Loaded is an NCCL: a *Library, or in tests what stands in for one.
type Loaded interface {
	// Version is 22803 for 2.28.3.
	Version() int
	// Join makes the communicators of ranks that are all in this process, members[r] for rank r. It takes limit at most, and
	// leaves nothing behind when it fails.
	Join(members []Member, limit time.Duration) (Ranks, error)
}

// Ranks are the communicators of this process. Their calls may be made from any goroutine, those of one rank in one order.
type Ranks interface {
	// AllReduce queues the sum of count elements on every rank as one group; calls[r] is that of rank r. Where the streams
	// capture, it is captured. limit bounds what NCCL still has to connect, which is nothing for most calls.
	AllReduce(calls []Call, count uint64, dt DType, limit time.Duration) error
	// AllReduceRank queues one rank's part. What NCCL still has to connect it connects when the other ranks' calls have come.
	AllReduceRank(rank int, call Call, count uint64, dt DType, limit time.Duration) error
	// RankErr is the failure of work that a rank has queued, nil while there is none.
	RankErr(rank int) error
	// Close flushes and frees the communicators, whose work is done and whose graphs are gone. Closing again does nothing.
	Close() error
	// Abort ends work that will not end by itself, and frees the communicators. Calls that are under way fail, later ones too.
	Abort() error
}

var loaded struct {
	mu      sync.Mutex
	by      map[string]*Library
	standIn func(path string) (Loaded, error)
}

// Load is Open for a library that the process may have already; path "" is DefaultLibrary.
func Load(path string) (Loaded, error) {
	if path == "" {
		path = DefaultLibrary
	}
	loaded.mu.Lock()
	defer loaded.mu.Unlock()
	if loaded.standIn != nil {
		return loaded.standIn(path)
	}
	if lib := loaded.by[path]; lib != nil {
		return lib, nil
	}
	lib, err := Open(path)
	if err != nil {
		return nil, err
	}
	if loaded.by == nil {
		loaded.by = map[string]*Library{}
	}
	loaded.by[path] = lib
	return lib, nil
}

// StandIn makes Load give what load gives, for tests on emulated devices, until restore is called.
func StandIn(load func(path string) (Loaded, error)) (restore func()) {
	loaded.mu.Lock()
	defer loaded.mu.Unlock()
	was := loaded.standIn
	loaded.standIn = load
	return func() {
		loaded.mu.Lock()
		defer loaded.mu.Unlock()
		loaded.standIn = was
	}
}

// StoodIn is whether something stands in for NCCL, which then needs no GPUs.
func StoodIn() bool {
	loaded.mu.Lock()
	defer loaded.mu.Unlock()
	return loaded.standIn != nil
}
