//go:build linux && cgo

package nccl

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "tramp.h"
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"
)

// Library is a loaded NCCL. It stays loaded to the end of the process, since NCCL has threads of its own.
type Library struct {
	l       *C.fl_nccl
	path    string
	version int
}

// Open loads NCCL; path "" is DefaultLibrary. The error is an *Error of kind ErrUnavailable.
func Open(path string) (*Library, error) {
	if path == "" {
		path = DefaultLibrary
	}
	op := "dlopen " + path
	if strings.IndexByte(path, 0) >= 0 {
		return nil, &Error{Op: "dlopen", Kind: ErrUnavailable, Detail: "the path has a zero byte"}
	}
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	msg := make([]byte, 512)
	l := C.fl_nccl_open(cpath, (*C.char)(unsafe.Pointer(&msg[0])), C.size_t(len(msg)))
	if l == nil {
		why, _, _ := bytes.Cut(msg, []byte{0})
		return nil, &Error{Op: op, Kind: ErrUnavailable, Text: string(why), Detail: "install NCCL 2, or name its library"}
	}
	var missing []string
	for n := 0; ; n++ {
		s := C.fl_nccl_missing(l, C.int(n))
		if s == nil {
			break
		}
		missing = append(missing, C.GoString(s))
	}
	if len(missing) > 0 {
		C.fl_nccl_drop(l)
		return nil, &Error{Op: op, Kind: ErrUnavailable, Detail: fmt.Sprintf("it lacks %s: name a complete NCCL 2 library", strings.Join(missing, ", "))}
	}
	lib := &Library{l: l, path: path}
	var v C.int
	if r := C.fl_nccl_version(l, &v); r != 0 {
		return nil, lib.failed("ncclGetVersion", r, 0)
	}
	lib.version = int(v)
	return lib, nil
}

// Version is NCCL's: 22803 for 2.28.3.
func (l *Library) Version() int { return l.version }

func (l *Library) failed(op string, r C.int, comm C.ncclComm_t) error {
	e := &Error{Op: op, Code: int(r), Kind: ErrFailed, Detail: "set NCCL_DEBUG=INFO to see what it did"}
	if s := C.fl_nccl_error(l.l, r); s != nil {
		e.Text = C.GoString(s)
	}
	if s := C.fl_nccl_last(l.l, comm); s != nil && *s != 0 {
		e.Text += ": " + strings.TrimSpace(C.GoString(s))
	}
	return e
}

func refuse(op, format string, args ...any) error {
	return &Error{Op: op, Kind: ErrArgument, Detail: fmt.Sprintf(format, args...)}
}

// UniqueID makes the identifier of a new communicator, IDBytes long. The process that made it must live until all its
// ranks have joined.
func (l *Library) UniqueID() ([]byte, error) {
	id := make([]byte, IDBytes)
	if r := C.fl_nccl_id(l.l, (*C.char)(unsafe.Pointer(&id[0]))); r != 0 {
		return nil, l.failed("ncclGetUniqueId", r, 0)
	}
	return id, nil
}

// InitRank joins a communicator as one rank, on the current device: the first that is visible, unless the caller's thread has
// another. It returns when all ranks have joined, and that can be never.
func (l *Library) InitRank(world int, id []byte, rank int) (*Clique, error) {
	const op = "ncclCommInitRank"
	if len(id) != IDBytes || world < 1 || rank < 0 || rank >= world {
		return nil, refuse(op, "rank %d of %d with an identifier of %d bytes, want %d", rank, world, len(id), IDBytes)
	}
	c := &Clique{lib: l, comms: make([]C.ncclComm_t, 1)}
	if r := C.fl_nccl_init_rank(l.l, &c.comms[0], C.int(world), (*C.char)(unsafe.Pointer(&id[0])), C.int(rank)); r != 0 {
		return nil, l.failed(op, r, 0)
	}
	return c, nil
}

// InitAll makes a communicator of all ranks in this process: rank r on the device with ordinal devices[r], each another one.
func (l *Library) InitAll(devices []int) (*Clique, error) {
	const op = "ncclCommInitAll"
	seen := map[int]bool{}
	list := make([]C.int, len(devices))
	for r, d := range devices {
		if d < 0 || seen[d] {
			return nil, refuse(op, "device %d for rank %d: each rank of one process needs a device of its own", d, r)
		}
		seen[d], list[r] = true, C.int(d)
	}
	if len(list) == 0 {
		return nil, refuse(op, "no device is given")
	}
	c := &Clique{lib: l, comms: make([]C.ncclComm_t, len(list))}
	if r := C.fl_nccl_init_all(l.l, &c.comms[0], C.int(len(list)), &list[0]); r != 0 {
		return nil, l.failed(op, r, 0)
	}
	return c, nil
}

// Clique is the communicators of this process: one for each rank that is in it.
type Clique struct {
	lib   *Library
	mu    sync.Mutex
	comms []C.ncclComm_t // nil once closed
}

// AllReduce queues the sum of count elements on every rank of this process, as one group; calls[i] is that of the i-th rank.
// Where the streams capture, it is captured.
func (c *Clique) AllReduce(calls []Call, count uint64, dt DType) error {
	const op = "ncclAllReduce"
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(calls) != len(c.comms) || len(calls) == 0 {
		return refuse(op, "%d calls for %d open communicator(s)", len(calls), len(c.comms))
	}
	if dt != F16 && dt != F32 && dt != BF16 {
		return refuse(op, "element type %d", dt)
	}
	list := make([]C.fl_call, len(calls))
	for i, k := range calls {
		list[i] = C.fl_call{send: C.uintptr_t(k.Send), recv: C.uintptr_t(k.Recv), stream: C.uintptr_t(k.Stream)}
	}
	if r := C.fl_nccl_all_reduce(c.lib.l, C.int(len(list)), &c.comms[0], &list[0], C.size_t(count), C.int(dt)); r != 0 {
		return c.lib.failed(op, r, c.comms[0])
	}
	return nil
}

// Err is the failure of work that was queued, nil while there is none.
func (c *Clique) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, comm := range c.comms {
		var result C.int
		if r := C.fl_nccl_async(c.lib.l, comm, &result); r != 0 {
			return c.lib.failed("ncclCommGetAsyncError", r, comm)
		}
		if result != 0 {
			return c.lib.failed("work of ncclAllReduce", result, comm)
		}
	}
	return nil
}

// Close destroys the communicators, once their work is done. Closing again does nothing.
func (c *Clique) Close() error { return c.end("ncclCommDestroy", 0) }

// Abort is Close for communicators whose work will not end.
func (c *Clique) Abort() error { return c.end("ncclCommAbort", 1) }

func (c *Clique) end(op string, abort C.int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, comm := range c.comms {
		if r := C.fl_nccl_end(c.lib.l, comm, abort); r != 0 {
			errs = append(errs, c.lib.failed(op, r, comm))
		}
	}
	c.comms = nil
	return errors.Join(errs...)
}
