package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags/check"
	"github.com/fenceline/fenceline/flags/check/litmus"
	"github.com/fenceline/fenceline/flags/stress"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

// controlRow is what one weakened kernel came to.
type controlRow struct {
	Weakening stress.Weakening `json:"weakening"`
	Changed   int              `json:"changed"` // instructions of the module
	Calls     uint64           `json:"calls"`
	BadCalls  uint64           `json:"bad_calls"`
	Wrong     uint64           `json:"wrong"`
	Failures  int              `json:"failures"` // groups that timed out, and were made anew
	Fault     string           `json:"fault,omitempty"`
	Verdict   string           `json:"verdict"`
}

const (
	controlTimeout  = 500 * time.Millisecond
	mostControlFail = 20
)

// control runs kernels whose synchronisation was taken out. What comes of them is said, and does not count.
func (r *stresser) control(ctx context.Context) error {
	share := min(max(r.set.duration/24, 500*time.Millisecond), 8*time.Second)
	for _, weak := range stress.Weakenings() {
		if ctx.Err() != nil {
			return nil
		}
		row, err := r.weakened(ctx, weak, time.Now().Add(share))
		if err != nil {
			return fmt.Errorf("control %s: %w", weak, err)
		}
		row.judge(r.rep.Backend.Emulated)
		r.rep.Control = append(r.rep.Control, row)
		if row.Fault != "" {
			r.lost = true // the device takes no more work
			break
		}
	}
	return nil
}

// weakened makes calls with one kind of synchronisation left out, with pauses and without in turn.
func (r *stresser) weakened(ctx context.Context, weak stress.Weakening, until time.Time) (row controlRow, err error) {
	row.Weakening = weak
	beat := r.beat
	r.beat = nil
	defer func() { r.beat = beat }()
	for i := 0; i == 0 || ctx.Err() == nil && time.Now().Before(until) && row.Failures < mostControlFail; i++ {
		round := r.draw(0)
		round.Algorithm = r.set.algorithm
		cfg := r.config(&round)
		cfg.Timeout = controlTimeout
		cfg.Table = allreduce.Table{{Algorithm: allreduce.OneshotPull}} // with auto: packets have nothing that could be left out
		cfg.Patch = func(file string, ptx []byte) ([]byte, error) {
			out, n, err := weak.Patch(file, ptx)
			row.Changed = max(row.Changed, n)
			return out, err
		}
		if i%2 == 1 && r.set.delays {
			cfg.Patch = r.delayed(&round, cfg.Patch)
		}
		part := max(time.Until(until)/2, 200*time.Millisecond)
		var t stressTally
		rerr := r.round(ctx, cfg, &round, part, time.Now().Add(time.Hour), &t)
		row.Calls, row.BadCalls, row.Wrong = row.Calls+t.Calls, row.BadCalls+t.BadCalls, row.Wrong+t.Wrong
		var fault *launcher.FaultError
		switch {
		case rerr == nil:
		case errors.As(rerr, &fault):
			row.Fault = fault.Error()
			return row, nil
		case errors.Is(rerr, allreduce.ErrFailed), stuck(rerr):
			row.Failures++
		default:
			return row, rerr
		}
		if row.Changed == 0 {
			return row, nil
		}
	}
	return row, nil
}

func (c *controlRow) judge(emulated bool) {
	what := "the hardware hides it"
	if emulated {
		what = "the emulator's memory is sequentially consistent and hides it"
	}
	switch {
	case c.Changed == 0:
		c.Verdict = "nothing to leave out in this kernel"
	case c.Fault != "":
		c.Verdict = fmt.Sprintf("a fault after %d calls (expected): %s", c.Calls, c.Fault)
	case c.BadCalls > 0 && c.Failures > 0:
		c.Verdict = fmt.Sprintf("%d wrong of %d calls, and %d timeout(s) (expected)", c.BadCalls, c.Calls, c.Failures)
	case c.BadCalls > 0:
		c.Verdict = fmt.Sprintf("%d wrong of %d calls (expected)", c.BadCalls, c.Calls)
	case c.Failures > 0:
		c.Verdict = fmt.Sprintf("%d timeout(s), and nothing wrong in the %d calls that were checked (expected)", c.Failures, c.Calls)
	default:
		c.Verdict = fmt.Sprintf("nothing wrong seen in %d calls: %s", c.Calls, what)
	}
}

// litmusTests are the suite and what --litmus-files names.
func litmusTests(set *stressSettings) ([]*litmus.Test, error) {
	if !set.litmus {
		return nil, nil
	}
	suite, err := check.LitmusSuite()
	if err != nil {
		return nil, err
	}
	for _, pattern := range set.litmusFiles {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			return nil, &usageError{Flag: "--litmus-files", Value: pattern, Detail: "there is no such file", Err: err}
		}
		for _, f := range files {
			text, err := readFor("--litmus-files", f)
			if err != nil {
				return nil, err
			}
			more, err := check.ParseLitmus(f, text)
			if err != nil {
				return nil, &usageError{Flag: "--litmus-files", Err: err}
			}
			suite = append(suite, more...)
		}
	}
	tests := make([]*litmus.Test, len(suite))
	for i, t := range suite {
		tests[i] = t.Test
	}
	return tests, nil
}

// peersHold is whether nothing speaks against what the driver claims of any pair.
func (r *stressReport) peersHold() bool {
	for i, row := range r.P2P {
		for j := range row {
			if i == j {
				continue
			}
			if pull, push := r.reach(i, j); !pull || !push {
				return false
			}
			if r.Measurement == nil {
				continue
			}
			if f := r.Measurement.Pairs[i][j]; f.Flags.Refutes() || f.Atomics.Answer == topo.No {
				return false
			}
		}
	}
	return true
}

// litmus runs the litmus tests. With several devices each test runs with all of its devices on one,
// too; only so where probing found that peers do not do what they claim, for then no test across them would say anything of the kernels.
func (r *stresser) litmus(ctx context.Context, tests []*litmus.Test) error {
	d := r.rt.Driver()
	o := stress.LitmusOptions{Seed: r.set.seed, Time: r.set.litmusTime * 4 / 5}
	passes := []bool{true}
	if len(r.rep.Devices) > 1 && r.rep.peersHold() {
		passes = []bool{false, true}
		o.Time /= 2
	}
	for _, virtual := range passes {
		o.Virtual = virtual
		results, err := stress.RunLitmus(ctx, d, tests, o)
		r.rep.Litmus = append(r.rep.Litmus, results...)
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
	o.Time = r.set.litmusTime / 5
	results, err := stress.RunHostLitmus(ctx, d, o)
	r.rep.Litmus = append(r.rep.Litmus, results...)
	return err
}
