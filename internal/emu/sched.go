package emu

import (
	"math/rand/v2"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// A slice is what one driving call runs before it lets go of the mutex: about a millisecond. It is counted in
// warp instructions, not in time, so that a seed gives one schedule.
const (
	sliceCost  = 1 << 14 // warp instructions
	pollCost   = 1 << 10 // of the slices of calls that poll
	stepCost   = 32      // of choosing and switching
	byteCost   = 256     // bytes copied for the price of one warp instruction
	wakeEvery  = 16      // steps between looks at the blocks in nanosleep
	maxQuantum = 11      // a block runs 1, 2, 4, … 2^(maxQuantum-1) warp instructions at a time
)

// unit is what the scheduler chooses among: a resident block, or an op that takes no time.
type unit struct {
	op  *op
	blk *block // nil for the latter
}

// scheduler holds the work that can run. It belongs to the driver, under its mutex.
type scheduler struct {
	rng      *rand.Rand
	ready    []unit
	asleep   []unit                       // blocks in nanosleep
	stuck    []unit                       // what waits for an access that never completes, until a fault or the end
	starting []*op                        // heads of streams, and nodes, to begin before the next step
	placing  uint32                       // its SM
	clock    func() uint64                // %globaltimer
	smid     func(block [3]uint32) uint32 // %smid of the block being placed
	spare    *op                          // a list of ops for reuse
	steps    uint64

	driving bool      // some call drives; the others wait for it
	waiters []*waiter // those others
	news    bool      // something ended since the waiters were last looked at
}

// stop drops all work and wakes every waiter.
func (s *scheduler) stop() {
	s.ready, s.asleep, s.stuck, s.starting, s.spare = nil, nil, nil, nil, nil
	for _, w := range s.waiters {
		w.wake()
	}
	s.waiters = nil
}

// run lets one slice of emulated time pass, or less once g is met or others need the mutex.
// idle says that nothing could run, or that everything sleeps.
func (d *driver) run(g *goal, cost int) (idle bool) {
	s := &d.sched
	d.pump()
	d.rouse()
	for cost > 0 && len(s.ready) > 0 {
		cost -= d.step() + stepCost
		d.pump()
		if s.news {
			s.news = false
			d.notify()
			if g != nil && g.met(d) {
				return false
			}
		}
		if d.urgent.Load() > 0 {
			return false
		}
		if s.steps++; s.steps%wakeEvery == 0 {
			d.rouse()
		}
	}
	return len(s.ready) == 0
}

// rouse makes sleeping blocks candidates again: those that still sleep say so when they run.
func (d *driver) rouse() {
	d.sched.ready = append(d.sched.ready, d.sched.asleep...)
	d.sched.asleep = d.sched.asleep[:0]
}

// step chooses one unit and runs it. It returns what that cost.
func (d *driver) step() int {
	s := &d.sched
	i := s.rng.IntN(len(s.ready))
	u := s.ready[i]
	if u.blk == nil {
		s.remove(i)
		stalled, err := d.perform(u.op)
		switch {
		case stalled:
			s.stuck = append(s.stuck, u)
			return 0
		case err != nil:
			d.fault(u.op.dev, err)
			d.finish(u.op)
			return 0
		}
		cost := int(u.op.n / byteCost)
		d.finish(u.op)
		return cost
	}
	before, _ := u.blk.b.Counts()
	state, err := u.blk.b.Run(ptx.Quantum{Warps: 1 << s.rng.IntN(maxQuantum), Rand: s.rng})
	after, _ := u.blk.b.Counts()
	switch {
	case err != nil:
		d.fault(u.op.dev, kernelFault(u.op.dev, u.op, err, after))
	case state == ptx.Sleeping:
		s.remove(i)
		s.asleep = append(s.asleep, u)
	case state == ptx.Stalled:
		s.remove(i)
		s.stuck = append(s.stuck, u)
	case state == ptx.Done:
		s.remove(i)
		d.retire(u.blk)
	}
	return int(after - before)
}

func (s *scheduler) remove(i int) {
	last := len(s.ready) - 1
	s.ready[i] = s.ready[last]
	s.ready[last] = unit{}
	s.ready = s.ready[:last]
}

// pump begins everything whose turn has come.
func (d *driver) pump() {
	s := &d.sched
	for i := 0; i < len(s.starting); i++ { // it grows meanwhile
		d.begin(s.starting[i])
	}
	clear(s.starting)
	s.starting = s.starting[:0]
}

// begin starts an op whose predecessors have ended. On a faulted device it ends at once, undone.
func (d *driver) begin(o *op) {
	s := &d.sched
	switch {
	case o.dev.fault != nil:
		d.finish(o)
	case o.kind == opKernel:
		o.dev.grids = append(o.dev.grids, o)
		d.dispatch(o.dev)
	case o.kind == opWait && o.rec.done:
		d.finish(o)
	case o.kind == opWait:
		o.rec.waiters = append(o.rec.waiters, o)
	case o.kind == opGraph:
		d.beginGraph(o)
	default:
		s.ready = append(s.ready, unit{op: o})
	}
}

// dispatch places blocks while there is room. As on hardware, a grid's blocks all go before the next grid's.
func (d *driver) dispatch(dev *device) {
	for len(dev.grids) > 0 {
		o := dev.grids[0]
		for ; o.placed < o.grid; o.placed++ {
			i, ok := dev.claim(o)
			if !ok {
				return
			}
			gx, gy := uint64(o.launch.Grid[0]), uint64(o.launch.Grid[1])
			id := [3]uint32{uint32(o.placed % gx), uint32(o.placed / gx % gy), uint32(o.placed / gx / gy)}
			d.sched.placing = uint32(i)
			b, err := ptx.NewBlock(&o.launch, id)
			if err != nil {
				d.fault(dev, kernelFault(dev, o, err, 0))
				return
			}
			d.sched.ready = append(d.sched.ready, unit{op: o, blk: &block{op: o, b: b, sm: i}})
		}
		dev.grids[0] = nil
		dev.grids = dev.grids[1:]
	}
}

// retire ends a block.
func (d *driver) retire(b *block) {
	o := b.op
	dev := o.dev // finish may reuse o
	dev.release(b.sm, o)
	if o.finished++; o.finished == o.grid {
		d.finish(o)
	}
	d.dispatch(dev)
}

// finish ends an op, done or dropped, and lines up what waited for it.
func (d *driver) finish(o *op) {
	s := &d.sched
	s.news = true
	if o.kind == opRecord {
		o.rec.done, o.rec.at = true, time.Now()
		for _, w := range o.rec.waiters {
			d.finish(w)
		}
		o.rec.waiters = nil
	}
	if o.stream == nil {
		d.finishNode(o)
		return
	}
	q := o.stream
	q.head = o.next
	q.completed++
	if q.head != nil {
		s.starting = append(s.starting, q.head)
	} else {
		q.tail = nil
		if q.destroyed {
			d.forget(q)
		}
	}
	d.recycle(o)
}

// fault makes a device unusable: its work is dropped, and whoever waits on it, on other devices too,
// is let go. The first fault stays.
func (d *driver) fault(dev *device, err *gpu.FaultError) {
	if dev.fault != nil {
		return
	}
	dev.fault = err
	s := &d.sched
	s.news = true
	var dropped []*op // each once, in a fixed order
	seen := map[*op]bool{}
	drop := func(o *op) {
		if !seen[o] {
			seen[o] = true
			dropped = append(dropped, o)
		}
	}
	keep := func(list []unit) []unit {
		kept := list[:0]
		for _, u := range list {
			if u.op.dev == dev {
				drop(u.op)
			} else {
				kept = append(kept, u)
			}
		}
		clear(list[len(kept):])
		return kept
	}
	s.ready, s.asleep, s.stuck = keep(s.ready), keep(s.asleep), keep(s.stuck)
	for _, o := range dev.grids {
		drop(o)
	}
	dev.grids = nil
	clear(dev.sms)
	for _, q := range d.queues {
		if o := q.head; o != nil && q.dev == dev && o.kind == opWait && o.rec.leave(o) {
			drop(o)
		}
	}
	for _, o := range dropped {
		d.finish(o)
	}
}

// leave takes o off the waiters, if it is one.
func (r *record) leave(o *op) bool {
	for i, w := range r.waiters {
		if w == o {
			r.waiters = append(r.waiters[:i], r.waiters[i+1:]...)
			return true
		}
	}
	return false
}
