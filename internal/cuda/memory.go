//go:build linux && cgo

package cuda

// #include "tramp.h"
// #cgo noescape fl_mem_alloc
// #cgo nocallback fl_mem_alloc
// #cgo nocallback fl_mem_free
// #cgo noescape fl_host_alloc
// #cgo nocallback fl_host_alloc
// #cgo nocallback fl_host_free
// #cgo noescape fl_pointer
// #cgo nocallback fl_pointer
import "C"

import (
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"unsafe"

	"github.com/fenceline/fenceline/internal/gpu"
)

func itoa(n int) string { return strconv.Itoa(n) }

func (d *driver) MemAlloc(dev int, size uint64) (gpu.Ptr, error) {
	dv, ctx, err := d.begin("MemAlloc", dev)
	if err != nil {
		return 0, err
	}
	defer d.life.RUnlock()
	if size == 0 {
		return 0, refuse("MemAlloc", dev, gpu.ErrInvalidValue, "zero bytes")
	}
	var p C.CUdeviceptr
	if r := C.fl_mem_alloc(d.lib, ctx, C.size_t(size), &p); r != 0 {
		return 0, d.fail("cuMemAlloc_v2", dv, r, d.asked(dv, ctx, size))
	}
	d.tab.Lock()
	d.mem.add(span{base: gpu.Ptr(p), size: size, maker: dev})
	d.tab.Unlock()
	return gpu.Ptr(p), nil
}

// asked is what an allocation that failed wanted, and what there was.
func (d *driver) asked(dv *device, ctx C.CUcontext, size uint64) string {
	var f, t C.size_t
	if C.fl_mem_info(d.lib, ctx, &f, &t) != 0 {
		return fmt.Sprintf("%d bytes", size)
	}
	return fmt.Sprintf("%d bytes; %d of %d are free", size, uint64(f), uint64(t))
}

func (d *driver) MemFree(dev int, p gpu.Ptr) error {
	dv, ctx, err := d.begin("MemFree", dev)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	// Taken out of the table first: of two frees at once only one may reach the driver.
	d.tab.Lock()
	sp, ok := d.mem.base(p)
	if ok && sp.device() == dev {
		d.mem.take(p)
	}
	d.tab.Unlock()
	switch {
	case !ok:
		return refuse("MemFree", dev, gpu.ErrInvalidValue, "%#x is not the base of an allocation; it may have been freed", uint64(p))
	case sp.host != nil:
		return refuse("MemFree", dev, gpu.ErrInvalidValue, "%#x is pinned host memory: use HostFree", uint64(p))
	case sp.maker != dev:
		return refuse("MemFree", dev, gpu.ErrInvalidValue, "%#x belongs to device %d", uint64(p), sp.maker)
	}
	if r := C.fl_mem_free(d.lib, ctx, C.CUdeviceptr(p)); r != 0 {
		d.tab.Lock()
		d.mem.add(sp)
		d.tab.Unlock()
		return d.fail("cuMemFree_v2", dv, r, fmt.Sprintf("%#x", uint64(p)))
	}
	return nil
}

// beginAny is begin on a device whose context is there already, or on the first one: for host memory and
// addresses, which belong to no device.
func (d *driver) beginAny(op string) (*device, C.CUcontext, error) {
	first := -1
	for i, dv := range d.devs {
		if dv.fault.Load() != nil {
			continue
		}
		if dv.ctx.Load() != 0 {
			return d.begin(op, i)
		}
		if first < 0 {
			first = i
		}
	}
	return d.begin(op, max(first, 0))
}

func (d *driver) HostAlloc(size uint64) (gpu.HostMem, error) {
	dv, ctx, err := d.beginAny("HostAlloc")
	if err != nil {
		return gpu.HostMem{}, err
	}
	defer d.life.RUnlock()
	if size == 0 || size > math.MaxInt {
		return gpu.HostMem{}, refuse("HostAlloc", -1, gpu.ErrInvalidValue, "%d bytes", size)
	}
	var host unsafe.Pointer
	var p C.CUdeviceptr
	if r := C.fl_host_alloc(d.lib, ctx, C.size_t(size), &host, &p); r != 0 {
		return gpu.HostMem{}, d.fail("cuMemHostAlloc", dv, r, fmt.Sprintf("%d bytes of pinned host memory", size))
	}
	m := gpu.HostMem{Ptr: gpu.Ptr(p), Bytes: unsafe.Slice((*byte)(host), size)}
	d.tab.Lock()
	d.mem.add(span{base: m.Ptr, size: size, maker: dv.ord, host: m.Bytes})
	d.tab.Unlock()
	return m, nil
}

func (d *driver) HostFree(m gpu.HostMem) error {
	const op = "HostFree"
	d.tab.Lock()
	sp, ok := d.mem.base(m.Ptr)
	d.tab.Unlock()
	if d.closed.Load() {
		return &gpu.Error{Op: op, Device: -1, Kind: gpu.ErrClosed}
	}
	if !ok || sp.host == nil {
		return refuse(op, -1, gpu.ErrInvalidValue, "%#x is not the base of pinned host memory; it may have been freed", uint64(m.Ptr))
	}
	dv, ctx, err := d.begin(op, sp.maker)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	d.tab.Lock()
	sp, ok = d.mem.base(m.Ptr)
	d.mem.take(m.Ptr)
	d.tab.Unlock()
	if !ok {
		return refuse(op, -1, gpu.ErrInvalidValue, "%#x was freed meanwhile", uint64(m.Ptr))
	}
	if r := C.fl_host_free(d.lib, ctx, unsafe.Pointer(&sp.host[0])); r != 0 {
		d.tab.Lock()
		d.mem.add(sp)
		d.tab.Unlock()
		return d.fail("cuMemFreeHost", dv, r, fmt.Sprintf("%#x", uint64(m.Ptr)))
	}
	return nil
}

// word finds an aligned word of live host memory, and leaves tab held for reading, so that HostFree cannot
// unmap it under the access.
func (d *driver) word(op string, m gpu.HostMem, offset uint64) (*uint32, error) {
	d.tab.RLock()
	sp, ok := d.mem.base(m.Ptr)
	var err error
	switch {
	case d.closed.Load():
		err = &gpu.Error{Op: op, Device: -1, Kind: gpu.ErrClosed}
	case !ok || sp.host == nil:
		err = refuse(op, -1, gpu.ErrInvalidValue, "%#x is not pinned host memory; it may have been freed", uint64(m.Ptr))
	case offset%4 != 0:
		err = refuse(op, -1, gpu.ErrInvalidValue, "offset %d is not a multiple of 4", offset)
	case sp.size < 4 || offset > sp.size-4:
		err = refuse(op, -1, gpu.ErrInvalidValue, "offset %d is beyond the last word of %d bytes", offset, sp.size)
	default:
		return (*uint32)(unsafe.Pointer(&sp.host[offset])), nil
	}
	d.tab.RUnlock()
	return nil, err
}

func (d *driver) HostLoad32(m gpu.HostMem, offset uint64) (uint32, error) {
	w, err := d.word("HostLoad32", m, offset)
	if err != nil {
		return 0, err
	}
	defer d.tab.RUnlock()
	return atomic.LoadUint32(w), nil
}

func (d *driver) HostStore32(m gpu.HostMem, offset uint64, v uint32) error {
	w, err := d.word("HostStore32", m, offset)
	if err != nil {
		return err
	}
	defer d.tab.RUnlock()
	atomic.StoreUint32(w, v)
	return nil
}

func (d *driver) PointerInfo(p gpu.Ptr) (gpu.PointerInfo, error) {
	dv, ctx, err := d.beginAny("PointerInfo")
	if err != nil {
		return gpu.PointerInfo{}, err
	}
	defer d.life.RUnlock()
	return d.resolve("PointerInfo", dv, ctx, p)
}

// resolve finds the allocation that holds p: ours from the table, others' (a framework's) from the driver.
func (d *driver) resolve(op string, dv *device, ctx C.CUcontext, p gpu.Ptr) (gpu.PointerInfo, error) {
	d.tab.RLock()
	sp, ok := d.mem.holding(p)
	d.tab.RUnlock()
	if ok {
		info := gpu.PointerInfo{Kind: gpu.MemDevice, Device: sp.device(), Base: sp.base, Size: sp.size}
		if sp.host != nil {
			info.Kind = gpu.MemHost
		}
		return info, nil
	}
	if p == 0 {
		return gpu.PointerInfo{}, refuse(op, dv.ord, gpu.ErrInvalidValue, "null address")
	}
	var kind, dev C.int
	var base C.CUdeviceptr
	var size C.size_t
	r := C.fl_pointer(d.lib, ctx, C.CUdeviceptr(p), &kind, &dev, &base, &size)
	if r != 0 && r != resInvalidValue {
		return gpu.PointerInfo{}, d.fail("cuPointerGetAttributes", dv, r, fmt.Sprintf("%#x", uint64(p)))
	}
	info := gpu.PointerInfo{Base: gpu.Ptr(base), Size: uint64(size), Device: int(dev)}
	switch {
	case r != 0 || size == 0:
	case kind == C.CU_MEMORYTYPE_DEVICE:
		info.Kind = gpu.MemDevice
		return info, nil
	case kind == C.CU_MEMORYTYPE_HOST:
		info.Kind, info.Device = gpu.MemHost, -1
		return info, nil
	}
	return gpu.PointerInfo{}, refuse(op, dv.ord, gpu.ErrInvalidValue, "the driver knows no memory at %#x; it may have been freed", uint64(p))
}

// inside checks that n bytes at p are inside one allocation. The driver would take an unknown address for
// pageable host memory and crash on it.
func (d *driver) inside(op, what string, dv *device, ctx C.CUcontext, p gpu.Ptr, n uint64) (gpu.PointerInfo, error) {
	info, err := d.resolve(op, dv, ctx, p)
	if err != nil {
		return info, err
	}
	if off := uint64(p - info.Base); n > info.Size || off > info.Size-n {
		err = refuse(op, dv.ord, gpu.ErrInvalidValue, "%s: %d bytes at offset %d run past the end of the %d-byte allocation at %#x",
			what, n, off, info.Size, uint64(info.Base))
	}
	return info, err
}
