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

// perform does an op that takes no emulated time. stalled says that it never ends; otherwise it returns the
// fault, if one stopped it.
func (d *driver) perform(o *op) (stalled bool, fault *gpu.FaultError) {
	if o.kind == opRecord {
		return false, nil
	}
	var dst, src end
	if o.kind != opOut {
		if dst, fault = d.engine(o, o.dst, true); fault != nil {
			return false, fault
		}
	}
	if o.kind == opCopy || o.kind == opOut {
		if src, fault = d.engine(o, o.src, false); fault != nil {
			return false, fault
		}
	}
	if dst.outcome == Stalls || src.outcome == Stalls {
		return true, nil
	}
	switch o.kind {
	case opMemset:
		if dst.outcome != Vanishes {
			fill(dst.data, o.value)
		}
		return false, nil
	case opIn:
		src.data = o.mem
	case opOut:
		dst.data = o.mem
	case opCopy:
	default:
		panic(fmt.Sprintf("emu: op kind %d has no immediate effect", o.kind))
	}
	switch {
	case dst.outcome == Vanishes:
	case src.outcome == Ones:
		fill(dst.data, 0xff)
	case src.outcome == Zeroes:
		fill(dst.data, 0)
	default:
		copy(dst.data, src.data)
	}
	return false, nil
}

// end is one side of what the copy engine does.
type end struct {
	data    []byte
	outcome Outcome
}

// engine is memory as the copy engine reaches it. What was valid when the op was queued may be gone by now.
// CopyPeer goes across the pair when peer access is enabled, with the pair's faults, and through the host when it
// is not.
func (d *driver) engine(o *op, p gpu.Ptr, write bool) (end, *gpu.FaultError) {
	data, a, why := d.slice(p, o.n)
	e := end{data: data}
	if why == "" && a.owner != hostOwner && a.owner != o.dev.ordinal {
		if !o.peer {
			if err := o.dev.view.reach(a.owner, a); err != nil {
				why = err.Error()
			}
		}
		switch l := &o.dev.links[a.owner]; {
		case !o.dev.peers[a.owner]:
		case write:
			e.outcome = l.Stores
		default:
			e.outcome = l.Loads
		}
	}
	if why == "" {
		return e, nil
	}
	name := "copy"
	if o.kind == opMemset {
		name = "memset"
	}
	return end{}, &gpu.FaultError{Kind: gpu.ErrIllegalAddress, Device: o.dev.ordinal, Kernel: name, Addr: uint64(p), Size: int(o.n), Detail: why}
}
