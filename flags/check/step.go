package check

import (
	"slices"

	"github.com/fenceline/fenceline/internal/ptx"
)

// advance performs the operation that t is at and goes on to the next one whose place among those of other threads matters.
func (x *exec) advance(t *thread) {
	if t.held {
		if !x.perform(t) {
			return
		}
		t.held, t.forced, t.choice = false, nil, -1
	}
	for !x.over {
		ev, err := x.next(t)
		if x.halted(1) {
			return
		}
		if err != nil {
			x.fault(t, err)
			return
		}
		if x.steps++; x.steps > x.limit {
			x.endless(t)
			return
		}
		if x.decisions > mostDecisions {
			x.undecided(t)
			return
		}
		t.event = *ev
		if x.covered != nil {
			x.covered[ev.Inst] = true
		}
		if x.local(t) {
			continue
		}
		t.held = true
		switch ev.Kind {
		case ptx.Load, ptx.Store, ptx.Atomic, ptx.Use:
			return // others may go first
		case ptx.Fence:
			if ev.Inst.Sem == ptx.SC {
				return
			}
		case ptx.Exit:
			if len(t.pending) > 0 {
				return // what it loads may still be written
			}
		}
		if !x.perform(t) {
			return
		}
		t.held = false
	}
}

// local performs t's event if it is a weak access that needs no choice.
func (x *exec) local(t *thread) bool {
	ev := &t.event
	if ev.Kind != ptx.Load && ev.Kind != ptx.Store || x.p.Racy || ev.Inst.Sem != ptx.Weak {
		return false
	}
	in := ev.Inst
	size := in.Size
	b := x.buffer(t, ev.Space, ev.Addr, size*in.Elements)
	if b == nil {
		x.wild(t)
		return true
	}
	off := int(ev.Addr - b.base)
	for i := off / 4; i <= (off+size*in.Elements-1)/4; i++ {
		if b.cells[i].loc != nil {
			return false
		}
	}
	x.ops += uint64(in.Elements)
	piece := min(size, 8) // what no other access comes between has no need to be one
	pieces := size * in.Elements / piece
	if ev.Kind == ptx.Store {
		for k := range pieces {
			x.plainStore(t, b, off+k*piece, piece, ev.Values[k])
		}
		return true
	}
	if in.NonCoherent {
		x.readsConstant(t, b, off, size*in.Elements)
	}
	var v [4]uint64
	for k := range pieces {
		v[k] = x.plainLoad(t, b, off+k*piece, piece)
	}
	if !x.over {
		t.m.Load(&v)
	}
	return true
}

// buffer is the memory of an access, nil if there is none.
func (x *exec) buffer(t *thread, space ptx.Space, addr uint64, n int) *buffer {
	if space == ptx.SpaceShared {
		b := &x.shared[t.cta]
		if addr+uint64(n) > uint64(b.size) {
			return nil
		}
		return b
	}
	if b := x.recent; b != nil && addr >= b.base && addr-b.base+uint64(n) <= uint64(b.size) {
		return b
	}
	b := x.mem.find(addr, n)
	if b != nil {
		x.recent = b
	}
	return b
}

func (x *exec) plainLoad(t *thread, b *buffer, off, size int) uint64 {
	e := t.now(t.event.Inst)
	if size == 8 {
		return x.plainLoad(t, b, off, 4) | x.plainLoad(t, b, off+4, 4)<<32
	}
	c := &b.cells[off/4]
	x.mem.touch(c)
	if size == 4 && c.parts == nil {
		if r := c.collide(t.clocks, false); r != nil {
			x.race(t, *r, e, b, off, size, false, false)
			return 0
		}
		c.read(t.clocks, e)
		if x.trace != nil {
			x.traceRead(t, e, b.base+uint64(off), size, value{low: uint64(c.value)}, true, c.writer, nil)
		}
		return uint64(c.value)
	}
	c.split()
	for i := off % 4; i < off%4+size; i++ {
		if r := c.parts[i].collide(t.clocks, false); r != nil {
			x.race(t, *r, e, b, off, size, false, false)
			return 0
		}
		c.parts[i].read(t.clocks, e)
	}
	v := uint64(c.value>>(8*(off%4))) & (1<<(8*size) - 1)
	if x.trace != nil {
		x.traceRead(t, e, b.base+uint64(off), size, value{low: v}, true, c.parts[off%4].writer, nil)
	}
	return v
}

func (x *exec) plainStore(t *thread, b *buffer, off, size int, v uint64) {
	e := t.now(t.event.Inst)
	if size == 8 {
		x.plainStore(t, b, off, 4, v&0xffffffff)
		x.plainStore(t, b, off+4, 4, v>>32)
		return
	}
	if len(x.constant) > 0 && x.writesConstant(t, e, b, off, size) {
		return
	}
	if x.trace != nil {
		x.traceWrite(t, e, b.base+uint64(off), size, value{low: v})
	}
	c := &b.cells[off/4]
	x.mem.touch(c)
	if size == 4 && c.parts == nil {
		if r := c.collide(t.clocks, true); r != nil {
			x.race(t, *r, e, b, off, size, !c.wrote(*r), true)
			return
		}
		c.write(e)
		c.value = uint32(v)
		return
	}
	c.split()
	for i := off % 4; i < off%4+size; i++ {
		p := &c.parts[i]
		if r := p.collide(t.clocks, true); r != nil {
			x.race(t, *r, e, b, off, size, !p.wrote(*r), true)
			return
		}
		p.write(e)
	}
	mask := uint32((uint64(1)<<(8*size) - 1) << (8 * (off % 4)))
	c.value = c.value&^mask | uint32(v)<<(8*(off%4))&mask
}

func sameEvent(a, b event) bool { return a.id == b.id && a.n == b.n }

// split gives each byte of the word a history of its own.
func (c *cell) split() {
	if c.parts != nil {
		return
	}
	c.parts = new([4]mark)
	for i := range c.parts {
		c.parts[i].writer = c.writer
		c.parts[i].also = append(c.parts[i].also, c.also...)
		c.parts[i].reads = append(c.parts[i].reads, c.reads...)
	}
}

// perform does the operation that t is at. False: t has to wait, or the execution is over.
func (x *exec) perform(t *thread) bool {
	ev := &t.event
	switch ev.Kind {
	case ptx.Load:
		return x.load(t)
	case ptx.Store:
		return x.store(t)
	case ptx.Atomic:
		return x.atomic(t)
	case ptx.Fence:
		if ev.Inst.Sem.Acquires() {
			for i := range t.pending {
				if p := &t.pending[i]; p.want != noTarget && !p.want.pass {
					x.choose.passes(p)
					t.state, t.waiting = waitsWrite, p.want
					return false
				}
			}
		}
		if ev.Inst.Sem == ptx.SC && !x.mayFence(t) {
			return false
		}
		x.fence(t, ev.Inst)
		return true
	case ptx.Barrier:
		return x.arrive(t)
	case ptx.Collective:
		return x.meet(t)
	case ptx.GridLaunch:
		x.launched(t)
		return true
	case ptx.GridWait:
		return x.gridWait(t)
	case ptx.Use:
		return x.use(t, ev.Token)
	case ptx.Exit:
		for len(t.pending) > 0 {
			if !x.use(t, t.pending[0].token) {
				return false
			}
		}
		x.exit(t)
		return false
	}
	return true // a sleep
}

// access is a strong or racy access of t to one location.
func (x *exec) access(t *thread, k int, writes bool) *location {
	ev := &t.event
	in := ev.Inst
	addr := ev.Addr + uint64(k*in.Size)
	if addr%uint64(in.Size) != 0 {
		x.misaligned(t)
		return nil
	}
	b := x.buffer(t, ev.Space, addr, in.Size)
	if b == nil {
		x.wild(t)
		return nil
	}
	off := int(addr - b.base)
	a := t.actor(in)
	l := x.location(t, b, off, in.Size, &a, writes)
	if l == nil {
		return nil
	}
	if !x.conflicts(t, l, &a, writes) || writes && len(x.constant) > 0 && x.writesConstant(t, a.event, b, off, in.Size) {
		return nil
	}
	return l
}

// conflicts reports what races with a at l. False: the execution is over.
func (x *exec) conflicts(t *thread, l *location, a *actor, writes bool) bool {
	for _, w := range l.order {
		if !t.clocks.has(w.id, w.n) && !morallyStrong(&w.actor, a) && !l.observed(w, t.clocks) {
			x.raceAt(t, w.event, a.event, l, false, writes, w.strong && a.strong)
			if x.over {
				return false
			}
		}
		if !writes {
			continue
		}
		for i := range w.readers {
			if r := &w.readers[i]; !t.clocks.has(r.id, r.n) && !morallyStrong(&r.actor, a) && !l.half(r, t.clocks) {
				x.raceAt(t, r.event, a.event, l, true, writes, r.strong && a.strong)
				if x.over {
					return false
				}
			}
		}
	}
	return true
}

// observed is whether a read that comes before saw w, itself or through atomics that passed it on.
func (l *location) observed(w *write, c clocks) bool {
	if wasSeen(l.seen, w.event, c) {
		return true
	}
	for i := range w.readers {
		r := &w.readers[i]
		if !morallyStrong(&w.actor, &r.actor) {
			continue
		}
		if c.has(r.id, r.n) {
			return true
		}
		if v := l.writeOf(r); v != nil && l.observed(v, c) {
			return true
		}
	}
	return false
}

// wasSeen is whether a read that comes before observed w.
func wasSeen(list []seen, w event, c clocks) bool {
	return slices.ContainsFunc(list, func(s seen) bool { return sameEvent(s.write, w) && c.has(s.read.id, s.read.n) })
}

// half is whether r is the read of an atomic whose write was observed.
func (l *location) half(r *reader, c clocks) bool {
	v := l.writeOf(r)
	return v != nil && l.observed(v, c)
}

// writeOf is the write of the atomic that r is the read of; nil: it wrote nothing, or has been forgotten.
func (l *location) writeOf(r *reader) *write {
	for _, w := range l.order {
		if w.source != nil && sameEvent(w.event, r.event) {
			return w
		}
	}
	return nil
}

// location is the history of size bytes, begun or taken over from what was known of them.
func (x *exec) location(t *thread, b *buffer, off, size int, a *actor, writes bool) *location {
	first, last := off/4, (off+size-1)/4
	address := b.base + uint64(off)
	x.seen = x.seen[:0]
	for i := first; i <= last; i++ {
		var next *location
		for l := b.cells[i].loc; l != nil; l = next {
			next = l.next
			if l.address == address && l.size == size {
				return l
			}
			if l.address < address+uint64(size) && address < l.address+uint64(l.size) && !x.settle(t, l, b, a, writes) {
				return nil
			}
		}
	}
	l := x.newLocation()
	l.address, l.size = address, size
	l.seen = append(l.seen, x.seen...)
	w := x.newWrite()
	w.actor = actor{event: unwritten}
	var writers []event
	for i := first; i <= last; i++ {
		c := &b.cells[i]
		x.mem.touch(c)
		if size < 4 {
			c.split()
		}
		marks := []mark{c.mark}
		if c.parts != nil {
			marks = c.parts[max(off, 4*i)-4*i : min(off+size, 4*i+4)-4*i]
		}
		for k := range marks {
			m := &marks[k]
			if r := m.collide(t.clocks, writes, l.seen...); r != nil {
				x.raceAt(t, *r, a.event, l, !m.wrote(*r), writes, false)
				if x.over {
					return nil
				}
			}
			for e := range m.writers {
				if e.id >= 0 && !slices.ContainsFunc(writers, func(o event) bool { return sameEvent(o, e) }) {
					writers = append(writers, e)
				}
			}
			for _, r := range m.reads {
				w.readers = append(w.readers, reader{actor: actor{event: r}, choice: -1, clocks: nil})
			}
		}
		for k := max(off, 4*i); k < min(off+size, 4*i+4); k++ {
			w.value.put(k-off, byte(c.value>>(8*(k%4))))
		}
	}
	for i, e := range writers { // whoever comes upon the location must have all of them behind it
		if i == len(writers)-1 {
			w.actor = actor{event: e}
			break
		}
		o := x.newWrite()
		o.actor, o.value = actor{event: e}, w.value
		l.order = append(l.order, o)
	}
	l.order = append(l.order, w)
	for i := first; i <= last; i++ {
		l.next, b.cells[i].loc = b.cells[i].loc, l // in a word that it fills it is alone
	}
	return l
}

// settle ends a history: all of it must come before a, for accesses that overlap in part are promised nothing otherwise.
func (x *exec) settle(t *thread, l *location, b *buffer, a *actor, writes bool) bool {
	for _, w := range l.order {
		if !t.clocks.has(w.id, w.n) && !l.observed(w, t.clocks) {
			x.mixed(w.event, a.event, l, false, writes)
			return false
		}
		for i := range w.readers {
			if r := &w.readers[i]; writes && !t.clocks.has(r.id, r.n) && !l.half(r, t.clocks) {
				x.mixed(r.event, a.event, l, true, writes)
				return false
			}
		}
	}
	x.wake(l) // nothing is written to it any more
	w := l.last()
	x.seen = append(x.seen, l.seen...)
	for _, v := range l.order {
		for i := range v.readers {
			if r := &v.readers[i]; morallyStrong(&v.actor, &r.actor) {
				x.seen = append(x.seen, seen{v.event, r.event})
			}
		}
	}
	off := int(l.address - b.base)
	for i := off / 4; i <= (off+l.size-1)/4; i++ {
		c := &b.cells[i]
		x.store32(c, off-4*i, l.size, w.value)
		for at := &c.loc; *at != nil; at = &(*at).next {
			if *at == l {
				*at = l.next
				break
			}
		}
		marks := []*mark{&c.mark}
		if l.size >= 4 {
			c.parts = nil
		} else {
			c.split()
			marks = marks[:0]
			for k := range l.size {
				marks = append(marks, &c.parts[off%4+k])
			}
		}
		for _, m := range marks {
			m.writer, m.also, m.reads = w.event, m.also[:0], m.reads[:0]
			for _, o := range l.order[:len(l.order)-1] {
				if o.id >= 0 && (w.clocks == nil || !w.clocks.has(o.id, o.n)) {
					m.also = append(m.also, o.event)
				}
			}
			for k := range w.readers {
				if r := &w.readers[k]; !t.clocks.has(r.id, r.n) {
					m.reads = append(m.reads, r.event)
				}
			}
		}
	}
	return true
}

// store32 puts size bytes of v, which begin at byte `at` of the word (before it when negative), into c.
func (x *exec) store32(c *cell, at, size int, v value) {
	for k := range size {
		if i := at + k; i >= 0 && i < 4 {
			c.value = c.value&^(0xff<<(8*i)) | uint32(v.byte(k))<<(8*i)
		}
	}
}
