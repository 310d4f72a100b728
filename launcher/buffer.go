package launcher

import (
	"fmt"
	"sync/atomic"

	"github.com/fenceline/fenceline/internal/gpu"
)

// Buffer is a range of device memory, or of pinned host memory as devices see it. It is a small
// value: copies and slices share one allocation, and none of them outlives it. The zero Buffer
// is null and refused wherever memory is needed.
type Buffer struct {
	a      *allocation
	off, n uint64
}

type allocation struct {
	rt    *Runtime
	dev   int // -1 for host memory
	ptr   gpu.Ptr
	size  uint64
	owner owner
	freed atomic.Bool
}

type owner int

const (
	ownRuntime owner = iota // Alloc: Free returns the memory
	ownForeign              // Wrap: Free only ends the use of it
	ownHost                 // a view of a HostBuffer
)

// Alloc allocates size bytes on dev, aligned to at least 256 bytes. The contents are undefined. No room is
// ErrOutOfMemory; a size of 0, or no such device, is ErrInvalidValue.
func (rt *Runtime) Alloc(dev int, size uint64) (Buffer, error) {
	if err := rt.check("Alloc", dev); err != nil {
		return Buffer{}, err
	}
	if size == 0 {
		return Buffer{}, invalid("Alloc", dev, "size is 0 bytes; want at least 1")
	}
	p, err := rt.d.MemAlloc(dev, size)
	if err != nil {
		return Buffer{}, fmt.Errorf("alloc %d bytes: %w", size, err)
	}
	return Buffer{&allocation{rt: rt, dev: dev, ptr: p, size: size}, 0, size}, nil
}

// Owns tells whether b was made by this runtime. Buffers of another runtime mean nothing here.
func (rt *Runtime) Owns(b Buffer) bool { return b.a != nil && b.a.rt == rt }

// Wrap makes a Buffer of memory that something else owns, such as a tensor of another library in
// this process. ptr must point into one allocation of dev that holds size bytes from there on;
// dev is -1 for pinned host memory. The driver is asked, so a wrong pointer is refused here, as
// ErrInvalidValue. The owner must keep the memory until all work on it has ended.
func (rt *Runtime) Wrap(dev int, ptr, size uint64) (Buffer, error) {
	const op = "Wrap"
	if dev == -1 {
		if err := rt.alive(op); err != nil {
			return Buffer{}, err
		}
	} else if err := rt.check(op, dev); err != nil {
		return Buffer{}, err
	}
	if ptr == 0 {
		return Buffer{}, invalid(op, dev, "null pointer; pass the address of device memory")
	}
	if size == 0 {
		return Buffer{}, invalid(op, dev, "size is 0 bytes; want at least 1")
	}
	info, err := rt.d.PointerInfo(gpu.Ptr(ptr))
	if err != nil {
		return Buffer{}, fmt.Errorf("wrap %#x for device %d: not memory the driver knows; pass device memory of this process: %w", ptr, dev, err)
	}
	switch {
	case info.Kind == gpu.MemHost && dev != -1:
		return Buffer{}, invalid(op, dev, "%#x is pinned host memory; wrap it with device -1", ptr)
	case info.Kind == gpu.MemDevice && info.Device != dev:
		return Buffer{}, invalid(op, dev, "%#x belongs to device %d; wrap it for that device", ptr, info.Device)
	}
	at := ptr - uint64(info.Base)
	if at >= info.Size || size > info.Size-at {
		return Buffer{}, invalid(op, dev, "%#x has %d bytes to the end of its allocation of %d, fewer than the %d asked for",
			ptr, info.Size-min(at, info.Size), info.Size, size)
	}
	return Buffer{&allocation{rt: rt, dev: dev, ptr: gpu.Ptr(ptr), size: size, owner: ownForeign}, 0, size}, nil
}

// Ptr is the address as every device sees it; 0 for the zero Buffer. Kernels of other devices
// may use it when peer access is enabled.
func (b Buffer) Ptr() uint64 {
	if b.a == nil {
		return 0
	}
	return uint64(b.a.ptr) + b.off
}

func (b Buffer) ptr() gpu.Ptr { return gpu.Ptr(b.Ptr()) }

// Size is the length in bytes.
func (b Buffer) Size() uint64 { return b.n }

// Device is the device whose memory this is; -1 for host memory and the zero Buffer.
func (b Buffer) Device() int {
	if b.a == nil {
		return -1
	}
	return b.a.dev
}

// Slice is the n bytes from byte off on; what b does not hold is ErrInvalidValue. It is valid as long as b is and
// cannot be freed by itself.
func (b Buffer) Slice(off, n uint64) (Buffer, error) {
	if err := b.Check(); err != nil {
		return Buffer{}, err
	}
	if off > b.n || n > b.n-off {
		return Buffer{}, invalid("Slice", b.a.dev, "bytes %d to %d+%d are outside the buffer of %d bytes", off, off, n, b.n)
	}
	return Buffer{b.a, b.off + off, n}, nil
}

// Check says whether the buffer may be used: null is ErrInvalidValue; freed, or of a closed runtime, ErrClosed. Memory
// that was wrapped is not asked for again.
func (b Buffer) Check() error { return b.check("buffer") }

func (b Buffer) check(op string) error {
	if b.a == nil {
		return invalid(op, -1, "null buffer; use one from Alloc, Wrap or HostBuffer.Buffer")
	}
	return b.a.check(op)
}

func (a *allocation) check(op string) error {
	if a.freed.Load() {
		return &ClosedError{op, a.String()}
	}
	return a.rt.alive(op)
}

func (a *allocation) String() string {
	if a.dev < 0 {
		return fmt.Sprintf("host buffer %#x of %d bytes", uint64(a.ptr), a.size)
	}
	return fmt.Sprintf("buffer %#x of %d bytes on device %d", uint64(a.ptr), a.size, a.dev)
}

// Free returns the memory. Only a whole buffer from Alloc is freed; for a wrapped one it ends its
// use and leaves the memory alone; a slice is refused. Freeing again does nothing. No queued
// work may still use the memory. For device memory the driver waits for the kernels that run on the device, as Runtime.Load does.
func (b Buffer) Free() error {
	a := b.a
	switch {
	case a == nil:
		return nil
	case b.off != 0 || b.n != a.size:
		return invalid("Free", a.dev, "this is %d bytes at offset %d of a %d-byte buffer; free the whole buffer", b.n, b.off, a.size)
	case a.owner == ownHost:
		return invalid("Free", a.dev, "this is a view of a HostBuffer; free that")
	case a.freed.Swap(true) || a.owner == ownForeign || a.rt.closed.Load():
		return nil
	}
	if err := a.rt.d.MemFree(a.dev, a.ptr); err != nil {
		return fmt.Errorf("free %s: %w", a, err)
	}
	return nil
}
