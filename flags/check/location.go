package check

import "github.com/fenceline/fenceline/internal/ptx"

// head is the first operation of a release pattern: what an acquire that is morally strong with it brings along.
type head struct {
	actor
	clocks clocks
}

// covers is whether whoever takes h has all that o would bring: it is a later one of the same thread, for as many or more.
func (h *head) covers(o *head) bool {
	return h.id == o.id && h.task == o.task && h.n >= o.n && h.scope >= o.scope
}

// value is what up to 16 bytes of memory hold; high is 0 for up to 8.
type value struct{ low, high uint64 }

func (v value) byte(i int) byte {
	if i >= 8 {
		return byte(v.high >> (8 * (i - 8)))
	}
	return byte(v.low >> (8 * i))
}

// put sets byte i, which is 0.
func (v *value) put(i int, b byte) {
	if i >= 8 {
		v.high |= uint64(b) << (8 * (i - 8))
	} else {
		v.low |= uint64(b) << (8 * i)
	}
}

// write is one value that a location had or has.
type write struct {
	actor
	value   value
	clocks  clocks // of its thread, itself included
	heads   []head
	source  *write // what its atomic read; nil: it is a store's
	nth     int    // of the writes of its thread to strong locations, from 1; 0: the initial value
	readers []reader
	most    int // readers, before those that say nothing new are dropped
}

type reader struct {
	actor
	clocks clocks
	choice int32 // where it was decided what it reads, -1 if nowhere
	wrote  bool  // it is an atomic's, which wrote
}

// seen is a write that a read observed, in a history that has ended.
type seen struct{ write, read event }

// location is memory that strong operations use, or any in a racy program: all values that it had and that somebody might
// still read, in coherence order.
type location struct {
	address uint64
	size    int
	order   []*write
	waiters []int32   // threads that wait for another value
	seen    []seen    // what was observed in histories that ended when this one began
	next    *location // another in the same word
}

// Readers of one write that are kept as they are: of more, those that say nothing new are dropped.
const (
	mostReaders = 1 << 8
	mostChoices = 1 << 12 // of those whose choices the search may come back to
)

// readBy adds a reader of w. Of many reads by one instruction of one thread the first and the last say all: whatever comes after
// one of them comes after the first, and whatever they all come before comes after the last. That does not hold of an atomic that
// wrote. True: the search can no longer come back to some of them.
func (w *write) readBy(r reader) (forgotten bool) {
	w.readers = append(w.readers, r)
	if len(w.readers) <= max(w.most, mostReaders) {
		return false
	}
	type who struct {
		id, task int32
		inst     *ptx.Inst
	}
	type ends struct{ first, last int }
	at := map[who]ends{}
	choices := 0
	for i := range w.readers {
		r := &w.readers[i]
		if r.choice >= 0 {
			choices++
		}
		k := who{r.id, r.task, r.inst}
		e, ok := at[k]
		switch {
		case !ok:
			e = ends{i, i}
		case r.n < w.readers[e.first].n:
			e.first = i
		case r.n >= w.readers[e.last].n:
			e.last = i
		}
		at[k] = e
	}
	keep := w.readers[:0]
	for i, r := range w.readers {
		e := at[who{r.id, r.task, r.inst}]
		switch {
		case i == e.first || i == e.last || r.wrote:
		case r.choice >= 0 && choices <= mostChoices:
		default:
			forgotten = forgotten || r.choice >= 0
			continue
		}
		keep = append(keep, r)
	}
	clear(w.readers[len(keep):])
	w.readers = keep
	w.most = 2 * len(keep)
	return forgotten
}

// forget leaves of w, which has left its location's order, what others tell it by.
func (w *write) forget() {
	clear(w.readers)
	w.clocks, w.heads, w.source, w.readers = nil, nil, nil, w.readers[:0]
}

// give puts what w wrote among the values of a load, as its element k. One of 16 bytes takes two, and has no others beside it.
func (l *location) give(v *[4]uint64, k int, w *write) {
	v[k] = w.value.low
	if l.size == 16 {
		v[1] = w.value.high
	}
}

func (l *location) last() *write { return l.order[len(l.order)-1] }

// floor is the index of the oldest write that a thread with these clocks may still read.
func (l *location) floor(c clocks) int {
	for i := len(l.order) - 1; i > 0; i-- {
		w := l.order[i]
		if c.has(w.id, w.n) {
			return i
		}
		for k := range w.readers {
			if r := &w.readers[k]; c.has(r.id, r.n) && morallyStrong(&w.actor, &r.actor) {
				return i
			}
		}
	}
	return 0
}

// split is whether a write put at index `at` would come between an atomic and what it read: a must not then. torn: it
// would, and the scopes are such that the model lets it.
func (l *location) split(at int, a *actor) (forbidden bool, torn *write) {
	for j := at; j < len(l.order); j++ {
		w := l.order[j]
		if w.source == nil || !l.precedes(w.source, at) {
			continue
		}
		if morallyStrong(&w.actor, a) {
			return true, nil
		}
		torn = w
	}
	return false, torn
}

// precedes is whether w lies before index at; what has been forgotten does.
func (l *location) precedes(w *write, at int) bool {
	for _, v := range l.order[at:] {
		if v == w {
			return false
		}
	}
	return true
}

// readable is whether a read that was issued with these clocks and is still open may take order[i]: nothing that comes
// after the read may be contradicted.
func (l *location) readable(i int, a *actor, issued clocks, passed []actor) bool {
	w := l.order[i]
	if w.clocks != nil && w.clocks.has(a.id, a.n) {
		return false
	}
	if !morallyStrong(&w.actor, a) {
		return true
	}
	for j := 0; j <= i; j++ {
		v := l.order[j]
		if v.clocks != nil && v.clocks.has(a.id, a.n) {
			return false
		}
		if j == i {
			break
		}
		for k := range v.readers {
			if r := &v.readers[k]; r.clocks != nil && r.clocks.has(a.id, a.n) {
				return false
			}
		}
	}
	for k := range w.heads {
		h := &w.heads[k]
		for f := range passed {
			if !issued.has(h.id, h.n) && morallyStrong(&h.actor, &passed[f]) {
				return false // it would have synchronised with that fence
			}
		}
	}
	return true
}

// insert puts w at index i of the coherence order.
func (l *location) insert(i int, w *write) {
	l.order = append(l.order, nil)
	copy(l.order[i+1:], l.order[i:])
	l.order[i] = w
}

// scopeOf is an instruction's scope, as an actor has it.
func scopeOf(in *ptx.Inst) ptx.Scope {
	if in.Sem == ptx.Volatile {
		return ptx.ScopeSys
	}
	return in.Scope
}
