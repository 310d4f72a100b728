package check

import (
	"math/rand/v2"
)

// chooser makes the choices of an execution.
type chooser interface {
	begin(x *exec)
	// thread is who goes next; nil: nobody can.
	thread(x *exec) *thread
	// read chooses among n values, the newest first. Or t is to wait for a write, or later is true: the load stays open,
	// which it may only with mayDefer, until that write comes or, with noTarget, until its value is needed.
	read(x *exec, t *thread, n int, mayDefer bool) (i int, want target, later bool)
	// place chooses among n places in coherence order, the last first.
	place(x *exec, n int) int
	// block chooses which of n blocks that wait for room starts.
	block(n int) int
	// late is whether a dependent launch that may start waits for the end of the launch ahead.
	late(x *exec) bool
	// fence is what t's fence.sc has to wait for; noTarget: nothing.
	fence(x *exec, t *thread, a *actor) target
	// passes is told that an open load, which waits for a write, has come to a fence.
	passes(p *pending)
	// wrote is told of each write of t, and of each atomic that might have been one; before is what comes before it.
	wrote(x *exec, t *thread, l *location, before clocks, id int32)
}

// randomly chooses by chance.
type randomly struct {
	seed      uint64 // of the execution
	rng       *rand.Rand
	pcg       *rand.PCG
	fresh     int // of 16: how often the newest value is read
	deferring int // of 16: how often a load stays open
	last      int // of 16: how often a write comes last in coherence order

	changes    int // with PCT: how often priorities change; -1: no priorities
	priorities []int64
	rounds     []int32  // of each thread: its steps in loops while others could go, since it fell behind them
	lowest     int64    // priority so far
	at         []uint64 // steps at which the leader falls behind
	step       uint64
	length     uint64 // of executions so far
	fixed      bool   // length is given, by a token
}

// A leader that has taken so many steps in loops, while others could go, falls behind them: what it waits for may be theirs to do.
// An exchange that takes a lock writes each time, so no wait for another value shows.
const mostLed = 256

func newRandomly(pct bool) *randomly {
	r := &randomly{pcg: rand.NewPCG(0, 0), changes: -1}
	r.rng = rand.New(r.pcg)
	if pct {
		r.changes = 3
	}
	return r
}

func (r *randomly) begin(x *exec) {
	r.pcg.Seed(r.seed, 0x9e3779b97f4a7c15)
	r.fresh = []int{4, 8, 12, 15}[r.rng.IntN(4)]
	r.deferring = []int{0, 2, 6, 10}[r.rng.IntN(4)]
	r.last = []int{6, 12, 15}[r.rng.IntN(3)]
	if r.changes < 0 {
		return
	}
	if !r.fixed {
		r.length = max(r.length, r.step, 64)
	}
	r.step = 0
	r.priorities, r.rounds, r.lowest = r.priorities[:0], r.rounds[:0], 0
	for range x.threads {
		r.priorities = append(r.priorities, int64(r.rng.Uint32()|1))
		r.rounds = append(r.rounds, 0)
	}
	r.at = r.at[:0]
	for range r.changes {
		r.at = append(r.at, r.rng.Uint64N(r.length))
	}
}

func (r *randomly) thread(x *exec) *thread {
	for {
		t := r.candidate(x)
		if t == nil || len(t.pending) == 0 || r.rng.IntN(4) > 0 {
			return t
		}
		i := r.rng.IntN(len(t.pending)) // one of its open loads gets its value
		if t.pending[i].want == noTarget {
			x.use(t, t.pending[i].token)
			if x.over {
				return t
			}
		}
	}
}

func (r *randomly) candidate(x *exec) *thread {
	if r.changes >= 0 {
		return r.leader(x)
	}
	n := len(x.ready)
	if n == 0 {
		return nil
	}
	from := r.rng.IntN(n)
	for k := range n {
		i := from + k
		if i >= n {
			i -= n
		}
		if t := x.threads[x.ready[i]]; t.state == ready {
			return t
		}
	}
	return nil
}

func (r *randomly) leader(x *exec) *thread {
	for {
		var best *thread
		n := 0
		for _, i := range x.ready {
			if t := x.threads[i]; t.state == ready {
				if n++; best == nil || r.priorities[i] > r.priorities[best.index] {
					best = t
				}
			}
		}
		if best == nil {
			return nil
		}
		if n > 1 && best.held && best.event.Inst.Loop {
			if r.rounds[best.index]++; r.rounds[best.index] > mostLed {
				r.lowest--
				r.priorities[best.index], r.rounds[best.index] = r.lowest, 0
				continue
			}
		}
		r.step++
		for i, s := range r.at {
			if s == r.step {
				r.priorities[best.index] = int64(i) // below all others that have not fallen behind
				r.at[i] = 0
				best = nil
				break
			}
		}
		if best != nil {
			return best
		}
	}
}

func (r *randomly) read(_ *exec, _ *thread, n int, mayDefer bool) (int, target, bool) {
	if mayDefer && r.rng.IntN(16) < r.deferring {
		return 0, noTarget, true
	}
	switch {
	case n == 1 || r.rng.IntN(16) < r.fresh:
		return 0, noTarget, false
	case r.rng.IntN(2) == 0:
		return n - 1, noTarget, false
	}
	return r.rng.IntN(n), noTarget, false
}

func (r *randomly) place(_ *exec, n int) int {
	if n == 1 || r.rng.IntN(16) < r.last {
		return 0
	}
	return r.rng.IntN(n)
}

func (r *randomly) block(n int) int { return r.rng.IntN(n) }

func (r *randomly) late(*exec) bool { return r.rng.IntN(2) == 0 }

func (r *randomly) passes(*pending)                                {}
func (r *randomly) fence(*exec, *thread, *actor) target            { return noTarget }
func (r *randomly) wrote(*exec, *thread, *location, clocks, int32) {}
