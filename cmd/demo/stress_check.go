package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags"
)

// stressTally counts what was checked.
type stressTally struct {
	Calls    uint64 `json:"calls"`
	BadCalls uint64 `json:"bad_calls"` // with anything wrong on any rank
	Wrong    uint64 `json:"wrong"`     // elements that differ from the reference, over all ranks
	Stray    uint64 `json:"stray_bytes"`
	Elements uint64 `json:"elements"` // summed, on each rank
	Bytes    uint64 `json:"bytes"`    // of messages
	First    string `json:"first,omitempty"`

	times stressTimes
}

// stressPatience is how long after the group's own timeout a batch may take.
const stressPatience = 2 * time.Minute

// collect waits for a batch and checks it. Every batch that was queued is collected, unless its group fails.
func (w *stressWork) collect(s *stressSet, into *stressTally) error {
	if !s.queued {
		return nil
	}
	s.queued = false
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout+stressPatience)
	defer cancel()
	for _, e := range s.done {
		if err := e.Sync(ctx); err != nil {
			return err
		}
	}
	var t stressTally
	if err := w.check(s, &t); err != nil {
		return err
	}
	if t.BadCalls > 0 { // of a failed call nothing is promised
		if err := w.g.Sync(ctx); err != nil {
			return err
		}
	}
	for k := range s.sampled {
		var slowest time.Duration
		for r := range w.devices {
			d, err := s.marks[k][1][r].Elapsed(s.marks[k][0][r])
			if err != nil {
				return err
			}
			slowest = max(slowest, d)
		}
		t.times.add(slowest)
	}
	into.add(&t)
	return nil
}

// others is what the ranks beside the one in a timeout's error waited for. A rank with nothing to say was the one that came too late.
func (w *stressWork) others(timeout error) error {
	var first *flags.StuckError
	if !errors.As(timeout, &first) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout+stressPatience)
	defer cancel()
	var errs []error
	for r := range w.devices {
		var stuck *flags.StuckError
		if errors.As(w.g.Rank(r).Sync(ctx), &stuck) && stuck.Rank != first.Rank {
			errs = append(errs, stuck)
		}
	}
	return errors.Join(errs...)
}

func (t *stressTally) add(o *stressTally) {
	t.Calls, t.BadCalls, t.Wrong, t.Stray = t.Calls+o.Calls, t.BadCalls+o.BadCalls, t.Wrong+o.Wrong, t.Stray+o.Stray
	t.Elements, t.Bytes = t.Elements+o.Elements, t.Bytes+o.Bytes
	if t.First == "" {
		t.First = o.First
	}
	t.times.merge(&o.times)
}

// check compares the outputs of a batch, and the guards between them, with the reference, on all cores.
func (w *stressWork) check(s *stressSet, into *stressTally) error {
	var eg errgroup.Group
	workers := runtime.GOMAXPROCS(0)
	var mu sync.Mutex
	for k := range workers {
		eg.Go(func() error {
			var t stressTally
			var want []byte
			for i := k; i < len(s.calls); i += workers {
				c := s.calls[i]
				in := make([][]byte, len(w.devices))
				for r := range in {
					in[r] = w.pools[c.dt][r][c.from[r] : c.from[r]+c.bytes]
				}
				want = slices.Grow(want[:0], int(c.bytes))[:c.bytes]
				if err := allreduce.Reference(c.dt, want, in...); err != nil {
					return err
				}
				t.judge(s, c, want)
			}
			mu.Lock()
			defer mu.Unlock()
			into.add(&t)
			return nil
		})
	}
	return eg.Wait()
}

var guardBlock = bytes.Repeat([]byte{stressPoison}, 256)

// judge compares one call on all ranks.
func (t *stressTally) judge(s *stressSet, c *stressCall, want []byte) {
	t.Calls++
	t.Elements += c.count
	t.Bytes += c.bytes
	width := c.dt.Size()
	good := true
	note := func(format string, args ...any) {
		good = false
		if t.First == "" {
			t.First = fmt.Sprintf("%d elements of %v, %s: ", c.count, c.dt, c.what()) + fmt.Sprintf(format, args...)
		}
	}
	for r, at := range c.at {
		all := s.host[r].Bytes()[c.start:c.end]
		got := all[at-c.start : at-c.start+c.bytes]
		if !bytes.Equal(got, want) {
			for k := uint64(0); k < c.bytes; k += width {
				if g, x := got[k:k+width], want[k:k+width]; !bytes.Equal(g, x) {
					t.Wrong++
					note("rank %d: element %d is %s, the reference has %s", r, k/width, show(c.dt, g), show(c.dt, x))
				}
			}
		}
		for _, guard := range [][]byte{all[:at-c.start], all[at-c.start+c.bytes:]} {
			if bytes.Equal(guard, guardBlock[:len(guard)]) {
				continue
			}
			for _, b := range guard {
				if b != stressPoison {
					t.Stray++
				}
			}
			note("rank %d: bytes beside the output were overwritten: % x", r, guard)
		}
	}
	if !good {
		t.BadCalls++
	}
}

func (c *stressCall) what() string {
	return [...]string{"staged from the pool", "registered input, overwritten behind the call", "input overwritten behind the call", "in place", "replayed"}[c.kind]
}

// inputs checks that nobody wrote to the pools. Each byte that differs is stray.
func (w *stressWork) inputs(t *stressTally) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout+stressPatience)
	defer cancel()
	got := make([]byte, len(w.pools[0][0]))
	var errs []error
	for r := range w.devices {
		for dt := range w.pool {
			err := w.g.Rank(r).Stream().CopyOut(ctx, got, w.pool[dt][r])
			if err != nil || bytes.Equal(got, w.pools[dt][r]) {
				errs = append(errs, err)
				continue
			}
			for i, b := range got {
				if b == w.pools[dt][r][i] {
					continue
				}
				t.Stray++
				if t.First == "" {
					t.First = fmt.Sprintf("rank %d: byte %d of the inputs was overwritten", r, i)
				}
			}
		}
	}
	return errors.Join(errs...)
}
