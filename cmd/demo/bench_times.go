package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
)

const (
	// replayBudget and cellBudget bound one replay, and all replays of one cell in one round, where -n and --replays
	// leave it open.
	replayBudget = 50 * time.Millisecond
	cellBudget   = 500 * time.Millisecond
	fewestCalls  = 5
	fewestReps   = 3
)

// benchTimes is one half of a row of nccl-tests: out of place, or in place. Times are µs of one call on the slowest rank.
type benchTimes struct {
	Calls   int     `json:"calls"`   // of a replay; emulated: 1
	Samples int     `json:"samples"` // replays; emulated: calls
	TimeUS  float64 `json:"time_us"` // the median
	P10     float64 `json:"p10_us"`
	P50     float64 `json:"p50_us"`
	P90     float64 `json:"p90_us"`
	P99     float64 `json:"p99_us"`
	AlgBW   float64 `json:"algbw"` // bytes / time, GB/s (10^9)
	BusBW   float64 `json:"busbw"` // algbw × 2(n-1)/n
	Wrong   uint64  `json:"wrong"` // elements whose bits differ from the reference, over all ranks
	Stray   uint64  `json:"stray_bytes"`
	Equal   bool    `json:"ranks_equal"`
	First   string  `json:"first,omitempty"` // the first thing that is wrong

	times []time.Duration
}

func (t *benchTimes) right() bool { return t.Wrong == 0 && t.Stray == 0 && t.Equal }

// add takes the times of one more round.
func (t *benchTimes) add(times []time.Duration, calls int) {
	t.times, t.Calls = append(t.times, times...), calls
}

// checked takes what a check found.
func (t *benchTimes) checked(v verdict) {
	t.Wrong, t.Stray, t.Equal, t.First = v.wrong, v.stray, v.equal, v.first
}

// finish draws the numbers from the samples of all rounds.
func (t *benchTimes) finish(bytes uint64, ranks int) {
	slices.Sort(t.times)
	t.Samples = len(t.times)
	for _, q := range []struct {
		to *float64
		at float64
	}{{&t.P10, 0.1}, {&t.P50, 0.5}, {&t.P90, 0.9}, {&t.P99, 0.99}} {
		*q.to = micros(percentile(t.times, q.at))
	}
	t.TimeUS = t.P50
	r := result{Bytes: bytes, TimeUS: t.TimeUS}
	r.rate(ranks)
	t.AlgBW, t.BusBW = r.AlgBW, r.BusBW
}

// percentile is the nearest rank of sorted times; 0 of none.
func percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// contender is what is measured beside others: an algorithm on a group, or another library.
type contender interface {
	name() string
	// plan is what a call of w does and why; nil where that is not ours to know.
	plan(w row) (*allreduce.Plan, error)
	// open allocates the memory of calls of w, and fills it with what is summed while times are taken; close frees it.
	open(ctx context.Context, w row, seed uint64) error
	close() error
	// times are those of one call, one for each replay of so many.
	times(ctx context.Context, inPlace bool) (times []time.Duration, calls int, err error)
	// check makes one call with payloads that hang on the seed, and compares the result with the reference.
	check(ctx context.Context, seed uint64, inPlace bool) (verdict, error)
}

// lengths are how often things are repeated.
type lengths struct {
	calls, warmup, replays   int
	callsGiven, replaysGiven bool
}

// fit shortens what was not asked for, for calls that take that long.
func (l lengths) fit(call time.Duration) (calls, replays int) {
	calls, replays = l.calls, l.replays
	if call <= 0 {
		return calls, replays
	}
	if !l.callsGiven {
		calls = min(calls, max(fewestCalls, int(replayBudget/call)))
	}
	if !l.replaysGiven {
		replays = min(replays, max(fewestReps, int(cellBudget/(call*time.Duration(calls)))))
	}
	return calls, replays
}

// groupContender measures an algorithm of ours.
type groupContender struct {
	label     string
	rt        *launcher.Runtime
	g         *allreduce.Group
	by        allreduce.Table // what its calls go by
	captured  bool            // they do
	registers bool            // the buffers
	emulated  bool
	timeout   time.Duration
	lengths   lengths
	clock     *stopwatch
	prepare   func(b *bench) // makes the calls those of another library; nil: ours
	b         *bench
}

func (c *groupContender) name() string { return c.label }

func (c *groupContender) plan(w row) (*allreduce.Plan, error) {
	p, err := c.g.Plan(w.count, w.dtype)
	if c.captured {
		p, err = c.g.PlanBy(c.by, w.count, w.dtype)
	}
	return &p, err
}

func (c *groupContender) open(ctx context.Context, w row, seed uint64) (err error) {
	if c.b, err = newBench(c.rt, c.g, w, c.timeout); err != nil {
		c.b = nil
		return err
	}
	if c.registers {
		if err := c.b.register(); err != nil {
			return err
		}
	}
	if c.captured {
		c.b.capture = c.capture
	}
	if plan, err := c.plan(w); err != nil {
		return err
	} else if plan != nil {
		c.b.fillFor(plan)
	}
	if c.prepare != nil {
		c.prepare(c.b)
	}
	rng := payloadsOf(seed, w)
	c.b.fill(w.dtype, rng, c.b.payload)
	return c.b.upload(ctx, c.b.in, 0, byte(rng.Uint32()), false)
}

// payloadsOf is the source of the payloads of a row: the same for every contender.
func payloadsOf(seed uint64, w row) *rand.Rand {
	return rand.New(rand.NewPCG(seed, w.count<<2|uint64(w.dtype)))
}

func (c *groupContender) close() error {
	if c.b == nil {
		return nil
	}
	b := c.b
	c.b = nil
	return b.free()
}

func (c *groupContender) capture(queue func() error) (*allreduce.Graph, error) {
	if c.captured {
		return c.g.CaptureBy(c.by, queue)
	}
	return c.g.Capture(queue)
}

func (c *groupContender) times(ctx context.Context, inPlace bool) ([]time.Duration, int, error) {
	in, out, err := c.b.bodies()
	if err != nil {
		return nil, 0, err
	}
	if inPlace {
		in = out
	}
	if c.emulated {
		n := c.lengths.calls
		if !c.lengths.callsGiven {
			n = 0
		}
		times, err := hostTimes(n, func() error { return c.b.call(ctx, in, out) })
		return times, 1, err
	}
	work := graphWork{calls: 1, warmup: 1, replays: 1, capture: c.capture,
		call: func() error { return c.b.queue(in, out) }}
	first, err := c.clock.times(ctx, c.timeout, work) // how long it takes, about
	if err != nil {
		return nil, 0, err
	}
	work.warmup = c.lengths.warmup
	work.calls, work.replays = c.lengths.fit(first[0])
	times, err := c.clock.times(ctx, c.timeout, work)
	return times, work.calls, err
}

func (c *groupContender) check(ctx context.Context, seed uint64, inPlace bool) (verdict, error) {
	return c.b.verify(ctx, payloadsOf(seed, c.b.row), inPlace)
}
