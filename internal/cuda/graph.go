//go:build linux && cgo

package cuda

// #include "tramp.h"
// #cgo nocallback fl_capture_begin
// #cgo noescape fl_capture_end
// #cgo nocallback fl_capture_end
// #cgo noescape fl_graph_instantiate
// #cgo nocallback fl_graph_instantiate
// #cgo nocallback fl_graph_launch
// #cgo nocallback fl_graph_destroy
// #cgo nocallback fl_exec_destroy
import "C"

import (
	"errors"

	"github.com/fenceline/fenceline/internal/gpu"
)

func (d *driver) BeginCapture(dev int, s gpu.Stream) error {
	dv, ctx, err := d.begin("BeginCapture", dev)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	st, err := d.stream("BeginCapture", dev, s)
	if err != nil {
		return err
	}
	if !st.foreign && !st.capturing.CompareAndSwap(false, true) { // of a stream that others use as well the driver knows
		return refuse("BeginCapture", dev, gpu.ErrCapture, "the stream is capturing already")
	}
	if r := C.fl_capture_begin(d.lib, ctx, C.CUstream(s)); r != 0 {
		st.capturing.Store(false)
		return asCapture(d.fail("cuStreamBeginCapture_v2", dv, r, ""))
	}
	return nil
}

func (d *driver) EndCapture(dev int, s gpu.Stream) (gpu.Graph, error) {
	dv, ctx, err := d.begin("EndCapture", dev)
	if err != nil {
		return 0, err
	}
	defer d.life.RUnlock()
	st, err := d.stream("EndCapture", dev, s)
	if err != nil {
		return 0, err
	}
	if !st.foreign && !st.capturing.CompareAndSwap(true, false) {
		return 0, refuse("EndCapture", dev, gpu.ErrCapture, "no capture was begun on this stream")
	}
	var g C.CUgraph
	if r := C.fl_capture_end(d.lib, ctx, C.CUstream(s), &g); r != 0 {
		return 0, asCapture(d.fail("cuStreamEndCapture", dv, r, ""))
	}
	if g == 0 {
		return 0, refuse("EndCapture", dev, gpu.ErrCapture, "the capture was broken by an earlier call: begin again")
	}
	d.tab.Lock()
	d.graphs[gpu.Graph(g)] = dev
	d.tab.Unlock()
	return gpu.Graph(g), nil
}

// asCapture makes a capture failure of what the driver says in general terms (illegal state, invalid value).
func asCapture(err error) error {
	var e *gpu.Error
	if errors.As(err, &e) && e.Code > 0 && (e.Kind == gpu.ErrInvalidValue || e.Kind == gpu.ErrUnknown) {
		e.Kind = gpu.ErrCapture
	}
	return err
}

// onDevice finds the device of a graph or executable graph.
func onDevice[H ~uintptr](d *driver, table map[H]int, op string, dev int, what string, h H) error {
	d.tab.RLock()
	own, ok := table[h]
	d.tab.RUnlock()
	if !ok {
		own = -1
	}
	if own != dev {
		return refuseHandle(op, dev, what, uintptr(h), own)
	}
	return nil
}

func (d *driver) GraphInstantiate(dev int, g gpu.Graph) (gpu.GraphExec, error) {
	dv, ctx, err := d.begin("GraphInstantiate", dev)
	if err != nil {
		return 0, err
	}
	defer d.life.RUnlock()
	if err := onDevice(d, d.graphs, "GraphInstantiate", dev, "graph", g); err != nil {
		return 0, err
	}
	var x C.CUgraphExec
	if r := C.fl_graph_instantiate(d.lib, ctx, C.CUgraph(g), &x); r != 0 {
		return 0, d.fail("cuGraphInstantiateWithFlags", dv, r, "")
	}
	d.tab.Lock()
	d.execs[gpu.GraphExec(x)] = dev
	d.tab.Unlock()
	return gpu.GraphExec(x), nil
}

func (d *driver) GraphLaunch(dev int, x gpu.GraphExec, s gpu.Stream) error {
	dv, ctx, err := d.beginOn("GraphLaunch", dev, s)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	if err := onDevice(d, d.execs, "GraphLaunch", dev, "executable graph", x); err != nil {
		return err
	}
	if r := C.fl_graph_launch(d.lib, ctx, C.CUgraphExec(x), C.CUstream(s)); r != 0 {
		return d.fail("cuGraphLaunch", dv, r, "")
	}
	return nil
}

func (d *driver) GraphDestroy(dev int, g gpu.Graph) error {
	dv, ctx, err := d.begin("GraphDestroy", dev)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	if _, err := takeHandle(d, d.graphs, "GraphDestroy", dev, "graph", g, func(own int) int { return own }); err != nil {
		return err
	}
	if r := C.fl_graph_destroy(d.lib, ctx, C.CUgraph(g)); r != 0 {
		putHandle(d, d.graphs, g, dev)
		return d.fail("cuGraphDestroy", dv, r, "")
	}
	return nil
}

func (d *driver) GraphExecDestroy(dev int, x gpu.GraphExec) error {
	dv, ctx, err := d.begin("GraphExecDestroy", dev)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	if _, err := takeHandle(d, d.execs, "GraphExecDestroy", dev, "executable graph", x, func(own int) int { return own }); err != nil {
		return err
	}
	if r := C.fl_exec_destroy(d.lib, ctx, C.CUgraphExec(x)); r != 0 {
		putHandle(d, d.execs, x, dev)
		return d.fail("cuGraphExecDestroy", dv, r, "")
	}
	return nil
}
