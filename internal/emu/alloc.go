package emu

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/fenceline/fenceline/internal/gpu"
)

func (d *driver) MemInfo(dev int) (free, total uint64, err error) {
	d.lock()
	defer d.mu.Unlock()
	v, err := d.healthy("MemInfo", dev)
	if err != nil {
		return 0, 0, err
	}
	return v.mem.limit - v.mem.used, v.mem.limit, nil
}

func (d *driver) MemAlloc(dev int, size uint64) (gpu.Ptr, error) {
	const op = "MemAlloc"
	d.lock()
	defer d.mu.Unlock()
	v, err := d.healthy(op, dev)
	if err != nil {
		return 0, err
	}
	if size == 0 {
		return 0, fail(op, dev, gpu.ErrInvalidValue, "zero bytes asked for")
	}
	a := v.mem.alloc(size, "allocation", true)
	if a == nil {
		return 0, fail(op, dev, gpu.ErrOutOfMemory, "%d bytes asked for, %d of %d free", size, v.mem.limit-v.mem.used, v.mem.limit)
	}
	d.counts.Allocs++
	return gpu.Ptr(a.base), nil
}

func (d *driver) MemFree(dev int, p gpu.Ptr) error {
	const op = "MemFree"
	d.lock()
	defer d.mu.Unlock()
	v, err := d.device(op, dev)
	if err != nil {
		return err
	}
	a, why := d.find(uint64(p))
	switch {
	case a == nil:
		return fail(op, dev, gpu.ErrInvalidValue, "%s", why)
	case a.owner != dev:
		return fail(op, dev, gpu.ErrInvalidValue, "%#x belongs to a %v", uint64(p), a)
	case !a.user:
		return fail(op, dev, gpu.ErrInvalidValue, "%#x belongs to a %v, which goes with its module", uint64(p), a)
	case uint64(p) != a.base:
		return fail(op, dev, gpu.ErrInvalidValue, "%#x is %d bytes inside a %v; free its base, %#x", uint64(p), uint64(p)-a.base, a, a.base)
	}
	v.mem.free(a)
	d.generation++
	d.counts.Allocs--
	return v.fault
}

func (d *driver) HostAlloc(size uint64) (gpu.HostMem, error) {
	const op = "HostAlloc"
	d.lock()
	defer d.mu.Unlock()
	if d.closed {
		return gpu.HostMem{}, closedError(op)
	}
	if size == 0 {
		return gpu.HostMem{}, fail(op, -1, gpu.ErrInvalidValue, "zero bytes asked for")
	}
	a := d.host.alloc(size, "allocation", true)
	if a == nil {
		return gpu.HostMem{}, fail(op, -1, gpu.ErrOutOfMemory, "%d bytes asked for, %d of %d free", size, d.host.limit-d.host.used, d.host.limit)
	}
	d.counts.HostAllocs++
	return gpu.HostMem{Ptr: gpu.Ptr(a.base), Bytes: a.data}, nil
}

func (d *driver) HostFree(m gpu.HostMem) error {
	const op = "HostFree"
	d.lock()
	defer d.mu.Unlock()
	a, err := d.pinned(op, m)
	if err != nil {
		return err
	}
	d.host.free(a)
	d.generation++
	d.counts.HostAllocs--
	return nil
}

// pinned finds the area of m, which must be whole.
func (d *driver) pinned(op string, m gpu.HostMem) (*area, error) {
	if d.closed {
		return nil, closedError(op)
	}
	a, why := d.find(uint64(m.Ptr))
	switch {
	case a == nil:
		return nil, fail(op, -1, gpu.ErrInvalidValue, "%s", why)
	case a.owner != hostOwner:
		return nil, fail(op, -1, gpu.ErrInvalidValue, "%#x belongs to a %v, not to pinned host memory", uint64(m.Ptr), a)
	case uint64(m.Ptr) != a.base:
		return nil, fail(op, -1, gpu.ErrInvalidValue, "%#x is %d bytes inside a %v; pass what HostAlloc gave", uint64(m.Ptr), uint64(m.Ptr)-a.base, a)
	}
	return a, nil
}

// word is the aligned 32-bit word at an offset of m.
func (d *driver) word(op string, m gpu.HostMem, offset uint64) (*uint32, error) {
	a, err := d.pinned(op, m)
	if err != nil {
		return nil, err
	}
	if offset%4 != 0 || offset >= a.size || a.size-offset < 4 {
		return nil, fail(op, -1, gpu.ErrInvalidValue, "no aligned 32-bit word at offset %d of a %v", offset, a)
	}
	return (*uint32)(unsafe.Pointer(&a.data[offset])), nil
}

// HostLoad32 implements gpu.Driver. The word is atomic towards the engine's accesses, and towards
// sync/atomic users of HostMem.Bytes.
func (d *driver) HostLoad32(m gpu.HostMem, offset uint64) (uint32, error) {
	const op = "HostLoad32"
	d.pass()
	d.lock()
	defer d.mu.Unlock()
	w, err := d.word(op, m, offset)
	if err != nil {
		return 0, err
	}
	return littleEndian(atomic.LoadUint32(w)), nil
}

func (d *driver) HostStore32(m gpu.HostMem, offset uint64, v uint32) error {
	const op = "HostStore32"
	d.lock()
	w, err := d.word(op, m, offset)
	if err == nil {
		atomic.StoreUint32(w, littleEndian(v))
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	d.pass()
	return nil
}

// littleEndian converts between the host's words and those of a GPU.
func littleEndian(v uint32) uint32 {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint32(b[:])
}

func (d *driver) PointerInfo(p gpu.Ptr) (gpu.PointerInfo, error) {
	const op = "PointerInfo"
	d.lock()
	defer d.mu.Unlock()
	if d.closed {
		return gpu.PointerInfo{}, closedError(op)
	}
	a, why := d.find(uint64(p))
	if a == nil {
		return gpu.PointerInfo{}, fail(op, -1, gpu.ErrInvalidValue, "%s", why)
	}
	info := gpu.PointerInfo{Kind: gpu.MemDevice, Device: a.owner, Base: gpu.Ptr(a.base), Size: a.size}
	if a.owner == hostOwner {
		info.Kind = gpu.MemHost
	}
	return info, nil
}
