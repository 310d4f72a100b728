package emu

import (
	"runtime"
	"time"
)

// How long a driving call rests when all blocks sleep or nothing can run.
const (
	restFrom = 20 * time.Microsecond
	restMost = 500 * time.Microsecond
	patience = 4 // idle slices before the first rest: most sleeps of a kernel are shorter than a rest
)

// forever is a wait without a bound, of the copies that the seam lets wait so.
const forever = time.Duration(1<<63 - 1)

// goal is what a call waits for.
type goal struct {
	dev    *device // a fault of it ends the wait too
	queue  *stream // with ticket: so many ops of it ended
	ticket uint64
	rec    *record
}

func (g *goal) met(d *driver) bool {
	return d.closed || g.dev.fault != nil || g.done()
}

// done is met without the failures.
func (g *goal) done() bool {
	if g.queue != nil {
		return g.queue.completed >= g.ticket
	}
	return g.rec.done
}

// waiter is a call that waits while another drives.
type waiter struct {
	goal *goal
	ch   chan struct{} // one wake-up
}

func (w *waiter) wake() {
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

// notify wakes the waiters whose goals are met.
func (d *driver) notify() {
	s := &d.sched
	kept := s.waiters[:0]
	for _, w := range s.waiters {
		if w.goal.met(d) {
			w.wake()
		} else {
			kept = append(kept, w)
		}
	}
	clear(s.waiters[len(kept):])
	s.waiters = kept
}

// await lets time pass until g is met, or the limit is over. With no limit it runs one slice. The
// mutex is held on entry and on return, not in between.
func (d *driver) await(g *goal, limit time.Duration) {
	if g.met(d) {
		return
	}
	if limit <= 0 {
		if d.run(g, pollCost) && !g.met(d) {
			d.mu.Unlock()
			time.Sleep(restFrom)
			d.mu.Lock()
		}
		return
	}
	deadline := time.Now().Add(limit)
	if limit == forever {
		deadline = time.Time{}
	}
	s := &d.sched
	for !g.met(d) && !over(deadline) {
		if s.driving {
			d.follow(g, deadline)
			continue
		}
		s.driving = true
		d.drive(g, deadline)
		s.driving = false
	}
	// Whoever stops driving, or was asked to and has no time left, hands it on.
	if !s.driving && len(s.waiters) > 0 {
		w := s.waiters[0]
		s.waiters = append(s.waiters[:0], s.waiters[1:]...)
		w.wake()
	}
}

func over(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// drive runs slices until g is met or the deadline is past.
func (d *driver) drive(g *goal, deadline time.Time) {
	rest, idle := restFrom, 0
	for {
		if d.run(g, sliceCost) {
			idle++
		} else {
			rest, idle = restFrom, 0
		}
		if g.met(d) || over(deadline) {
			return
		}
		d.mu.Unlock()
		if idle > patience {
			time.Sleep(rest)
			rest = min(2*rest, restMost)
		}
		d.makeWay()
		d.lock()
	}
}

// makeWay lets the callers that need the mutex for a moment have it.
func (d *driver) makeWay() {
	for i := 0; i < 100 && d.urgent.Load() > 0; i++ {
		runtime.Gosched()
	}
}

// follow waits while another call drives.
func (d *driver) follow(g *goal, deadline time.Time) {
	w := &waiter{goal: g, ch: make(chan struct{}, 1)}
	d.sched.waiters = append(d.sched.waiters, w)
	var expired <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		expired = t.C
	}
	d.mu.Unlock()
	select {
	case <-w.ch:
	case <-expired:
	}
	d.lock()
	s := &d.sched
	for i, other := range s.waiters {
		if other == w {
			s.waiters = append(s.waiters[:i], s.waiters[i+1:]...)
			break
		}
	}
}

// pass lets a little time pass, for calls that poll, unless another call drives anyway.
func (d *driver) pass() {
	d.lock()
	idle := false
	if !d.closed && !d.sched.driving {
		idle = d.run(nil, pollCost)
	}
	d.mu.Unlock()
	if idle {
		time.Sleep(restFrom)
	}
}
