package ptx

import (
	"errors"
	"math/bits"
)

// warp is 32 lanes that share one program. Lanes that have parted are in different fragments.
type warp struct {
	b     *Block
	ops   []op
	id    int
	r32   [][32]uint32
	r64   [][32]uint64
	pr    []uint32
	local []byte

	exist uint32 // lanes that the block's size gives this warp
	live  uint32 // and that have not exited
	ghost uint32 // the others: they may be written freely

	frags     []frag
	cur       int // the running fragment, -1 when none
	turn      int // fragment that was last let ahead of its turn
	fragSpace [4]frag

	polled *op  // last load since the last backward branch
	strong bool // and it was one that watches others: volatile, relaxed, acquire, atomic

	t32 [32]uint32 // results on their way to some of the lanes
	t64 [32]uint64
	x   [3][32]uint64 // operands of scalar functions
	ea  [32]uint64    // addresses
}

type fragState uint8

const (
	fragReady fragState = iota
	fragSleep           // until wake
	fragBar             // at barrier bar
	fragSync            // at a warp-level collective, pc still on it
	fragStall           // at an access that never completes
)

// frag is a set of lanes at one place.
type frag struct {
	mask  uint32
	pc    int32
	state fragState
	bar   uint8
	spins int32  // backward branches while other fragments waited
	wake  uint64 // nanoseconds
	at    *op    // what it waits at
}

// A fragment that goes round a loop while others of its warp wait is made to stand aside after
// spinLimit turns, for asideSteps instructions of another. A turn that polls memory counts pollWeight.
const (
	spinLimit  = 4096
	pollWeight = 512
	asideSteps = 1024
)

// ready tells whether some fragment can run, else whether one sleeps or, failing that, is held up for ever.
// Sleepers whose time has come wake up.
func (w *warp) ready() (ready, sleeping, stalled bool) {
	now := uint64(0)
	for i := range w.frags {
		f := &w.frags[i]
		if f.state == fragSleep {
			if now == 0 {
				now = w.b.now()
			}
			if now >= f.wake {
				f.state = fragReady
			} else {
				sleeping = true
			}
		}
		switch f.state {
		case fragReady:
			ready = true
		case fragStall:
			stalled = true
		}
	}
	return ready, sleeping, stalled
}

// pick makes the ready fragment that is furthest behind current, joined by those at the same place,
// and returns how far it may run before it meets another.
func (w *warp) pick() (limit int32, ok bool) {
	best := -1
	for i := range w.frags {
		if f := &w.frags[i]; f.state == fragReady && (best < 0 || f.pc < w.frags[best].pc) {
			best = i
		}
	}
	w.cur = best
	if best < 0 {
		return 0, false
	}
	return w.join(), true
}

// join merges the ready fragments at the current one's place into it and returns the place of the
// next one ahead.
func (w *warp) join() int32 {
	limit := int32(noLimit)
	if len(w.frags) == 1 {
		return limit
	}
	pc := w.frags[w.cur].pc
	for i := len(w.frags) - 1; i >= 0; i-- {
		f := &w.frags[i]
		if i == w.cur || f.state != fragReady {
			continue
		}
		if f.pc == pc {
			w.frags[w.cur].mask |= f.mask
			w.frags[w.cur].spins = 0
			w.drop(i)
		} else if f.pc > pc {
			limit = min(limit, f.pc)
		}
	}
	return limit
}

// drop removes a fragment and keeps cur on the one it names.
func (w *warp) drop(i int) {
	last := len(w.frags) - 1
	w.frags[i] = w.frags[last]
	w.frags = w.frags[:last]
	switch w.cur {
	case i:
		w.cur = -1
	case last:
		w.cur = i
	}
}

// aside makes a fragment other than the current one current, in turn.
func (w *warp) aside() bool {
	n := len(w.frags)
	for i := 1; i <= n; i++ {
		k := (w.turn + i) % n
		if k != w.cur && w.frags[k].state == fragReady {
			w.frags[w.cur].spins = 0
			w.turn, w.cur = k, k
			return true
		}
	}
	return false
}

// next is the operation that the warp is at, and the lanes there.
func (w *warp) next() (*op, uint32) {
	f := &w.frags[0]
	if w.cur >= 0 {
		f = &w.frags[w.cur]
	}
	return &w.ops[f.pc], f.mask
}

// run executes up to n instructions. It returns early when nothing in the warp can run, or (polled)
// when it has polled memory and found nothing new.
func (w *warp) run(n int) (done int, polled bool, fault *Fault) {
	limit, ok := w.pick()
	if !ok {
		return 0, false, nil
	}
	ops := w.ops
	pc, lanes := w.frags[w.cur].pc, w.frags[w.cur].mask
	since, bounded := 0, n // done when the fragment began, and when it must stop if let ahead
	for done < n {
		if pc >= limit || done >= bounded {
			w.leave(pc, done-since)
			limit, _ = w.pick()
			pc, lanes, since, bounded = w.frags[w.cur].pc, w.frags[w.cur].mask, done, n
		}
		o := &ops[pc]
		mask := lanes
		if o.guard >= 0 {
			g := w.pr[o.guard]
			if o.gneg {
				g = ^g
			}
			mask &= g
		}
		if o.code < opFirstMem {
			done++
			pc++
			if mask != 0 {
				w.alu(o, mask)
			}
			continue
		}
		if o.code < opFirstFlow {
			done++
			if mask != 0 {
				if fault = w.access(o, mask); fault != nil {
					w.leave(pc, done-since)
					if fault != unanswered {
						return done, false, fault
					}
					w.frags[w.cur].state, w.frags[w.cur].at = fragStall, o
					since = done
					if limit, ok = w.pick(); !ok {
						return done, false, nil
					}
					pc, lanes, bounded = w.frags[w.cur].pc, w.frags[w.cur].mask, n
					continue
				}
			}
			pc++
			continue
		}
		if o.code == opJump || o.code == opBranch && (mask == 0 || mask == lanes) {
			// The whole fragment goes one way.
			if o.code != opJump {
				done++
			}
			from := pc
			pc++
			if mask != 0 {
				pc = o.target
			}
			if pc > from {
				continue
			}
			poll, aside := w.turned(o)
			if poll || aside {
				w.leave(pc, done-since)
				since = done
			}
			if aside && w.aside() {
				pc, lanes = w.frags[w.cur].pc, w.frags[w.cur].mask
				limit, bounded = noLimit, done+asideSteps
				continue
			}
			if poll {
				return done, true, nil
			}
			continue
		}
		done++
		w.leave(pc, done-since)
		since = done
		if fault = w.flow(o, mask); fault != nil {
			return done, false, fault
		}
		if limit, ok = w.pick(); !ok {
			return done, false, nil
		}
		pc, lanes, bounded = w.frags[w.cur].pc, w.frags[w.cur].mask, n
	}
	w.leave(pc, done-since)
	return done, false, nil
}

// leave writes the current fragment's place back and counts the instructions it has executed.
func (w *warp) leave(pc int32, count int) {
	f := &w.frags[w.cur]
	f.pc = pc
	w.b.steps += uint64(count)
	w.b.threads += uint64(count) * uint64(bits.OnesCount32(f.mask))
}

// turned notes that the current fragment went round a loop. poll: the turn watched memory that others
// write. aside: it has gone round long enough while other lanes wait.
func (w *warp) turned(o *op) (poll, aside bool) {
	poll = w.polled != nil && w.strong
	w.b.spin, w.b.spinner = o, w
	if w.polled != nil {
		w.b.spin = w.polled
	}
	w.polled, w.strong = nil, false
	if len(w.frags) == 1 {
		return poll, false
	}
	f := &w.frags[w.cur]
	f.spins++
	if poll {
		f.spins += pollWeight
	}
	if f.spins < spinLimit {
		return poll, false
	}
	f.spins = 0
	return poll, true
}

// split takes the lanes of mask out of the current fragment into a new one at pc.
func (w *warp) split(mask uint32, pc int32) {
	f := &w.frags[w.cur]
	f.mask &^= mask
	w.frags = append(w.frags, frag{mask: mask, pc: pc})
}

// flow executes an operation that looks at the warp as a whole, for the lanes of mask, in the
// current fragment. Lanes whose guard is false go on behind it.
func (w *warp) flow(o *op, mask uint32) *Fault {
	f := &w.frags[w.cur]
	if mask == 0 {
		f.pc++
		return nil
	}
	if mask != f.mask {
		w.split(f.mask&^mask, f.pc+1)
		f = &w.frags[w.cur]
	}
	switch o.code {
	case opBranch:
		f.pc = o.target
	case opBranchIndex:
		return w.branchIndex(o, mask)
	case opExit:
		w.exit(mask)
	case opTrap:
		return w.fault(Trap, mask, o, 0, 0, errors.New("the kernel executed trap"))
	case opBarrier:
		return w.barrier(o, mask)
	case opSleep:
		f.pc++
		w.sleep(o, mask)
	default:
		w.collective(o, mask)
	}
	return nil
}

// branchIndex sends each lane to its target.
func (w *warp) branchIndex(o *op, mask uint32) *Fault {
	table := w.b.k.tables[o.target]
	index := &w.r32[o.a]
	for m := mask; m != 0; {
		lane := bits.TrailingZeros32(m)
		v := index[lane]
		if int(v) >= len(table) {
			return w.fault(Trap, 1<<lane, o, 0, 0, errors.New("brx.idx index is outside its list of targets"))
		}
		same := uint32(0)
		for k := m; k != 0; k &= k - 1 {
			if i := bits.TrailingZeros32(k); index[i] == v {
				same |= 1 << i
			}
		}
		m &^= same
		if m == 0 {
			w.frags[w.cur].pc = table[v]
		} else {
			w.split(same, table[v])
		}
	}
	return nil
}

// exit ends the current fragment. Barriers and collectives no longer wait for its lanes.
func (w *warp) exit(mask uint32) {
	w.live &^= mask
	w.ghost = ^w.live
	w.drop(w.cur)
	for id := range w.b.bars {
		w.b.tryBarrier(id)
	}
	w.trySync()
}

// sleep puts the fragment to rest for the longest time any of its lanes asks for.
func (w *warp) sleep(o *op, mask uint32) {
	var longest uint32
	for m := mask; m != 0; m &= m - 1 {
		longest = max(longest, w.r32[o.a][bits.TrailingZeros32(m)])
	}
	if longest == 0 {
		return
	}
	f := &w.frags[w.cur]
	f.state, f.at = fragSleep, o
	f.wake = w.b.now() + uint64(min(longest, 1000000)) // hardware caps it at a millisecond
}

// fault describes a failure of the first lane of mask at o.
func (w *warp) fault(kind FaultKind, mask uint32, o *op, addr uint64, size int, err error) *Fault {
	lane := min(bits.TrailingZeros32(mask), 31)
	l := w.b.launch
	n := uint32(w.id*32 + lane)
	at := w.b.k.stmts[o.stmt]
	return &Fault{
		Kind: kind, Block: w.b.id,
		Thread: [3]uint32{n % l.Block[0], n / l.Block[0] % l.Block[1], n / l.Block[0] / l.Block[1]},
		File:   w.b.k.file, Line: at.line, Text: at.text, Addr: addr, Size: size, Err: err,
	}
}
