package emu

import "github.com/fenceline/fenceline/internal/gpu"

// graph is what a capture recorded. It is immutable.
type graph struct {
	dev   *device
	nodes []node
}

func (g *graph) owner() *device { return g.dev }

// graphExec is a graph ready to run. Its launches run one after the other, whatever their streams, as
// on CUDA.
type graphExec struct {
	dev      *device
	nodes    []op
	deps     [][]int
	children [][]int
	blocked  []int // per node, dependencies that have not ended
	left     int   // nodes that have not ended
	run      *op   // the launch that is running
	queue    []*op // launches that wait for it
}

func (x *graphExec) owner() *device { return x.dev }

func (d *driver) GraphInstantiate(dev int, h gpu.Graph) (gpu.GraphExec, error) {
	const op = "GraphInstantiate"
	d.lock()
	defer d.mu.Unlock()
	v, err := d.healthy(op, dev)
	if err != nil {
		return 0, err
	}
	g, err := lookup(d, op, dev, d.graphs, h, "graph")
	if err != nil {
		return 0, err
	}
	x := newExec(v, g.nodes)
	id := gpu.GraphExec(d.handle())
	d.execs[id] = x
	d.counts.GraphExecs++
	return id, nil
}

func newExec(dev *device, nodes []node) *graphExec {
	n := len(nodes)
	x := &graphExec{dev: dev, nodes: make([]op, n), deps: make([][]int, n), children: make([][]int, n), blocked: make([]int, n)}
	for i := range nodes {
		o := &x.nodes[i]
		nodes[i].op.copyInto(o)
		o.exec, o.node = x, i
		x.deps[i] = nodes[i].deps
		for _, p := range nodes[i].deps {
			x.children[p] = append(x.children[p], i)
		}
	}
	return x
}

func (d *driver) GraphLaunch(dev int, h gpu.GraphExec, sh gpu.Stream) error {
	const op = "GraphLaunch"
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(op, dev, sh)
	if err != nil {
		return err
	}
	x, err := lookup(d, op, dev, d.execs, h, "instantiated graph")
	if err != nil {
		return err
	}
	for i := range x.nodes {
		o := &x.nodes[i]
		if o.fn != nil && o.fn.module.unloaded {
			return fail(op, dev, gpu.ErrInvalidHandle, "the graph launches %s of the module %s, which has been unloaded", o.fn.name, o.fn.module.name)
		}
		if o.dev.fault != nil {
			return o.dev.fault
		}
	}
	if s.capture != nil {
		return x.inline(op, s)
	}
	o := d.newOp(opGraph, s.dev)
	o.exec = x
	return d.submit(op, s, o)
}

// inline makes the graph's nodes part of the graph being captured on s.
func (x *graphExec) inline(op string, s *stream) error {
	if err := s.capture.check(op, s); err != nil {
		return err
	}
	at := make([]int, len(x.nodes))
	var leaves []int
	for i := range x.nodes {
		deps := s.deps
		if len(x.deps[i]) > 0 {
			deps = nil
			for _, p := range x.deps[i] {
				deps = append(deps, at[p])
			}
		}
		at[i] = s.capture.add(&x.nodes[i], deps)
		if len(x.children[i]) == 0 {
			leaves = append(leaves, at[i])
		}
	}
	if len(leaves) > 0 {
		s.deps = leaves
	}
	return nil
}

// beginGraph starts one launch of a graph, or lines it up behind the one that is running.
func (d *driver) beginGraph(o *op) {
	x := o.exec
	if x.run != nil {
		x.queue = append(x.queue, o)
		return
	}
	x.run, x.left = o, len(x.nodes)
	if x.left == 0 {
		d.endGraph(x)
		return
	}
	for i := range x.nodes {
		n := &x.nodes[i]
		n.placed, n.finished = 0, 0
		x.blocked[i] = len(x.deps[i])
		if x.blocked[i] == 0 {
			d.sched.starting = append(d.sched.starting, n)
		}
	}
}

// finishNode lines up the nodes that waited for this one alone, and ends the launch after the last.
func (d *driver) finishNode(o *op) {
	x := o.exec
	for _, c := range x.children[o.node] {
		if x.blocked[c]--; x.blocked[c] == 0 {
			d.sched.starting = append(d.sched.starting, &x.nodes[c])
		}
	}
	if x.left--; x.left == 0 {
		d.endGraph(x)
	}
}

func (d *driver) endGraph(x *graphExec) {
	o := x.run
	x.run = nil
	if len(x.queue) > 0 {
		d.sched.starting = append(d.sched.starting, x.queue[0])
		x.queue = append(x.queue[:0], x.queue[1:]...)
	}
	d.finish(o)
}

func (d *driver) GraphDestroy(dev int, h gpu.Graph) error {
	const op = "GraphDestroy"
	d.lock()
	defer d.mu.Unlock()
	v, err := d.device(op, dev)
	if err != nil {
		return err
	}
	if _, err := lookup(d, op, dev, d.graphs, h, "graph"); err != nil {
		return err
	}
	delete(d.graphs, h)
	d.counts.Graphs--
	return v.fault
}

// GraphExecDestroy implements gpu.Driver. Launches that are queued still run.
func (d *driver) GraphExecDestroy(dev int, h gpu.GraphExec) error {
	const op = "GraphExecDestroy"
	d.lock()
	defer d.mu.Unlock()
	v, err := d.device(op, dev)
	if err != nil {
		return err
	}
	if _, err := lookup(d, op, dev, d.execs, h, "instantiated graph"); err != nil {
		return err
	}
	delete(d.execs, h)
	d.counts.GraphExecs--
	return v.fault
}
