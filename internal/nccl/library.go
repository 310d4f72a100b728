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

	mu     sync.Mutex
	driver string // libcuda, which the process has loaded
	found  bool   // its functions are
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
	lib := &Library{l: l, path: path, driver: "libcuda.so.1"}
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
	c := newClique(l, 1)
	if r := C.fl_nccl_init_rank(l.l, &c.ranks[0].comm, C.int(world), (*C.char)(unsafe.Pointer(&id[0])), C.int(rank)); r != 0 {
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
	c := newClique(l, len(list))
	if r := C.fl_nccl_init_all(l.l, C.int(len(list)), &list[0], &c.ranks[0]); r != 0 {
		return nil, l.failed(op, r, 0)
	}
	return c, nil
}

// findDriver finds the functions that say what context a stream has.
func (l *Library) findDriver() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found {
		return nil
	}
	path := C.CString(l.driver)
	defer C.free(unsafe.Pointer(path))
	if C.fl_nccl_driver(l.l, path) != 0 {
		return &Error{Op: "find " + l.driver, Kind: ErrUnavailable, Detail: "this process has not loaded it, or it lacks cuStreamGetCtx: NCCL needs GPUs and NVIDIA's driver"}
	}
	l.found = true
	return nil
}
