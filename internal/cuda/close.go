//go:build linux && cgo

package cuda

// #include "tramp.h"
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/fenceline/fenceline/internal/gpu"
)

// closeLimit is how long Close waits for queued work of one device. Freeing memory under a running kernel
// would block in the driver for as long as the kernel runs.
var closeLimit = 10 * time.Second

// Close waits for calls in flight and for queued work, destroys what is left and gives the primary contexts
// back. When work does not end within ten seconds everything stays as it is, and the error says so.
func (d *driver) Close() error {
	if d.closed.Swap(true) {
		return &gpu.Error{Op: "Close", Device: -1, Kind: gpu.ErrClosed}
	}
	d.life.Lock()
	defer d.life.Unlock()
	d.tab.Lock()
	defer d.tab.Unlock()
	var errs []error
	busy := false
	for _, dv := range d.used() {
		if dv.fault.Load() == nil {
			err := d.drain(dv)
			busy = busy || errors.Is(err, errBusy)
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	// A kernel may be using any device's memory, so while one runs, nothing can go.
	for _, dv := range d.used() {
		if busy {
			break
		}
		if dv.fault.Load() == nil {
			errs = append(errs, d.destroyAll(dv)...)
		}
		// A lost context takes its objects with it.
		if r := C.fl_release(d.lib, dv.cu); r != 0 && dv.fault.Load() == nil {
			errs = append(errs, d.fail("cuDevicePrimaryCtxRelease_v2", dv, r, ""))
		}
	}
	clear(d.streams)
	clear(d.events)
	clear(d.modules)
	clear(d.funcs)
	clear(d.graphs)
	clear(d.execs)
	d.mem.init()
	return errors.Join(errs...)
}

var errBusy = fmt.Errorf("%w: work still running", gpu.ErrUnknown)

// used lists the devices whose context was retained.
func (d *driver) used() []*device {
	var used []*device
	for _, dv := range d.devs {
		if dv.ctx.Load() != 0 {
			used = append(used, dv)
		}
	}
	return used
}

// drain ends captures and waits for the device's streams.
func (d *driver) drain(dv *device) error {
	ctx := C.CUcontext(dv.ctx.Load())
	end := time.Now().Add(closeLimit)
	for s, st := range d.streams {
		if st.dev != dv.ord {
			continue
		}
		if st.foreign { // waiting would spoil a capture of its owner's
			var status C.int
			if C.fl_stream_capturing(d.lib, ctx, C.CUstream(s), &status) != 0 || status != 0 {
				continue
			}
		} else if st.capturing.Load() {
			var g C.CUgraph
			if C.fl_capture_end(d.lib, ctx, C.CUstream(s), &g) == 0 && g != 0 {
				C.fl_graph_destroy(d.lib, ctx, g)
			}
			continue
		}
		r := C.fl_stream_wait(d.lib, ctx, C.CUstream(s), C.int64_t(max(0, time.Until(end))))
		switch {
		case r == resNotReady:
			return refuse("Close", dv.ord, errBusy, "queued work did not end within %v; what was created stays until the process ends", closeLimit)
		case r != 0 && lookup(int(r)).kind != gpu.ErrCapture: // a stream that joined a capture has nothing to wait for
			return d.fail("cuStreamQuery", dv, r, "")
		}
	}
	return nil
}

// destroyAll destroys the objects of a healthy, idle device, users before what they use.
func (d *driver) destroyAll(dv *device) []error {
	ctx := C.CUcontext(dv.ctx.Load())
	var errs []error
	note := func(op string, r C.int) {
		if r != 0 {
			errs = append(errs, d.fail(op, dv, r, ""))
		}
	}
	for x, dev := range d.execs {
		if dev == dv.ord {
			note("cuGraphExecDestroy", C.fl_exec_destroy(d.lib, ctx, C.CUgraphExec(x)))
		}
	}
	for g, dev := range d.graphs {
		if dev == dv.ord {
			note("cuGraphDestroy", C.fl_graph_destroy(d.lib, ctx, C.CUgraph(g)))
		}
	}
	for e, ev := range d.events {
		if ev.dev == dv.ord {
			note("cuEventDestroy_v2", C.fl_event_destroy(d.lib, ctx, C.CUevent(e)))
		}
	}
	for s, st := range d.streams {
		if st.dev == dv.ord && !st.foreign {
			note("cuStreamDestroy_v2", C.fl_stream_destroy(d.lib, ctx, C.CUstream(s)))
		}
	}
	for m, mod := range d.modules {
		if mod.dev == dv.ord {
			note("cuModuleUnload", C.fl_module_unload(d.lib, ctx, C.CUmodule(m)))
		}
	}
	for _, sp := range d.mem.list {
		switch {
		case sp.maker != dv.ord:
		case sp.host != nil:
			note("cuMemFreeHost", C.fl_host_free(d.lib, ctx, unsafe.Pointer(&sp.host[0])))
		default:
			note("cuMemFree_v2", C.fl_mem_free(d.lib, ctx, C.CUdeviceptr(sp.base)))
		}
	}
	return errs
}
