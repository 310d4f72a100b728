//go:build linux && cgo

package cuda

// #include "tramp.h"
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fenceline/fenceline/internal/gpu"
)

// driver is one opened libcuda and what was made through it.
type driver struct {
	lib      *C.fl_lib
	path     string
	version  int
	handlers atomic.Int64 // signal handlers that had lost SA_ONSTACK and got it back
	devs     []*device

	// life is held for reading across every call into libcuda, so that Close, which takes it for writing,
	// never pulls an object from under one. closed is also read alone, by waits between their slices.
	life   sync.RWMutex
	closed atomic.Bool

	// tab guards the tables below, and is never held across a call into libcuda.
	tab     sync.RWMutex
	mem     spans
	streams map[gpu.Stream]*stream
	events  map[gpu.Event]*event
	modules map[gpu.Module]*module
	funcs   map[gpu.Function]*function
	graphs  map[gpu.Graph]int // device
	execs   map[gpu.GraphExec]int
}

// device is one GPU and its primary context, which is retained on first use.
type device struct {
	ord   int
	cu    C.CUdevice
	info  gpu.DeviceInfo
	mu    sync.Mutex     // retaining
	ctx   atomic.Uintptr // 0 until retained
	fault atomic.Pointer[gpu.FaultError]
}

type stream struct {
	dev       int
	foreign   bool // made by somebody else, who destroys it
	capturing atomic.Bool
}

type event struct {
	dev      int
	timing   bool
	recorded atomic.Bool
}

type module struct {
	dev  int
	name string
}

type function struct {
	dev        int
	mod        gpu.Module
	name       string
	info       gpu.FunctionInfo
	paramBytes int          // -1 when unknown
	dynamic    atomic.Int64 // dynamic shared memory that the driver lets it have now
}

func (d *driver) Info() gpu.DriverInfo {
	detail := fmt.Sprintf("%s, CUDA %s", d.path, gpu.CUDAVersion(d.version))
	if n := d.handlers.Load(); n > 0 {
		detail += fmt.Sprintf(", SA_ONSTACK given back to %d signal handlers", n)
	}
	return gpu.DriverInfo{Name: "cuda", Version: d.version, Detail: detail}
}

func (d *driver) DeviceCount() int { return len(d.devs) }

// enter begins a call that needs no context. Without an error the caller must call d.life.RUnlock.
func (d *driver) enter(op string, dev int) (*device, error) {
	d.life.RLock()
	dv, err := d.admit(op, dev)
	if err != nil {
		d.life.RUnlock()
	}
	return dv, err
}

func (d *driver) admit(op string, dev int) (*device, error) {
	if d.closed.Load() {
		return nil, &gpu.Error{Op: op, Device: dev, Kind: gpu.ErrClosed}
	}
	if dev < 0 || dev >= len(d.devs) {
		return nil, &gpu.Error{Op: op, Device: -1, Kind: gpu.ErrInvalidValue,
			Detail: fmt.Sprintf("device %d does not exist; there are %d, from 0", dev, len(d.devs))}
	}
	dv := d.devs[dev]
	if f := dv.fault.Load(); f != nil {
		return nil, f
	}
	return dv, nil
}

// begin is enter for a call that needs dev's context.
func (d *driver) begin(op string, dev int) (*device, C.CUcontext, error) {
	dv, err := d.enter(op, dev)
	if err != nil {
		return nil, 0, err
	}
	ctx, err := d.context(dv)
	if err != nil {
		d.life.RUnlock()
		return nil, 0, err
	}
	return dv, ctx, nil
}

// context returns dv's primary context, retaining it on first use. A failure is not remembered: memory may
// be free the next time.
func (d *driver) context(dv *device) (C.CUcontext, error) {
	if c := dv.ctx.Load(); c != 0 {
		return C.CUcontext(c), nil
	}
	dv.mu.Lock()
	defer dv.mu.Unlock()
	if c := dv.ctx.Load(); c != 0 {
		return C.CUcontext(c), nil
	}
	var c C.CUcontext
	r := C.fl_retain(d.lib, dv.cu, &c)
	d.handlers.Add(int64(C.fl_signals(1))) // the driver starts threads and tools with its first context
	if r != 0 {
		return 0, d.fail("cuDevicePrimaryCtxRetain", dv, r, "")
	}
	dv.ctx.Store(uintptr(c))
	return c, nil
}

// fail turns a result other than success into an error. what says what was asked.
func (d *driver) fail(op string, dv *device, r C.int, what string) error {
	code := int(r)
	e := driverError(d.lib, op, code)
	e.Device = dv.ord
	if code > 0 {
		if res := lookup(code); res.sticky {
			return d.poison(dv, op, e)
		}
	}
	if what != "" {
		if e.Detail != "" {
			what += ": " + e.Detail
		}
		e.Detail = what
	}
	return e
}

// poison records the fault that lost a context. The first one is the one that explains the others.
func (d *driver) poison(dv *device, op string, e *gpu.Error) error {
	dv = d.lost(dv)
	detail := fmt.Sprintf("%s (%d) reported by %s", e.Name, e.Code, op)
	if e.Detail != "" {
		detail += ": " + e.Detail
	}
	f := &gpu.FaultError{Kind: e.Kind, Device: dv.ord, Detail: detail + "; the device's context is lost, and those of other devices may be: go on in a new process"}
	dv.fault.CompareAndSwap(nil, f)
	return dv.fault.Load()
}

// lost finds whose context was lost, when a call made for dv says that one was: a copy between two devices,
// or a wait for another device's event, reports the other's fault as well.
func (d *driver) lost(dv *device) *device {
	for _, other := range append([]*device{dv}, d.used()...) {
		// The default stream, which we never use, answers at once, and with the fault if there is one.
		if ctx := other.ctx.Load(); ctx != 0 && lookup(int(C.fl_stream_wait(d.lib, C.CUcontext(ctx), 0, 0))).sticky {
			return other
		}
	}
	return dv
}

// refuse is an error found before the driver was called.
func refuse(op string, dev int, kind error, format string, args ...any) error {
	return &gpu.Error{Op: op, Device: dev, Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// refuseHandle says why a handle that a table does not hold for dev is refused.
func refuseHandle(op string, dev int, what string, handle uintptr, owner int) error {
	switch {
	case handle == 0:
		return refuse(op, dev, gpu.ErrInvalidHandle, "%s is zero", what)
	case owner >= 0:
		return refuse(op, dev, gpu.ErrInvalidHandle, "%s %#x belongs to device %d", what, handle, owner)
	}
	return refuse(op, dev, gpu.ErrInvalidHandle, "%s %#x is unknown: destroyed, or of another driver", what, handle)
}

func (d *driver) stream(op string, dev int, s gpu.Stream) (*stream, error) {
	d.tab.RLock()
	st := d.streams[s]
	d.tab.RUnlock()
	if st == nil {
		return nil, refuseHandle(op, dev, "stream", uintptr(s), -1)
	}
	if st.dev != dev {
		return nil, refuseHandle(op, dev, "stream", uintptr(s), st.dev)
	}
	return st, nil
}

// event finds an event. dev < 0 accepts any device's.
func (d *driver) event(op string, dev int, e gpu.Event) (*event, error) {
	d.tab.RLock()
	ev := d.events[e]
	d.tab.RUnlock()
	if ev == nil {
		return nil, refuseHandle(op, dev, "event", uintptr(e), -1)
	}
	if dev >= 0 && ev.dev != dev {
		return nil, refuseHandle(op, dev, "event", uintptr(e), ev.dev)
	}
	return ev, nil
}

func (d *driver) Live() gpu.Counts {
	d.tab.RLock()
	defer d.tab.RUnlock()
	dev, host := d.mem.counts()
	return gpu.Counts{Allocs: dev, HostAllocs: host, Streams: len(d.streams), Events: len(d.events),
		Modules: len(d.modules), Graphs: len(d.graphs), GraphExecs: len(d.execs)}
}
