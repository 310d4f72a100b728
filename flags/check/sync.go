package check

import (
	"fmt"
	"math/bits"

	"github.com/fenceline/fenceline/internal/ptx"
)

// block is one thread block that has been started.
type block struct {
	threads  []int32 // in exec.threads
	live     int
	launched bool // it has let dependents start, or ended
	barriers [16]barrier
}

type barrier struct {
	open    bool
	want    int
	arrived []int32
	waiting []int32 // of those, the ones that stay until all have come
	first   event   // of the arrivals
	clocks  clocks
	before  clocks // those of the round before, if it was for so many threads
	pred    int    // how many passed true
}

// arrive is t at bar.sync, bar.red or bar.arrive.
func (x *exec) arrive(t *thread) bool {
	ev := &t.event
	if ev.Barrier > 15 {
		x.report(t, Finding{Kind: Faulted, Message: fmt.Sprintf("barrier %d: there are 16", ev.Barrier)})
		return false
	}
	if !ev.Inst.Aligned || x.p.Racy { // a thread of a litmus test stands for a warp
		x.count(t)
	} else if x.converged(t) {
		for _, i := range x.warp(t) {
			if o := x.threads[i]; o.state != ended && !x.over {
				x.count(o)
			}
		}
	} else {
		return false
	}
	if x.over {
		return false
	}
	x.open(t.cta, int(ev.Barrier))
	return t.state == ready
}

// warp are the threads of t's warp.
func (x *exec) warp(t *thread) []int32 {
	all := x.blocks[t.cta].threads
	first := int(t.lane) / 32 * 32
	return all[first:min(first+32, len(all))]
}

// converged is whether all of t's warp has come to the barrier that t is at; otherwise t waits for the others. An aligned
// barrier is one that all of a warp execute together, and the warp arrives as one.
func (x *exec) converged(t *thread) bool {
	all := true
	for _, i := range x.warp(t) {
		o := x.threads[i]
		if o == t || o.state == ended {
			continue
		}
		if o.state != waitsWarp || o.event.Kind != ptx.Barrier {
			all = false
			continue
		}
		in := t.event.Inst
		why := ""
		if o.event.Inst != in {
			why = "threads of one warp are at different barriers that are aligned: all of the warp must execute the same one"
		} else if n := o.event.Barrier; n != t.event.Barrier {
			why = fmt.Sprintf("threads of one warp are at barriers %d and %d, which are aligned: all of the warp must be at one", n, t.event.Barrier)
		} else {
			continue
		}
		x.report(t, Finding{Kind: Uneven, Message: why, A: x.describe(o.now(o.event.Inst), false),
			Missing: "barrier.sync without .aligned, or one instruction that all of the warp execute"})
		return false
	}
	if !all {
		t.state = waitsWarp
	}
	return all
}

// count is the arrival of one thread.
func (x *exec) count(t *thread) {
	ev := &t.event
	b := &x.blocks[t.cta].barriers[ev.Barrier]
	if !b.open {
		*b = barrier{open: true, want: int(ev.Threads), arrived: b.arrived[:0], waiting: b.waiting[:0], first: t.now(ev.Inst), before: b.before}
	}
	if b.want != int(ev.Threads) {
		x.report(t, Finding{Kind: Uneven, Message: fmt.Sprintf("barrier %d: one thread counts %d threads, another %d", ev.Barrier, ev.Threads, b.want)})
		return
	}
	if one, other := b.first.inst.Barrier, ev.Inst.Barrier; one != other && (one.Reduces() || other.Reduces()) {
		why := "one thread reduces, and another does not: what comes of it is unpredictable"
		if one.Reduces() && other.Reduces() {
			why = "threads reduce in different ways"
		}
		x.report(t, Finding{Kind: Uneven, A: x.describe(b.first, false), Message: fmt.Sprintf("barrier %d: %s", ev.Barrier, why)})
		return
	}
	if b.want != 0 && !t.clocks.after(b.before) {
		x.cut(fmt.Sprintf("which threads meet at barrier %d depends on who comes first", ev.Barrier))
	}
	if b.clocks == nil {
		b.clocks = x.slab.copy(t.clocks)
	} else {
		b.clocks.join(t.clocks)
	}
	b.arrived = append(b.arrived, t.index)
	if ev.Pred {
		b.pred++
	}
	t.tick()
	if ev.Inst.Barrier == ptx.BarrierArrive {
		t.state, t.held = ready, false
		return
	}
	b.waiting = append(b.waiting, t.index)
	t.state = waitsBarrier
}

// open lets the threads at a barrier go if all have come.
func (x *exec) open(cta int32, id int) {
	k := &x.blocks[cta]
	b := &k.barriers[id]
	if !b.open {
		return
	}
	if !x.complete(k, b) {
		return
	}
	for _, i := range b.waiting {
		t := x.threads[i]
		n := t.clocks[t.id]
		t.clocks.join(b.clocks)
		t.clocks[t.id] = n
		var r uint64
		switch t.event.Inst.Barrier {
		case ptx.BarrierAnd:
			r = b2i(b.pred == len(b.arrived))
		case ptx.BarrierOr:
			r = b2i(b.pred > 0)
		case ptx.BarrierPopc:
			r = uint64(b.pred)
		}
		if t.event.Inst.Barrier.Reduces() {
			t.m.BarrierResult(r)
		}
		t.state, t.held = ready, false
	}
	before := b.clocks
	if b.want == 0 {
		before = nil
	}
	*b = barrier{arrived: b.arrived[:0], waiting: b.waiting[:0], before: before}
}

// complete is whether all that a barrier waits for have come. It counts warps whole, whatever the block's size.
func (x *exec) complete(k *block, b *barrier) bool {
	var in [32]uint32 // lanes of each warp
	var again [32]int // further arrivals of those
	for _, i := range b.arrived {
		w, lane := x.threads[i].lane/32, uint(x.threads[i].lane%32)
		if in[w]>>lane&1 == 1 {
			again[w]++
		}
		in[w] |= 1 << lane
	}
	total := 0
	for w := 0; 32*w < len(k.threads); w++ {
		var live uint32
		for lane, i := range k.threads[32*w : min(32*w+32, len(k.threads))] {
			if x.threads[i].state != ended {
				live |= 1 << lane
			}
		}
		if b.want == 0 && live&^in[w] != 0 {
			return false
		}
		n := bits.OnesCount32(in[w])
		total += n + again[w]
		if n > 0 && live&^in[w] == 0 {
			total += bits.OnesCount32(^(live | in[w])) + again[w]*32/n - again[w]
		}
	}
	return b.want == 0 || total >= b.want
}

// abandoned reports a barrier that a block which has ended leaves behind.
func (x *exec) abandoned(t *thread) {
	k := &x.blocks[t.cta]
	for id := range k.barriers {
		b := &k.barriers[id]
		if !b.open || x.over {
			continue
		}
		x.report(t, Finding{Kind: Uneven, B: x.describe(b.first, false),
			Message: fmt.Sprintf("the block ends with barrier %d open: %d threads have come, and it counts %d", id, len(b.arrived), b.want)})
	}
}

func b2i(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// meet is t at an operation of its warp. Only bar.warp.sync orders memory. Threads meet whose masks are the same and
// whose operations are, at whichever instruction.
func (x *exec) meet(t *thread) bool {
	k := &x.blocks[t.cta]
	first := int(t.lane) / 32 * 32
	own := t.event.Mask
	if own>>(t.lane%32)&1 == 0 {
		x.report(t, Finding{Kind: Uneven, Message: fmt.Sprintf("the mask %#x does not name the thread itself, which is lane %d", own, t.lane%32)})
		return false
	}
	var here [32]*ptx.Thread
	var exist uint32
	all := true
	for lane, i := range x.warp(t) {
		o := x.threads[i]
		if o.state == ended {
			continue
		}
		exist |= 1 << lane
		switch {
		case own>>lane&1 == 0:
		case o == t:
			here[lane] = t.m
		case o.state != waitsWarp || !sameOperation(o.event.Inst, t.event.Inst):
			all = false
		case o.event.Mask == own:
			here[lane] = o.m
		case o.event.Mask>>(t.lane%32)&1 == 1:
			x.report(t, Finding{Kind: Uneven, A: x.describe(o.now(o.event.Inst), false),
				Message: fmt.Sprintf("threads of one warp wait for each other with different masks: %#x and %#x", o.event.Mask, own),
				Missing: "the same mask in both"})
			return false
		default:
			all = false
		}
	}
	if !all {
		t.state = waitsWarp
		return false
	}
	ptx.Collect(here[:], exist)
	sync := t.event.Inst.Code == ptx.CodeWarpSync
	var joined clocks
	for lane := range here {
		if here[lane] == nil {
			continue
		}
		o := x.threads[k.threads[first+lane]]
		if sync {
			if joined == nil {
				joined = x.slab.copy(o.clocks)
			} else {
				joined.join(o.clocks)
			}
		}
	}
	for lane := range here {
		if here[lane] == nil {
			continue
		}
		o := x.threads[k.threads[first+lane]]
		if sync {
			o.clocks.join(joined)
			o.tick()
		}
		if o != t {
			o.state, o.held = ready, false
		}
	}
	return true
}

func sameOperation(a, b *ptx.Inst) bool {
	return a == b || a.Kind == ptx.Collective && a.Code == b.Code && (a.Code == ptx.CodeWarpSync || a.Operation == b.Operation)
}

// exit ends t, and what waited for it alone.
func (x *exec) exit(t *thread) {
	t.state = ended
	k := &x.blocks[t.cta]
	k.live--
	s := &x.tasks[t.task]
	s.live--
	s.done.join(t.clocks)
	for id := range k.barriers {
		x.open(t.cta, id)
	}
	x.regroup(t)
	if k.live > 0 {
		return
	}
	x.abandoned(t)
	x.launched(t)
	s.resident--
	x.startBlocks(int(t.task))
	if s.live == 0 && s.unstarted == 0 {
		x.finish(int(t.task))
	}
}

// regroup looks again at the warp that t has left: the others may have waited for it.
func (x *exec) regroup(t *thread) {
	k := &x.blocks[t.cta]
	first := int(t.lane) / 32 * 32
	for lane := first; lane < first+32 && lane < len(k.threads); lane++ {
		if o := x.threads[k.threads[lane]]; o.state == waitsWarp {
			o.state = ready // it tries again
		}
	}
}

// litter is what word k of a block's shared memory holds until somebody writes it: a kernel that depends on it has wrong
// results.
func litter(block, k int) uint32 { return uint32(mix(uint64(block)<<32|uint64(k+1))) | 0x01010101 }
