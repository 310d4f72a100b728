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
	barriers [16]barrier
}

type barrier struct {
	open    bool
	want    int
	arrived []int32
	waiting []int32 // of those, the ones that stay until all have come
	clocks  clocks
	pred    int // how many passed true
}

// arrive is t at bar.sync, bar.red or bar.arrive.
func (x *exec) arrive(t *thread) bool {
	ev := &t.event
	if ev.Barrier > 15 {
		x.report(t, Finding{Kind: Faulted, Message: fmt.Sprintf("barrier %d: there are 16", ev.Barrier)})
		return false
	}
	k := &x.blocks[t.cta]
	b := &k.barriers[ev.Barrier]
	if !b.open {
		*b = barrier{open: true, want: int(ev.Threads), arrived: b.arrived[:0], waiting: b.waiting[:0]}
	}
	if b.want != int(ev.Threads) {
		x.report(t, Finding{Kind: Uneven, Message: fmt.Sprintf("barrier %d: one thread counts %d threads, another %d", ev.Barrier, ev.Threads, b.want)})
		return false
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
	t.barrier = int32(ev.Barrier)
	stays := ev.Inst.Barrier != ptx.BarrierArrive
	t.tick()
	if stays {
		b.waiting = append(b.waiting, t.index)
		t.state = waitsBarrier
	}
	x.open(t.cta, int(ev.Barrier))
	if stays && t.state == ready {
		t.held = false // open has let it go; advance goes on
		return true
	}
	return !stays && !x.over
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
	*b = barrier{arrived: b.arrived[:0], waiting: b.waiting[:0]}
}

// complete is whether all that a barrier waits for have come. It counts warps whole, whatever the block's size.
func (x *exec) complete(k *block, b *barrier) bool {
	total := 0
	for first := 0; first < len(k.threads); first += 32 {
		var in, live uint32
		for lane, i := range k.threads[first:min(first+32, len(k.threads))] {
			if x.threads[i].state != ended {
				live |= 1 << lane
			}
		}
		for _, i := range b.arrived {
			if lane := int(x.threads[i].lane) - first; lane >= 0 && lane < 32 {
				in |= 1 << lane
			}
		}
		if b.want == 0 && live&^in != 0 {
			return false
		}
		total += bits.OnesCount32(in)
		if in != 0 && live&^in == 0 {
			total += bits.OnesCount32(^(live | in))
		}
	}
	return b.want == 0 || total >= b.want
}

func b2i(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// meet is t at an operation of its warp. Only bar.warp.sync orders memory.
func (x *exec) meet(t *thread) bool {
	k := &x.blocks[t.cta]
	first := int(t.lane) / 32 * 32
	var here [32]*ptx.Thread
	var exist uint32
	for lane := 0; lane < 32 && first+lane < len(k.threads); lane++ {
		o := x.threads[k.threads[first+lane]]
		if o.state == ended {
			continue
		}
		exist |= 1 << lane
		if t.event.Mask>>lane&1 == 0 {
			continue
		}
		if o != t && (o.state != waitsWarp || o.event.Inst != t.event.Inst) {
			t.state = waitsWarp
			return false
		}
		here[lane] = o.m
	}
	ptx.Collect(here[:], exist)
	sync := t.event.Inst.Code == ptx.CodeWarpSync
	var all clocks
	for lane := range here {
		if here[lane] == nil {
			continue
		}
		o := x.threads[k.threads[first+lane]]
		if sync {
			if all == nil {
				all = x.slab.copy(o.clocks)
			} else {
				all.join(o.clocks)
			}
		}
	}
	for lane := range here {
		if here[lane] == nil {
			continue
		}
		o := x.threads[k.threads[first+lane]]
		if sync {
			o.clocks.join(all)
			o.tick()
		}
		if o != t {
			o.state, o.held = ready, false
		}
	}
	return true
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
	if k.live == 0 {
		s.resident--
		x.startBlocks(int(t.task))
	}
	if s.live == 0 && s.unstarted == 0 {
		x.finish(int(t.task))
	} else {
		x.launchedBy(t)
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
