//go:build linux && cgo

package cuda

// #include "tramp.h"
// #cgo noescape fl_stream_create
// #cgo nocallback fl_stream_create
// #cgo nocallback fl_stream_destroy
// #cgo noescape fl_stream_context
// #cgo nocallback fl_stream_context
// #cgo noescape fl_stream_capturing
// #cgo nocallback fl_stream_capturing
// #cgo nocallback fl_stream_wait
// #cgo nocallback fl_stream_wait_event
// #cgo noescape fl_event_create
// #cgo nocallback fl_event_create
// #cgo nocallback fl_event_destroy
// #cgo nocallback fl_event_record
// #cgo nocallback fl_event_wait
// #cgo noescape fl_event_elapsed
// #cgo nocallback fl_event_elapsed
import "C"

import (
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
)

// sliceNS is how long one C call may wait, in nanoseconds. Waits go on in Go, where Close can end them.
const sliceNS = 20_000_000

// slice reads the result of one slice of waiting.
func (d *driver) slice(op string, dv *device, r C.int) (done bool, err error) {
	switch r {
	case 0:
		return true, nil
	case resNotReady:
		return false, nil
	}
	return false, d.fail(op, dv, r, "")
}

// wait repeats a slice until it is done or limit is used up. A limit below zero asks once, like zero.
func wait(limit time.Duration, slice func(ns C.int64_t) (bool, error)) (bool, error) {
	if limit <= sliceNS {
		return slice(C.int64_t(max(0, limit)))
	}
	end := time.Now().Add(limit)
	for left := limit; ; left = time.Until(end) {
		done, err := slice(C.int64_t(max(0, min(left, sliceNS))))
		if done || err != nil || left <= sliceNS {
			return done, err
		}
	}
}

func (d *driver) StreamCreate(dev int) (gpu.Stream, error) {
	dv, ctx, err := d.begin("StreamCreate", dev)
	if err != nil {
		return 0, err
	}
	defer d.life.RUnlock()
	var s C.CUstream
	if r := C.fl_stream_create(d.lib, ctx, &s); r != 0 {
		return 0, d.fail("cuStreamCreate", dv, r, "")
	}
	d.tab.Lock()
	d.streams[gpu.Stream(s)] = &stream{dev: dev}
	d.tab.Unlock()
	return gpu.Stream(s), nil
}

// lastDefault is the largest of the handles that mean a default stream: 0, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD.
const lastDefault = 2

func (d *driver) StreamAdopt(dev int, s gpu.Stream) error {
	const op = "StreamAdopt"
	dv, ctx, err := d.begin(op, dev)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	if s <= lastDefault {
		return refuse(op, dev, gpu.ErrInvalidHandle, "stream %d is a default stream, which is ordered with others and cannot be captured: make one", s)
	}
	var owner C.CUcontext
	if r := C.fl_stream_context(d.lib, ctx, C.CUstream(s), &owner); r != 0 {
		return d.fail("cuStreamGetCtx", dv, r, "")
	}
	if owner != ctx {
		return refuse(op, dev, gpu.ErrInvalidHandle, "stream %#x is not of this device's primary context", uintptr(s))
	}
	d.tab.Lock()
	defer d.tab.Unlock()
	if d.streams[s] != nil {
		return refuse(op, dev, gpu.ErrInvalidValue, "stream %#x is known already", uintptr(s))
	}
	d.streams[s] = &stream{dev: dev, foreign: true}
	return nil
}

func (d *driver) StreamCapturing(dev int, s gpu.Stream) (bool, error) {
	dv, ctx, err := d.beginOn("StreamCapturing", dev, s)
	if err != nil {
		return false, err
	}
	defer d.life.RUnlock()
	var status C.int
	if r := C.fl_stream_capturing(d.lib, ctx, C.CUstream(s), &status); r != 0 {
		return false, d.fail("cuStreamIsCapturing", dv, r, "")
	}
	if status == captureVoid {
		return true, refuse("StreamCapturing", dev, gpu.ErrCapture, "the capture on the stream is void: end it and begin again")
	}
	return status != 0, nil
}

// captureVoid is CU_STREAM_CAPTURE_STATUS_INVALIDATED.
const captureVoid = 2

func (d *driver) StreamDestroy(dev int, s gpu.Stream) error {
	dv, ctx, err := d.begin("StreamDestroy", dev)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	st, err := takeHandle(d, d.streams, "StreamDestroy", dev, "stream", s, func(st *stream) int { return st.dev })
	if err != nil {
		return err
	}
	// Destroying a capturing stream would leave the capture without an end.
	if st.capturing.Load() { // never of a foreign one
		var g C.CUgraph
		if C.fl_capture_end(d.lib, ctx, C.CUstream(s), &g) == 0 && g != 0 {
			C.fl_graph_destroy(d.lib, ctx, g)
		}
	}
	if st.foreign {
		return nil
	}
	if r := C.fl_stream_destroy(d.lib, ctx, C.CUstream(s)); r != 0 {
		putHandle(d, d.streams, s, st)
		return d.fail("cuStreamDestroy_v2", dv, r, "")
	}
	return nil
}

// takeHandle removes a handle from its table, so that of two destroys at once only one reaches the driver.
func takeHandle[H ~uintptr, T any](d *driver, table map[H]T, op string, dev int, what string, h H, owner func(T) int) (T, error) {
	d.tab.Lock()
	defer d.tab.Unlock()
	o, ok := table[h]
	if !ok {
		return o, refuseHandle(op, dev, what, uintptr(h), -1)
	}
	if own := owner(o); own != dev {
		return o, refuseHandle(op, dev, what, uintptr(h), own)
	}
	delete(table, h)
	return o, nil
}

func putHandle[H ~uintptr, T any](d *driver, table map[H]T, h H, o T) {
	d.tab.Lock()
	table[h] = o
	d.tab.Unlock()
}

func (d *driver) StreamWait(dev int, s gpu.Stream, limit time.Duration) (bool, error) {
	return wait(limit, func(ns C.int64_t) (bool, error) {
		dv, ctx, err := d.beginOn("StreamWait", dev, s)
		if err != nil {
			return false, err
		}
		defer d.life.RUnlock()
		return d.slice("cuStreamQuery", dv, C.fl_stream_wait(d.lib, ctx, C.CUstream(s), ns))
	})
}

func (d *driver) StreamWaitEvent(dev int, s gpu.Stream, e gpu.Event) error {
	dv, ctx, err := d.beginOn("StreamWaitEvent", dev, s)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	if _, err := d.event("StreamWaitEvent", -1, e); err != nil {
		return err
	}
	if r := C.fl_stream_wait_event(d.lib, ctx, C.CUstream(s), C.CUevent(e)); r != 0 {
		return d.fail("cuStreamWaitEvent", dv, r, "")
	}
	return nil
}

func (d *driver) EventCreate(dev int, timing bool) (gpu.Event, error) {
	dv, ctx, err := d.begin("EventCreate", dev)
	if err != nil {
		return 0, err
	}
	defer d.life.RUnlock()
	t := C.int(0)
	if timing {
		t = 1
	}
	var e C.CUevent
	if r := C.fl_event_create(d.lib, ctx, t, &e); r != 0 {
		return 0, d.fail("cuEventCreate", dv, r, "")
	}
	d.tab.Lock()
	d.events[gpu.Event(e)] = &event{dev: dev, timing: timing}
	d.tab.Unlock()
	return gpu.Event(e), nil
}

func (d *driver) EventDestroy(dev int, e gpu.Event) error {
	dv, ctx, err := d.begin("EventDestroy", dev)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	ev, err := takeHandle(d, d.events, "EventDestroy", dev, "event", e, func(ev *event) int { return ev.dev })
	if err != nil {
		return err
	}
	if r := C.fl_event_destroy(d.lib, ctx, C.CUevent(e)); r != 0 {
		putHandle(d, d.events, e, ev)
		return d.fail("cuEventDestroy_v2", dv, r, "")
	}
	return nil
}

func (d *driver) EventRecord(dev int, e gpu.Event, s gpu.Stream) error {
	dv, ctx, err := d.beginOn("EventRecord", dev, s)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	ev, err := d.event("EventRecord", dev, e)
	if err != nil {
		return err
	}
	if r := C.fl_event_record(d.lib, ctx, C.CUevent(e), C.CUstream(s)); r != 0 {
		return d.fail("cuEventRecord", dv, r, "")
	}
	ev.recorded.Store(true)
	return nil
}

func (d *driver) EventWait(dev int, e gpu.Event, limit time.Duration) (bool, error) {
	return wait(limit, func(ns C.int64_t) (bool, error) {
		dv, ctx, err := d.begin("EventWait", dev)
		if err != nil {
			return false, err
		}
		defer d.life.RUnlock()
		if _, err := d.event("EventWait", dev, e); err != nil {
			return false, err
		}
		return d.slice("cuEventQuery", dv, C.fl_event_wait(d.lib, ctx, C.CUevent(e), ns))
	})
}

func (d *driver) EventElapsed(dev int, from, to gpu.Event) (time.Duration, error) {
	const op = "EventElapsed"
	dv, ctx, err := d.begin(op, dev)
	if err != nil {
		return 0, err
	}
	defer d.life.RUnlock()
	for _, e := range [2]gpu.Event{from, to} {
		ev, err := d.event(op, dev, e)
		if err != nil {
			return 0, err
		}
		if !ev.timing {
			return 0, refuse(op, dev, gpu.ErrInvalidValue, "event %#x was created without timing", uintptr(e))
		}
		if !ev.recorded.Load() {
			return 0, refuse(op, dev, gpu.ErrInvalidValue, "event %#x was never recorded", uintptr(e))
		}
	}
	var ms C.float
	if r := C.fl_event_elapsed(d.lib, ctx, C.CUevent(from), C.CUevent(to), &ms); r != 0 {
		return 0, d.fail("cuEventElapsedTime", dv, r, "")
	}
	return time.Duration(float64(ms) * float64(time.Millisecond)), nil
}
