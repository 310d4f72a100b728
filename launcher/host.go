package launcher

import (
	"fmt"

	"github.com/fenceline/fenceline/internal/gpu"
)

// HostBuffer is pinned host memory that every device can read and write.
type HostBuffer struct {
	a    *allocation
	mem  gpu.HostMem
	life life
}

// AllocHost allocates size bytes of pinned host memory, mapped into every device. No room is ErrOutOfMemory; a size of 0
// is ErrInvalidValue.
func (rt *Runtime) AllocHost(size uint64) (*HostBuffer, error) {
	if err := rt.alive("AllocHost"); err != nil {
		return nil, err
	}
	if size == 0 {
		return nil, invalid("AllocHost", -1, "size is 0 bytes; want at least 1")
	}
	m, err := rt.d.HostAlloc(size)
	if err != nil {
		return nil, fmt.Errorf("alloc %d bytes of host memory: %w", size, err)
	}
	return &HostBuffer{
		a:   &allocation{rt: rt, dev: -1, ptr: m.Ptr, size: size, owner: ownHost},
		mem: m,
	}, nil
}

// null is a HostBuffer that AllocHost did not make.
func (h *HostBuffer) null() bool { return h == nil || h.a == nil }

// Ptr is the address as devices see it; 0 for the zero HostBuffer.
func (h *HostBuffer) Ptr() uint64 { return h.Buffer().Ptr() }

// Size is the length in bytes.
func (h *HostBuffer) Size() uint64 { return h.Buffer().Size() }

// Buffer is the memory as devices see it: for kernel arguments and copies. It ends with h.
func (h *HostBuffer) Buffer() Buffer {
	if h.null() {
		return Buffer{}
	}
	return Buffer{h.a, 0, h.a.size}
}

// Bytes is the memory as the host sees it, nil once freed. It must not be used after Free, and
// words that a running kernel accesses are to be read and written with Load32 and Store32.
func (h *HostBuffer) Bytes() []byte {
	if h.use("Bytes") != nil {
		return nil
	}
	defer h.life.Leave()
	return h.mem.Bytes[:h.a.size:h.a.size]
}

// Load32 reads the 32-bit word at byte offset off, a multiple of 4, atomically, while kernels may
// be writing it.
func (h *HostBuffer) Load32(off uint64) (uint32, error) {
	if err := h.word("Load32", off); err != nil {
		return 0, err
	}
	defer h.life.Leave()
	return h.a.rt.d.HostLoad32(h.mem, off)
}

// Store32 writes the 32-bit word at byte offset off, a multiple of 4, atomically, while kernels
// may be reading it.
func (h *HostBuffer) Store32(off uint64, v uint32) error {
	if err := h.word("Store32", off); err != nil {
		return err
	}
	defer h.life.Leave()
	return h.a.rt.d.HostStore32(h.mem, off, v)
}

// Free returns the memory. Freeing again does nothing. No queued work may still use it.
func (h *HostBuffer) Free() error {
	if h.null() {
		return nil
	}
	return h.life.end(h.a.rt, func() error {
		h.a.freed.Store(true)
		if err := h.a.rt.d.HostFree(h.mem); err != nil {
			return fmt.Errorf("free %s: %w", h.a, err)
		}
		return nil
	})
}

// use enters the handle's life, or says why not.
func (h *HostBuffer) use(op string) error {
	if h.null() {
		return invalid(op, -1, "null host buffer; make one with Runtime.AllocHost")
	}
	if err := h.a.rt.alive(op); err != nil {
		return err
	}
	if !h.life.Enter() {
		return &ClosedError{op, h.a.String()}
	}
	return nil
}

// word is use for one aligned 32-bit word.
func (h *HostBuffer) word(op string, off uint64) error {
	if !h.null() && (off%4 != 0 || h.a.size < 4 || off > h.a.size-4) {
		return invalid(op, -1, "offset %d: want a multiple of 4 that leaves 4 bytes of the buffer's %d", off, h.a.size)
	}
	return h.use(op)
}
