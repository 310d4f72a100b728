package ptx

import (
	"math/bits"
	"sync"
)

// The registers of a warp that runs one collective: its operands and results, whatever the thread's.
const (
	meetD = iota
	meetC
	meetE
	meetRegs
)

var meetings = sync.Pool{New: func() any {
	return &warp{r32: make([][32]uint32, meetRegs), pr: make([]uint32, meetRegs)}
}}

// Collect answers the Collective events of one warp's threads, which take part together: threads[lane] for each
// participant, nil for the others, and lanes outside exist do not count. Results are those that a Block gives. The
// participants may be at different instructions, if these are of one kind.
func Collect(threads []*Thread, exist uint32) {
	w := meetings.Get().(*warp)
	defer meetings.Put(w)
	var all uint32
	var val [32]uint64
	for lane, t := range threads {
		if t == nil || lane > 31 || exist>>lane&1 == 0 {
			continue
		}
		if t.state != asked || t.ev.Kind != Collective {
			panic("ptx: the thread is at no collective")
		}
		all |= 1 << lane
		if o := &t.prog.ops[t.pc]; o.ka != kNone {
			val[lane] = t.regs[o.a]
		}
	}
	for left := all; left != 0; {
		first := threads[bits.TrailingZeros32(left)]
		pc := first.pc
		var mask uint32
		for m := left; m != 0; m &= m - 1 {
			if i := bits.TrailingZeros32(m); threads[i].pc == pc {
				mask |= 1 << i
			}
		}
		left &^= mask
		together(w, &first.prog.ops[pc], threads, mask, all, &val)
	}
}

// together runs a collective for the lanes of mask, which are at o; all take part.
func together(w *warp, o *op, threads []*Thread, mask, all uint32, val *[32]uint64) {
	w.ghost = 0
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		if o.kc == k32 {
			w.r32[meetC][i] = uint32(threads[i].regs[o.c])
		}
		if o.ke == k32 {
			w.r32[meetE][i] = uint32(threads[i].regs[o.e])
		}
	}
	local := op{code: o.code, sub: o.sub, fn: o.fn, kd: o.kd, kd2: o.kd2, d: 0, d2: 1, c: meetC, e: meetE}
	w.scatter(&local, mask, all, val)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		t := threads[i]
		switch o.kd {
		case k32:
			t.set(o.d, uint64(w.r32[meetD][i]))
		case kPred:
			t.set(o.d, uint64(w.pr[0]>>i&1))
		}
		if o.kd2 != kNone {
			t.set(o.d2, uint64(w.pr[1]>>i&1))
		}
		t.pc++
		t.state = runs
	}
}
