package emu

import (
	"fmt"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

type opKind int

const (
	opKernel opKind = iota + 1
	opCopy
	opMemset
	opIn  // from Go memory
	opOut // to Go memory
	opRecord
	opWait
	opGraph
)

// op is one piece of queued work: an element of a stream's queue, or a node of a graph.
type op struct {
	kind   opKind
	dev    *device
	stream *stream    // nil for a node
	next   *op        // in the stream's queue, or among the spare ones
	exec   *graphExec // of a node: its graph; of opGraph: what to run
	node   int        // of a node: its index

	// Kernels.
	fn       *function
	launch   ptx.Launch
	params   []byte // backs launch.Params
	threads  int    // of one block, in whole warps
	shared   int    // of one block, with the system's share
	grid     uint64 // blocks
	placed   uint64 // blocks that became resident
	finished uint64

	// Copies and memsets.
	dst, src gpu.Ptr
	n        uint64
	value    byte
	peer     bool   // CopyPeer: needs no peer access
	mem      []byte // Go memory, while its call waits

	rec *record // of opRecord and opWait
}

// record is one recording of an event.
type record struct {
	done    bool
	at      time.Time
	waiters []*op // at the heads of their streams
}

// block is a resident thread block.
type block struct {
	op *op
	b  *ptx.Block
	sm int
}

// newOp takes a spare op, or makes one.
func (d *driver) newOp(kind opKind, dev *device) *op {
	o := d.sched.spare
	if o == nil {
		o = &op{}
	} else {
		d.sched.spare = o.next
	}
	o.kind, o.dev, o.next = kind, dev, nil
	return o
}

// recycle keeps an op for later, with the buffers that make the next launch free of allocation.
func (d *driver) recycle(o *op) {
	*o = op{params: o.params[:0], next: d.sched.spare}
	d.sched.spare = o
}

// copyInto makes dst, a new op, do the same as o.
func (o *op) copyInto(dst *op) {
	params := append(dst.params[:0], o.params...)
	*dst = *o
	dst.params = params
	dst.launch.Params = params
	dst.stream, dst.next, dst.exec = nil, nil, nil
	dst.placed, dst.finished = 0, 0
}

// perform does an op that takes no emulated time. It returns the fault, if one stopped it.
func (d *driver) perform(o *op) *gpu.FaultError {
	switch o.kind {
	case opCopy:
		dst, err := d.engine(o, o.dst, true)
		if err != nil {
			return err
		}
		src, err := d.engine(o, o.src, false)
		if err != nil {
			return err
		}
		copy(dst, src)
	case opMemset:
		dst, err := d.engine(o, o.dst, true)
		if err != nil {
			return err
		}
		fill(dst, o.value)
	case opIn:
		dst, err := d.engine(o, o.dst, true)
		if err != nil {
			return err
		}
		copy(dst, o.mem)
	case opOut:
		src, err := d.engine(o, o.src, false)
		if err != nil {
			return err
		}
		copy(o.mem, src)
	case opRecord:
	default:
		panic(fmt.Sprintf("emu: op kind %d has no immediate effect", o.kind))
	}
	return nil
}

// engine is memory as the copy engine reaches it. What was valid when the op was queued may be gone by now.
func (d *driver) engine(o *op, p gpu.Ptr, write bool) ([]byte, *gpu.FaultError) {
	data, a, why := d.slice(p, o.n)
	if why == "" && !o.peer && a.owner != hostOwner && a.owner != o.dev.ordinal {
		if err := o.dev.view.reach(a.owner, a, write); err != nil {
			why = err.Error()
		}
	}
	if why == "" {
		return data, nil
	}
	name := "copy"
	if o.kind == opMemset {
		name = "memset"
	}
	return nil, &gpu.FaultError{Kind: gpu.ErrIllegalAddress, Device: o.dev.ordinal, Kernel: name, Addr: uint64(p), Size: int(o.n), Detail: why}
}
