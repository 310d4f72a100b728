package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
)

const (
	// rowBudget is how long the default repetitions of one row may take on the emulator.
	rowBudget = 150 * time.Millisecond
	// replays of the captured graph on a GPU; the median counts.
	replays = 5

	hostClock   = "host clock around queueing and waiting, median of calls"
	deviceClock = "device events around a captured graph of all calls, divided by their number, all ranks begun together; slowest rank, median of 5 replays"
)

// timing is how long a call takes, and over how many calls that was measured.
type timing struct {
	call  time.Duration
	calls int
}

// timer takes the time of out-of-place calls of a row. iters 0 is the default.
type timer func(ctx context.Context, rt *launcher.Runtime, b *bench, iters int) (timing, error)

// timeOnHost times each call by itself. It is for the emulator: queueing alone takes longer than a call on a GPU.
func timeOnHost(ctx context.Context, _ *launcher.Runtime, b *bench, iters int) (timing, error) {
	in, out, err := b.bodies()
	if err != nil {
		return timing{}, err
	}
	times, err := hostTimes(iters, func() error { return b.call(ctx, in, out) })
	return timing{median(times), len(times)}, err
}

// hostTimes are those of so many calls, or with 0 of some, as long as they fit the budget of a row.
func hostTimes(iters int, call func() error) ([]time.Duration, error) {
	budget := time.Duration(0)
	if iters == 0 {
		iters, budget = emulatedIters, rowBudget
	}
	var times []time.Duration
	start := time.Now()
	for len(times) < iters && (len(times) == 0 || budget == 0 || time.Since(start) < budget) {
		t0 := time.Now()
		if err := call(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(t0))
	}
	return times, nil
}

// timeOnDevice captures all calls in one graph and takes the device's time for it.
func timeOnDevice(ctx context.Context, rt *launcher.Runtime, b *bench, iters int) (t timing, err error) {
	in, out, err := b.bodies()
	if err != nil {
		return t, err
	}
	if iters == 0 {
		iters = gpuIters
	}
	times, err := graphTimes(ctx, rt, b.g, b.timeout, graphWork{calls: iters, warmup: 1, replays: replays, capture: b.g.Capture,
		call: func() error { return b.queue(in, out) }})
	return timing{median(times), iters}, err
}

// graphWork is what is timed on a device: call, captured so many times in one graph that is replayed.
type graphWork struct {
	calls, warmup, replays int // warmup: replays ahead, which do not count
	capture                func(queue func() error) (*allreduce.Graph, error)
	call                   func() error
}

// graphTimes is the device's time for one call on the slowest rank, for each replay.
func graphTimes(ctx context.Context, rt *launcher.Runtime, g *allreduce.Group, timeout time.Duration, w graphWork) (times []time.Duration, err error) {
	c, err := newStopwatch(rt, g)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	return c.times(ctx, timeout, w)
}

// times is graphTimes with a stopwatch that is there.
func (m *stopwatch) times(ctx context.Context, timeout time.Duration, w graphWork) (times []time.Duration, err error) {
	graph, err := w.capture(func() error {
		for range w.calls {
			if err := w.call(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("capture %d calls: %w", w.calls, err)
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	for left := mostEarly; len(times) < w.replays; {
		d, early, err := m.replay(ctx, timeout, graph, w.calls)
		switch {
		case err != nil:
			return nil, err
		case w.warmup > 0:
			w.warmup--
		case early && left > 0: // not all ranks were ready when the first began
			left--
		default:
			times = append(times, d/time.Duration(w.calls))
		}
	}
	return times, nil
}

// mostEarly is how many replays may be thrown away because the gate opened early.
const mostEarly = 10

// bodies are the buffers of an out-of-place call on aligned addresses.
func (b *bench) bodies() (in, out []launcher.Buffer, err error) {
	if in, err = b.body(b.in, 0); err != nil {
		return nil, nil, err
	}
	out, err = b.body(b.out, 0)
	return in, out, err
}

// stopwatch is two timing events on every rank's stream, behind a gate.
type stopwatch struct {
	g          *allreduce.Group
	gate       *gate
	emulated   bool
	start, end []*launcher.Event
}

func newStopwatch(rt *launcher.Runtime, g *allreduce.Group) (*stopwatch, error) {
	m := &stopwatch{g: g, emulated: rt.Info().Emulated}
	var err error
	if m.gate, err = newGate(rt, g.Rank(0).Device(), g.World()); err != nil {
		return nil, err
	}
	for r := range g.World() {
		for _, list := range []*[]*launcher.Event{&m.start, &m.end} {
			e, err := rt.NewEvent(g.Rank(r).Device(), true)
			if err != nil {
				return nil, errors.Join(err, m.close())
			}
			*list = append(*list, e)
		}
	}
	return m, nil
}

func (m *stopwatch) close() error {
	errs := []error{m.gate.close()}
	for _, e := range slices.Concat(m.start, m.end) {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// replay runs the graph of so many calls once and gives the time of the slowest rank, and whether the gate opened before all
// ranks were queued. The emulator's time does not go on by itself, so that there it never does.
func (m *stopwatch) replay(ctx context.Context, timeout time.Duration, graph *allreduce.Graph, calls int) (slowest time.Duration, early bool, err error) {
	if err := m.gate.shut(); err != nil {
		return 0, false, err
	}
	for r, e := range m.start {
		s := m.g.Rank(r).Stream()
		if err := errors.Join(s.Wait(m.gate.opened), s.Record(e)); err != nil {
			return 0, false, err
		}
	}
	if err := graph.Launch(); err != nil {
		return 0, false, err
	}
	for r, e := range m.end {
		if err := m.g.Rank(r).Stream().Record(e); err != nil {
			return 0, false, err
		}
	}
	if !m.emulated {
		if early, err = m.gate.early(); err != nil {
			return 0, false, err
		}
	}
	// The timeout is meant for one call; a hundred good ones fit in it, more may not.
	ctx, cancel := context.WithTimeout(ctx, timeout*time.Duration(1+calls/100))
	defer cancel()
	if err := m.g.Sync(ctx); err != nil {
		return 0, false, err
	}
	for r := range m.start {
		d, err := m.end[r].Elapsed(m.start[r])
		if err != nil {
			return 0, false, err
		}
		slowest = max(slowest, d)
	}
	return slowest, early, nil
}

// median is the lower one of an even number; 0 of none.
func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[(len(times)-1)/2]
}
