package check

import "github.com/fenceline/fenceline/internal/ptx"

// A copy of a thread runs ahead, to see what its loops come to and when it needs what it loads.

// leaving keeps the picks with which the loop that t polls in is left: a spin loop is an await.
func (x *exec) leaving(t *thread, locs []*location, list []pick) []pick {
	keep := list[:0]
	x.others = false
	for _, p := range list {
		var v [4]uint64
		for k, l := range locs {
			l.give(&v, k, l.order[p[k]])
		}
		if x.leaves(t, &v) {
			keep = append(keep, p)
		}
	}
	return keep
}

// leaves is whether t, given these values by the load that it is at, comes to anything but the same load again. Other loads
// on the way, of a loop that polls several words, are given the newest values there are.
func (x *exec) leaves(t *thread, v *[4]uint64) bool {
	g := x.lookahead(t)
	at, addr := t.event.Inst, t.event.Addr
	if t.event.Kind == ptx.Atomic {
		if _, writes := g.Apply(v[0]); writes {
			return true
		}
	}
	if t.event.Kind == ptx.Load || !at.Red {
		g.Load(v)
	}
	for range mostAhead {
		ev, err := g.Next()
		switch {
		case err != nil:
			return true
		case ev.Kind == ptx.Sleep:
			continue
		case ev.Inst == at && ev.Addr == addr:
			return !x.patient(t, g, ev, v)
		case ev.Kind != ptx.Load || !ev.Inst.Loop:
			return true
		}
		values, ok := x.newest(t, ev)
		if !ok {
			return true
		}
		g.Load(&values)
		x.others = true
	}
	return true
}

const (
	mostAhead  = 64      // events that are looked ahead, to see whether a loop is left
	mostRounds = 1 << 14 // and to see whether it ends by itself
)

// patient is whether the loop that g, a copy of t, has gone round, with these values by the load that it is at again, goes round
// for as long as nothing changes. One that counts and ends soon is no await: it may end so although what it looks for comes. One that
// polls for longer, or by the clock, is taken to be patient enough for what comes.
func (x *exec) patient(t *thread, g *ptx.Thread, ev *ptx.Event, v *[4]uint64) bool {
	if x.p.GiveUp {
		return true // until nothing else can go on: then it is hurried
	}
	at := ev.Inst // ev goes on with g
	known, ok := x.patience[at]
	if !ok {
		known = !x.ends(t, g, ev, v)
		x.patience[at] = known
	}
	return known
}

// ends is whether g, a copy of t, comes out of its loop when its loads have the newest values each time, and that of ev, which it
// is at, these.
func (x *exec) ends(t *thread, g *ptx.Thread, ev *ptx.Event, v *[4]uint64) bool {
	at, addr := ev.Inst, ev.Addr
	for range mostRounds {
		switch {
		case ev.Kind == ptx.Sleep || ev.Kind == ptx.Fence:
		case ev.Kind == ptx.Barrier || ev.Kind == ptx.Collective:
			return false // who knows
		case ev.Kind == ptx.Atomic && ev.Inst == at && ev.Addr == addr:
			if _, writes := g.Apply(v[0]); writes {
				return true
			}
			if !ev.Inst.Red {
				g.Load(v)
			}
		case ev.Kind != ptx.Load || !ev.Inst.Loop:
			return true
		case ev.Inst == at && ev.Addr == addr:
			g.Load(v)
		default:
			values, ok := x.newest(t, ev)
			if !ok {
				return true
			}
			g.Load(&values)
		}
		var err error
		if ev, err = g.Next(); err != nil {
			return true
		}
	}
	return false
}

// soon looks whether t needs what it loads ahead of its next write. If not, the model would let it load after that write; the
// search lets single loads outside of loops do that, and no others.
func (x *exec) soon(t *thread) {
	in := t.event.Inst
	if x.needed[in] {
		return
	}
	g := x.lookahead(t)
	g.Defer([4]uint64{unknown, unknown, unknown, unknown})
	for range mostAhead {
		ev, err := g.Next()
		switch {
		case err != nil || ev.Kind == ptx.Use && ev.Token != unknown:
			return
		case ev.Kind == ptx.Use || ev.Kind == ptx.Exit:
			x.needed[in] = true
			return
		case ev.Kind == ptx.Load:
			values, ok := x.newest(t, ev)
			if !ok {
				return
			}
			g.Load(&values)
		case ev.Kind != ptx.Fence && ev.Kind != ptx.Sleep:
			x.needed[in] = true
			x.cut("atomics, vector loads and loads in a loop are not put off until after a write")
			return
		}
	}
}

const unknown = 1 << 63 // token of what a thread that looks ahead does not know

// lookahead is a copy of t to run ahead with.
func (x *exec) lookahead(t *thread) *ptx.Thread {
	if x.guess == nil {
		x.guess = new(ptx.Thread)
	}
	x.guess.Copy(t.m)
	return x.guess
}

// newest are the values that the load ev of t's would have if it saw all that was written.
func (x *exec) newest(t *thread, ev *ptx.Event) (v [4]uint64, ok bool) {
	in := ev.Inst
	b := x.buffer(t, ev.Space, ev.Addr, in.Size*in.Elements)
	if b == nil {
		return v, false
	}
	off := int(ev.Addr - b.base)
	for k := range in.Elements {
		for i := range in.Size {
			v[k+i/8] |= uint64(x.finalByte(b, off+k*in.Size+i)) << (8 * (i % 8))
		}
	}
	return v, true
}

// spinning is whether t has gone round a loop with this load many times while nothing was written.
func (x *exec) spinning(t *thread, in *ptx.Inst) bool {
	if t.spins == nil {
		t.spins = map[*ptx.Inst]spin{}
	}
	s := t.spins[in]
	if s.seen != x.writes {
		s = spin{seen: x.writes}
	}
	s.count++
	t.spins[in] = s
	if s.count <= 64 {
		return false
	}
	g := x.lookahead(t)
	if v, ok := x.newest(t, &t.event); !ok || t.event.Kind == ptx.Load && x.ends(t, g, &t.event, &v) {
		delete(t.spins, in)
		return false
	}
	x.spinners = append(x.spinners, t.index)
	return true
}
