package check

import (
	"slices"

	"github.com/fenceline/fenceline/internal/ptx"
)

type state uint8

const (
	ready      state = iota
	waitsValue       // for another value of a location: a spin loop whose exit test no readable value passes
	waitsWrite       // for a certain write or fence, which the search wants it to see
	waitsBarrier
	waitsWarp // for the others of its warp
	waitsGrid // for the launch ahead in the stream to end
	ended
)

// thread is one thread of one launch.
type thread struct {
	m      *ptx.Thread
	index  int32 // in exec.threads
	id     int32 // in clocks
	task   int32
	block  int32
	lane   int32 // linear in its block
	device int32
	cta    int32
	clocks clocks

	fences   [5]head // the latest release fence of each scope
	fenced   [5]bool
	releases []placedHead // release operations, by location
	gathered []placedHead // what strong reads saw, for an acquire to come
	most     int          // of those, before some are dropped
	pending  []pending

	state   state
	held    bool // at an operation that has not been performed
	event   ptx.Event
	forced  *write // what the read at hand must take
	waiting target // with waitsWrite
	writes  int32  // to locations
	choice  int32  // where the operation at hand was decided, -1 if nowhere
	scs     int32  // fence.sc
	tokens  uint64
	hurried bool // it no longer waits for values that let it leave a loop
	spins   map[*ptx.Inst]spin
}

type placedHead struct {
	head
	at *location
}

// pending is a load whose value is not decided yet.
type pending struct {
	token  uint64
	loc    *location
	actor  actor
	issued clocks
	passed []actor // fences since
	want   target
	choice int32
}

// target is the nth write to a location of a thread, or with -nth its nth fence.sc.
type target struct {
	thread int32 // index in exec.threads; -1: none
	nth    int32
	pass   bool   // of a load that stays open: also across fences, which then must not synchronise with what it sees
	at     uint64 // the location's address, as a thread's nth write may be another when it goes another way; 0: any
}

// same is whether o is what w waits for; elsewhere: the thread has gone another way, and what w waits for never comes.
func (w target) same(o target) (same, elsewhere bool) {
	if w.thread != o.thread || w.nth != o.nth {
		return false, false
	}
	same = w.at == o.at || w.at == 0
	return same, !same
}

var noTarget = target{thread: -1}

type spin struct {
	count int
	seen  uint64 // writes that the execution had then
}

func (t *thread) actor(in *ptx.Inst) actor {
	return actor{event: t.now(in), strong: in.Sem != ptx.Weak, scope: scopeOf(in), device: t.device, cta: t.cta}
}

func (t *thread) now(in *ptx.Inst) event {
	return event{id: t.id, n: t.clocks[t.id], task: t.task, inst: in}
}

// tick ends the current epoch: what the thread does from now on is not part of the snapshots made so far.
func (t *thread) tick() { t.clocks[t.id]++ }

// take makes what h stands for come before whatever t does from now on.
func (t *thread) take(h *head) { t.clocks.join(h.clocks) }

// observe is a strong read of w by a: the heads that w carries are taken now by an acquire, and kept for an acquire to come.
func (x *exec) observe(t *thread, l *location, w *write, a *actor, acquire bool) {
	if morallyStrong(&w.actor, a) {
		for i := range w.heads {
			h := &w.heads[i]
			switch {
			case t.clocks.has(h.id, h.n):
			case acquire && morallyStrong(&h.actor, a):
				t.take(h)
			default:
				t.gather(placedHead{*h, l})
			}
		}
	}
	if !acquire {
		return
	}
	keep := t.gathered[:0]
	for i := range t.gathered {
		if g := &t.gathered[i]; g.at == l && morallyStrong(&g.actor, a) {
			t.take(&g.head)
		} else {
			keep = append(keep, *g)
		}
	}
	t.gathered = keep
}

const mostGathered = 1 << 8 // before those are dropped that others cover

// gather keeps h for an acquire to come.
func (t *thread) gather(h placedHead) {
	t.gathered = append(t.gathered, h)
	if len(t.gathered) <= max(t.most, mostGathered) {
		return
	}
	type from struct {
		id, task int32
		scope    ptx.Scope
		at       *location
	}
	last := map[from]int{}
	for i := range t.gathered {
		g := &t.gathered[i]
		k := from{g.id, g.task, g.scope, g.at}
		if o, ok := last[k]; !ok || g.covers(&t.gathered[o].head) {
			last[k] = i
		}
	}
	keep := t.gathered[:0]
	for i, g := range t.gathered {
		if last[from{g.id, g.task, g.scope, g.at}] == i {
			keep = append(keep, g)
		}
	}
	clear(t.gathered[len(keep):])
	t.gathered = keep
	t.most = 2 * len(keep)
}

// heads are what a strong write of t to l, at index i of its order, carries.
func (x *exec) heads(t *thread, l *location, a *actor, release bool, now clocks, source *write) []head {
	if !a.strong {
		return nil
	}
	var out []head
	if release {
		h := head{*a, now}
		out = append(out, h)
		for i := range t.releases {
			if r := &t.releases[i]; r.at == l && r.scope <= a.scope {
				r.head = h
				release = false
			}
		}
		if release {
			t.releases = append(t.releases, placedHead{h, l})
		}
	}
	for i := range t.releases {
		if r := &t.releases[i]; r.at == l && r.n != a.n {
			out = append(out, r.head)
		}
	}
	for s := range t.fences {
		if t.fenced[s] {
			out = append(out, t.fences[s])
		}
	}
	if source == nil || !morallyStrong(&source.actor, a) {
		return out
	}
	own := len(out)
	for i := range source.heads {
		if h := &source.heads[i]; !slices.ContainsFunc(out[:own], func(o head) bool { return o.covers(h) }) {
			out = append(out, *h)
		}
	}
	return out
}

// fence performs one; with sc it also comes after all earlier fence.sc that its scope and theirs let see each other.
func (x *exec) fence(t *thread, in *ptx.Inst) {
	a := actor{event: t.now(in), strong: true, scope: in.Scope, device: t.device, cta: t.cta}
	if in.Sem.Acquires() {
		keep := t.gathered[:0]
		for i := range t.gathered {
			if g := &t.gathered[i]; morallyStrong(&g.actor, &a) {
				t.take(&g.head)
			} else {
				keep = append(keep, *g)
			}
		}
		t.gathered = keep
		for i := range t.pending {
			t.pending[i].passed = append(t.pending[i].passed, a)
		}
	}
	if in.Sem == ptx.SC {
		for i := range x.scs {
			if f := &x.scs[i]; morallyStrong(&f.actor, &a) {
				t.take(&f.head)
			}
		}
	}
	now := x.slab.copy(t.clocks)
	if in.Sem.Releases() {
		t.fences[in.Scope], t.fenced[in.Scope] = head{a, now}, true
	}
	if in.Sem == ptx.SC {
		t.scs++
		f := scFence{head{a, now}, t.index, t.scs, t.choice}
		at := -1
		if f.choice < 0 { // no search comes back to it
			at = slices.IndexFunc(x.scs, func(o scFence) bool { return f.covers(&o.head) })
		}
		if at >= 0 {
			x.scs[at] = f
		} else {
			x.scs = append(x.scs, f)
		}
		x.arrived(target{thread: t.index, nth: -t.scs})
	}
	t.tick()
}

// scFence is a fence.sc that was performed.
type scFence struct {
	head
	thread int32
	nth    int32
	choice int32
}
