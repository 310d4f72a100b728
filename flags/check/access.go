package check

import (
	"fmt"
	"slices"
)

// pick is one way in which a load of up to four elements may turn out: the index of a write in each location's order.
type pick [4]int32

const mostPicks = 256 // of one load; more are left out, and the search is not exhaustive

// picks are the ways in which a load of these locations may turn out, those with the newest values first. forced, if not
// nil, is one of the writes; there are none if no location has it.
func (x *exec) picks(t *thread, locs []*location, a *actor, issued clocks, passed []actor, forced *write, open bool) []pick {
	if forced != nil && !slices.ContainsFunc(locs, func(l *location) bool { return slices.Contains(l.order, forced) }) {
		return nil
	}
	list := append(x.picked[:0], pick{})
	for k, l := range locs {
		floor := l.floor(issued)
		only := -1
		if forced != nil {
			for i, w := range l.order {
				if w == forced {
					only = i
				}
			}
		}
		n := len(list)
		for i := len(l.order) - 1; i >= floor; i-- {
			if only >= 0 && i != only || open && !l.readable(i, a, issued, passed) {
				continue
			}
			for _, p := range list[:n] {
				p[k] = int32(i)
				list = append(list, p)
			}
			if len(list) > mostPicks {
				x.cut("a vector load has too many outcomes")
				break
			}
		}
		list = list[n:]
	}
	x.picked = list
	return list
}

// load is a load that has a choice, or may have one.
func (x *exec) load(t *thread) bool {
	in := t.event.Inst
	locs := x.locs[:0]
	for k := range in.Elements {
		l := x.access(t, k, false)
		if l == nil {
			return false
		}
		if !x.closePending(t, l) {
			return false
		}
		locs = append(locs, l)
	}
	x.locs = locs
	a := t.actor(in)
	acquire := in.Sem.Acquires()
	list := x.picks(t, locs, &a, t.clocks, nil, t.forced, false)
	if len(list) == 0 {
		x.prune() // the write that it waited for cannot be what it reads
		return false
	}
	if in.Loop && t.hurried {
		return x.glance(t, locs, &a, list[0], acquire)
	}
	if in.Loop {
		list = x.leaving(t, locs, list)
		if len(list) == 0 && t.forced != nil {
			x.again(t, &a)
			return x.load(t)
		}
		if len(list) == 0 || x.spinning(t, in) {
			return x.await(t, locs)
		}
	}
	mayDefer := !acquire && in.Elements == 1 && !in.Loop
	if !mayDefer && !acquire {
		x.soon(t)
	}
	i, want, later := x.choose.read(x, t, len(list), mayDefer)
	x.targets = x.targets || want != noTarget
	switch {
	case later:
		t.tokens++
		t.pending = append(t.pending, pending{token: t.tokens, loc: locs[0], actor: a, issued: x.slab.copy(t.clocks), want: want, choice: t.choice})
		t.m.Defer([4]uint64{t.tokens})
		x.ops++
		t.tick()
		return true
	case want != noTarget:
		t.state, t.waiting = waitsWrite, want
		return false
	}
	var v [4]uint64
	for k, l := range locs {
		l.give(&v, k, l.order[list[i][k]])
	}
	now := x.slab.copy(t.clocks)
	for k, l := range locs {
		w := l.order[list[i][k]]
		x.reads(w, reader{actor: a, clocks: now, choice: t.choice})
		if a.strong {
			x.observe(t, l, w, &a, acquire)
		}
		x.note(t, in, l, w, false)
	}
	if in.NonCoherent {
		b := x.buffer(t, t.event.Space, t.event.Addr, in.Size*in.Elements)
		x.readsConstant(t, b, int(t.event.Addr-b.base), in.Size*in.Elements)
	}
	x.ops += uint64(in.Elements)
	t.m.Load(&v)
	t.tick()
	return true
}

// reads adds a reader of w.
func (x *exec) reads(w *write, r reader) {
	if w.readBy(r) {
		x.cut(fmt.Sprintf("more than %d reads of one value, some of which were not tried with later ones", mostChoices))
	}
}

// glance is one more poll of a loop that is about to give up: the newest values, with no choice and no word about it.
func (x *exec) glance(t *thread, locs []*location, a *actor, newest pick, acquire bool) bool {
	var v [4]uint64
	now := x.slab.copy(t.clocks)
	for k, l := range locs {
		w := l.order[newest[k]]
		l.give(&v, k, w)
		r := reader{actor: *a, clocks: now, choice: -1}
		if n := len(w.readers); n > 0 && w.readers[n-1].id == a.id && w.readers[n-1].inst == a.inst {
			w.readers[n-1] = r
		} else {
			x.reads(w, r)
		}
		if a.strong {
			x.observe(t, l, w, a, acquire)
		}
		if x.trace != nil {
			x.traceRead(t, a.event, l.address, l.size, w.value, !a.strong, w.event, l)
		}
	}
	x.ops += uint64(len(locs))
	t.m.Load(&v)
	t.tick()
	return true
}

// again is one round of a loop that t polls in, in which it saw the write that it waited for and does not leave. What is written
// later is another way to decide the same.
func (x *exec) again(t *thread, a *actor) {
	x.reads(t.forced, reader{actor: *a, clocks: x.slab.copy(t.clocks), choice: t.choice})
	t.forced = nil
	t.tick()
}

// await has t wait for another value in one of the locations.
func (x *exec) await(t *thread, locs []*location) bool {
	t.state = waitsValue
	if x.others {
		x.spinners = append(x.spinners, t.index) // until anything is written
	}
	for _, l := range locs {
		l.waiters = append(l.waiters, t.index)
	}
	return false
}

func (t *thread) pendingAt(l *location) int {
	for i := range t.pending {
		if t.pending[i].loc == l {
			return i
		}
	}
	return -1
}

// closePending decides what loads of l that are still open have read, as another access of t to it is at hand. The model would
// let them stay open; the search does not look at that.
func (x *exec) closePending(t *thread, l *location) bool {
	for t.pendingAt(l) >= 0 {
		x.cut("a load is not put off beyond the next access of its thread to the same location")
		if !x.use(t, t.pending[t.pendingAt(l)].token) {
			return false
		}
	}
	return true
}

// use decides the value of a load that was put off. False: t has to wait for it.
func (x *exec) use(t *thread, token uint64) bool {
	i := 0
	for ; i < len(t.pending) && t.pending[i].token != token; i++ {
	}
	if i == len(t.pending) {
		return true
	}
	p := &t.pending[i]
	if p.want != noTarget {
		t.state, t.waiting = waitsWrite, p.want
		return false
	}
	list := x.picks(t, []*location{p.loc}, &p.actor, p.issued, p.passed, nil, true)
	if len(list) == 0 {
		x.prune()
		return false
	}
	k, _, _ := x.choose.read(x, t, len(list), false)
	x.resolve(t, i, p.loc.order[list[k][0]])
	return true
}

// resolve gives pending load i the value of w.
func (x *exec) resolve(t *thread, i int, w *write) {
	p := t.pending[i]
	t.pending = append(t.pending[:i], t.pending[i+1:]...)
	x.reads(w, reader{actor: p.actor, clocks: p.issued, choice: p.choice})
	x.observe(t, p.loc, w, &p.actor, false)
	x.note(t, p.actor.inst, p.loc, w, false)
	t.m.Fill(p.token, w.value.low, w.value.high)
}

// arrived lets those go on that wait for this write or fence.
func (x *exec) arrived(is target) {
	if !x.targets {
		return
	}
	for _, t := range x.threads {
		if t.state == waitsWrite {
			same, elsewhere := t.waiting.same(is)
			if elsewhere {
				x.prune()
				return
			}
			if same {
				t.state = ready
				if is.nth > 0 {
					t.forced = x.latest
				}
			}
		}
		for i := 0; i < len(t.pending); i++ {
			p := &t.pending[i]
			same, elsewhere := p.want.same(is)
			if elsewhere || same && x.latest == nil {
				x.prune()
				return
			}
			if !same {
				continue
			}
			list := x.picks(t, []*location{p.loc}, &p.actor, p.issued, p.passed, x.latest, true)
			if len(list) == 0 {
				x.prune()
				return
			}
			x.resolve(t, i, x.latest)
			t.forced = nil
			i--
		}
	}
}

// store is a store that has a choice, or may have one.
func (x *exec) store(t *thread) bool {
	in := t.event.Inst
	locs := x.locs[:0]
	for k := range in.Elements {
		l := x.access(t, k, true)
		if l == nil {
			return false
		}
		if !x.closePending(t, l) {
			return false
		}
		locs = append(locs, l)
	}
	x.locs = locs
	a := t.actor(in)
	if in.Elements > 1 && in.Sem.Releases() {
		x.cut("the elements of a vector release are written in one order or the other, the same for all who read them")
	}
	down := in.Elements > 1 && in.Sem.Releases() && x.choose.place(x, 2) == 1 // elements have no order of their own
	now := x.slab.copy(t.clocks)
	for i := range locs {
		k := i
		if down {
			k = len(locs) - 1 - i
		}
		if i > 0 && in.Sem.Releases() {
			t.tick()
			a = t.actor(in)
			now = x.slab.copy(t.clocks)
		}
		l := locs[k]
		at := x.places(t, l, &a)
		w := x.newWrite()
		w.actor, w.value, w.clocks = a, value{low: t.event.Values[k]}, now
		switch {
		case in.Size < 8:
			w.value.low &= 1<<(8*in.Size) - 1
		case in.Size == 16:
			w.value.high = t.event.Values[1]
		}
		w.heads = x.heads(t, l, &a, in.Sem.Releases(), now, nil)
		x.put(t, l, at, w, now)
	}
	x.ops += uint64(in.Elements)
	t.tick()
	return !x.over
}

// places chooses where in l's order a write of t goes.
func (x *exec) places(t *thread, l *location, a *actor) int {
	list := x.spots[:0]
	for i := len(l.order); i > l.floor(t.clocks); i-- {
		forbidden, torn := l.split(i, a)
		if forbidden {
			continue
		}
		if torn != nil && !x.p.Racy {
			x.torn(torn, a, l)
		}
		list = append(list, int32(i))
	}
	x.spots = list
	return int(list[x.choose.place(x, len(list))])
}

// placesAfter chooses where the write of an atomic goes that reads order[from]: right behind it, or behind writes too that
// are not morally strong with the atomic.
func (x *exec) placesAfter(from int, l *location, a *actor) int {
	list := append(x.spots[:0], int32(from+1))
	for i := from + 1; i < len(l.order) && !morallyStrong(&l.order[i].actor, a); i++ {
		if forbidden, _ := l.split(i+1, a); !forbidden {
			list = append(list, int32(i+1))
		}
	}
	x.spots = list
	return int(list[x.choose.place(x, len(list))])
}

// put makes w a value of l. before is what came before it, without what it acquired itself.
func (x *exec) put(t *thread, l *location, at int, w *write, before clocks) {
	t.writes++
	w.nth = int(t.writes)
	l.insert(at, w)
	x.writes++
	x.latest = w
	x.note(t, w.inst, l, w, true)
	x.wake(l)
	for _, i := range x.spinners {
		if x.threads[i].state == waitsValue {
			x.threads[i].state = ready
		}
	}
	x.spinners = x.spinners[:0]
	x.choose.wrote(x, t, l, before, w.id)
	x.arrived(target{thread: t.index, nth: t.writes, at: l.address})
	if n := len(l.order) - x.maxWrites; n > 0 {
		for _, w := range l.order[:n] {
			w.forget()
		}
		l.order = slices.Delete(l.order, 0, n)
		x.evicted++
	}
}

// wake has those look again that wait for another value of l.
func (x *exec) wake(l *location) {
	for _, i := range l.waiters {
		if x.threads[i].state == waitsValue {
			x.threads[i].state = ready
		}
	}
	l.waiters = l.waiters[:0]
}

// atomic is an atom or a red.
func (x *exec) atomic(t *thread) bool {
	in := t.event.Inst
	l := x.access(t, 0, true)
	if l == nil {
		return false
	}
	if !x.closePending(t, l) {
		return false
	}
	a := t.actor(in)
	locs := append(x.locs[:0], l)
	x.locs = locs
	keep := x.picked[:0]
	for _, p := range x.picks(t, locs, &a, t.clocks, nil, t.forced, false) {
		forbidden, torn := l.split(int(p[0])+1, &a)
		if torn != nil && !x.p.Racy {
			x.torn(torn, &a, l)
			return false
		}
		if !forbidden {
			keep = append(keep, p)
		}
	}
	if len(keep) == 0 && t.forced != nil {
		x.prune()
		return false
	}
	if in.Loop {
		keep = x.leaving(t, locs, keep)
		if len(keep) == 0 && t.forced != nil {
			x.again(t, &a)
			return x.atomic(t)
		}
		if len(keep) > 0 && x.spinning(t, in) {
			keep = nil
		}
	}
	if len(keep) == 0 {
		return x.await(t, locs)
	}
	if !in.Red && !in.Sem.Acquires() {
		x.soon(t)
	}
	i, want, _ := x.choose.read(x, t, len(keep), false)
	if want != noTarget {
		x.targets = true
		t.state, t.waiting = waitsWrite, want
		return false
	}
	from := int(keep[i][0])
	source := l.order[from]
	before := x.slab.copy(t.clocks)
	v, writes := t.m.Apply(source.value.low)
	if in.Size < 8 {
		v &= 1<<(8*in.Size) - 1
	}
	x.reads(source, reader{actor: a, clocks: before, choice: t.choice, wrote: writes})
	if !in.Red { // red never forms an acquire pattern, and still hands on what it read
		x.observe(t, l, source, &a, in.Sem.Acquires())
	}
	x.note(t, in, l, source, false)
	if writes {
		at := x.placesAfter(from, l, &a)
		w := x.newWrite()
		now := x.slab.copy(t.clocks)
		w.actor, w.value, w.clocks, w.source = a, value{low: v}, now, source
		w.heads = x.heads(t, l, &a, in.Sem.Releases(), now, source)
		x.put(t, l, at, w, before)
	} else {
		t.writes++ // it might have written
		x.choose.wrote(x, t, l, before, a.id)
		x.latest = nil
		x.arrived(target{thread: t.index, nth: t.writes, at: l.address})
	}
	x.ops++
	if !in.Red {
		t.m.Load(&[4]uint64{source.value.low})
	}
	t.tick()
	return !x.over
}

// mayFence is whether the search lets t perform its fence.sc now.
func (x *exec) mayFence(t *thread) bool {
	if t.waiting.nth < 0 {
		t.waiting = noTarget // it has waited for another's
		return true
	}
	a := actor{event: t.now(t.event.Inst), strong: true, scope: t.event.Inst.Scope, device: t.device, cta: t.cta}
	want := x.choose.fence(x, t, &a)
	if want == noTarget {
		return true
	}
	x.targets = true
	t.state, t.waiting = waitsWrite, want
	return false
}
