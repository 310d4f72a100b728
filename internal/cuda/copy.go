//go:build linux && cgo

package cuda

// #include "tramp.h"
// #cgo nocallback fl_memset
// #cgo nocallback fl_copy
// #cgo nocallback fl_copy_peer
// #cgo noescape fl_copy_in
// #cgo nocallback fl_copy_in
// #cgo noescape fl_copy_out
// #cgo nocallback fl_copy_out
import "C"

import (
	"github.com/fenceline/fenceline/internal/gpu"
)

// beginOn is begin for work on a stream of dev.
func (d *driver) beginOn(op string, dev int, s gpu.Stream) (*device, C.CUcontext, error) {
	dv, ctx, err := d.begin(op, dev)
	if err != nil {
		return nil, 0, err
	}
	if _, err := d.stream(op, dev, s); err != nil {
		d.life.RUnlock()
		return nil, 0, err
	}
	return dv, ctx, nil
}

func (d *driver) Memset(dev int, s gpu.Stream, p gpu.Ptr, value byte, n uint64) error {
	const op = "Memset"
	dv, ctx, err := d.beginOn(op, dev, s)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	if _, err := d.inside(op, "destination", dv, ctx, p, n); err != nil || n == 0 {
		return err
	}
	if r := C.fl_memset(d.lib, ctx, C.CUstream(s), C.CUdeviceptr(p), C.uchar(value), C.size_t(n)); r != 0 {
		return d.fail("cuMemsetD8Async", dv, r, "")
	}
	return nil
}

func (d *driver) Copy(dev int, s gpu.Stream, dst, src gpu.Ptr, n uint64) error {
	const op = "Copy"
	dv, ctx, err := d.beginOn(op, dev, s)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	if err := d.insideBoth(op, dv, ctx, dst, src, n); err != nil || n == 0 {
		return err
	}
	if r := C.fl_copy(d.lib, ctx, C.CUstream(s), C.CUdeviceptr(dst), C.CUdeviceptr(src), C.size_t(n)); r != 0 {
		return d.fail("cuMemcpyAsync", dv, r, "")
	}
	return nil
}

func (d *driver) insideBoth(op string, dv *device, ctx C.CUcontext, dst, src gpu.Ptr, n uint64) error {
	if _, err := d.inside(op, "destination", dv, ctx, dst, n); err != nil {
		return err
	}
	_, err := d.inside(op, "source", dv, ctx, src, n)
	return err
}

// insideOf is inside for memory that must not be another device's than owner.
func (d *driver) insideOf(op, what string, dv *device, ctx C.CUcontext, p gpu.Ptr, n uint64, owner int) error {
	info, err := d.inside(op, what, dv, ctx, p, n)
	if err == nil && info.Kind == gpu.MemDevice && info.Device != owner {
		return refuse(op, dv.ord, gpu.ErrInvalidValue, "%s: %#x is memory of device %d, not %d", what, uint64(p), info.Device, owner)
	}
	return err
}

func (d *driver) CopyPeer(dev int, s gpu.Stream, dst gpu.Ptr, dstDev int, src gpu.Ptr, srcDev int, n uint64) error {
	const op = "CopyPeer"
	dv, ctx, err := d.beginOn(op, dev, s)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	to, err := d.admit(op, dstDev)
	if err != nil {
		return err
	}
	from, err := d.admit(op, srcDev)
	if err != nil {
		return err
	}
	toCtx, fromCtx, err := d.contexts(to, from)
	if err != nil {
		return err
	}
	// Both ends first: the driver trusts the contexts it is given, and would copy the wrong device's bytes.
	if err := d.insideOf(op, "destination", dv, ctx, dst, n, dstDev); err != nil {
		return err
	}
	if err := d.insideOf(op, "source", dv, ctx, src, n, srcDev); err != nil || n == 0 {
		return err
	}
	if to == from && to == dv {
		if r := C.fl_copy(d.lib, ctx, C.CUstream(s), C.CUdeviceptr(dst), C.CUdeviceptr(src), C.size_t(n)); r != 0 {
			return d.fail("cuMemcpyAsync", dv, r, "")
		}
		return nil
	}
	r := C.fl_copy_peer(d.lib, ctx, C.CUstream(s), C.CUdeviceptr(dst), toCtx, C.CUdeviceptr(src), fromCtx, C.size_t(n))
	if r != 0 {
		return d.fail("cuMemcpyPeerAsync", dv, r, "device "+itoa(srcDev)+" to "+itoa(dstDev))
	}
	return nil
}

// CopyIn hands src to the driver for the length of one call. While the stream is busy it is asked in slices,
// and src is not looked at.
func (d *driver) CopyIn(dev int, s gpu.Stream, dst gpu.Ptr, src []byte) error {
	for {
		if done, err := d.copyIn(dev, s, dst, src); done || err != nil {
			return err
		}
	}
}

func (d *driver) copyIn(dev int, s gpu.Stream, dst gpu.Ptr, src []byte) (bool, error) {
	const op = "CopyIn"
	dv, ctx, err := d.beginOn(op, dev, s)
	if err != nil {
		return false, err
	}
	defer d.life.RUnlock()
	n := len(src)
	if _, err := d.inside(op, "destination", dv, ctx, dst, uint64(n)); err != nil {
		return false, err
	}
	if n == 0 {
		return d.slice(op, dv, C.fl_stream_wait(d.lib, ctx, C.CUstream(s), sliceNS))
	}
	return d.slice("cuMemcpyHtoDAsync_v2", dv,
		C.fl_copy_in(d.lib, ctx, C.CUstream(s), C.CUdeviceptr(dst), (*C.uchar)(&src[0]), C.size_t(n), sliceNS))
}

// CopyOut is CopyIn the other way.
func (d *driver) CopyOut(dev int, s gpu.Stream, dst []byte, src gpu.Ptr) error {
	for {
		if done, err := d.copyOut(dev, s, dst, src); done || err != nil {
			return err
		}
	}
}

func (d *driver) copyOut(dev int, s gpu.Stream, dst []byte, src gpu.Ptr) (bool, error) {
	const op = "CopyOut"
	dv, ctx, err := d.beginOn(op, dev, s)
	if err != nil {
		return false, err
	}
	defer d.life.RUnlock()
	n := len(dst)
	if _, err := d.inside(op, "source", dv, ctx, src, uint64(n)); err != nil {
		return false, err
	}
	if n == 0 {
		return d.slice(op, dv, C.fl_stream_wait(d.lib, ctx, C.CUstream(s), sliceNS))
	}
	return d.slice("cuMemcpyDtoHAsync_v2", dv,
		C.fl_copy_out(d.lib, ctx, C.CUstream(s), (*C.uchar)(&dst[0]), C.CUdeviceptr(src), C.size_t(n), sliceNS))
}
