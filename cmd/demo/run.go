package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
)

// runner is one run: what was asked for, what it runs on, and what came out.
type runner struct {
	set      settings
	rt       *launcher.Runtime
	rows     []row
	rep      runReport
	text     *table // nil with --json
	progress *progress
	measure  timer
	left     []*bench // memory that a kernel may still use, freed once its group is closed
}

// run is `demo run`.
func (a *app) run(c *cobra.Command) (err error) {
	set, err := a.opt.checkRun(c.Flags().Changed)
	if err != nil {
		return err
	}
	rows, err := set.rows()
	if err != nil {
		return err
	}
	rt, err := open(set)
	if err != nil {
		return err
	}
	defer closeRuntime(rt, &err)
	defer noMulticast()()
	r := &runner{set: set, rt: rt, rows: rows}
	if err := r.prepare(); err != nil {
		return err
	}
	if err := r.examine(c.Context()); err != nil {
		return err
	}
	return a.report(c.Context(), r)
}

// examine probes what the ranks would rely on, so that the group goes by what was seen.
func (r *runner) examine(ctx context.Context) (err error) {
	if r.set.probing == probeNever || noPeers(r.set.algorithm, r.set.knobs) {
		return nil
	}
	r.rep.Measurement, err = r.set.check(ctx, r.rep.machine, r.rep.World.Devices, r.set.probing == probeAlways, r.set.probing == probeAuto)
	return afterProbe(ctx, err, ", or use --probe never")
}

// afterProbe is the failure of a command that has probed peer access, with what it offers besides demo doctor; nil of none.
func afterProbe(ctx context.Context, err error, or string) error {
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return fmt.Errorf("probe peer access: %w: see demo doctor%s", err, or)
	}
	return nil
}

// noPeers is whether nothing will go over peer access, whatever probing would find. Copies do where it works, and must
// not where it lies.
func noPeers(want allreduce.Algorithm, k allreduce.Knobs) bool {
	if want == allreduce.Auto {
		want = k.Algorithm
	}
	return want == allreduce.Host || k.P2PDisable || k.P2PLevel == allreduce.LevelLOC
}

// prepare describes the machine and places the ranks on it. What it refuses is refused before anything is
// allocated.
func (r *runner) prepare() (err error) {
	if r.rep.machineReport, err = describe(r.rt); err == nil {
		err = r.rep.stated(r.set)
	}
	if err != nil {
		return err
	}
	if err := r.set.fitsTable(r.rep.machine); err != nil {
		return err
	}
	emulated := r.rep.Backend.Emulated
	if r.rep.World, err = r.set.place(len(r.rep.Devices), emulated); err != nil {
		return err
	}
	n := r.rep.World.Ranks
	switch {
	case r.set.absent >= n:
		return usagef("--absent", fmt.Sprint(r.set.absent), "there are %d ranks, numbered from 0: use at most %d", n, n-1)
	case r.set.absent >= 0 && n == 1:
		return usagef("--absent", fmt.Sprint(r.set.absent), "with one rank nobody is left to notice: use --ranks 2 or more")
	}
	r.rep.Knobs = r.set.knobs
	r.rep.Seed, r.rep.TimeoutMS = r.set.seed, float64(r.set.timeout)/float64(time.Millisecond)
	r.measure, r.rep.Clock = timeOnDevice, deviceClock
	if emulated {
		r.measure, r.rep.Clock = timeOnHost, hostClock
	}
	r.rep.Results = []result{}
	return r.rep.World.fits(r.rep.Devices, emulated, largest(r.rows))
}

// report runs r and prints what comes out of it.
func (a *app) report(ctx context.Context, r *runner) error {
	r.progress = newProgress(a.stderr, len(r.rows))
	defer r.progress.close()
	g, err := r.group(ctx)
	if err != nil { // nothing was launched, so there are no results to print
		return err
	}
	if !a.opt.json {
		r.text = &table{w: a.stdout}
		if err := r.rep.brief(a.stdout); err != nil {
			return errors.Join(err, g.Close())
		}
		r.text.world(&r.rep)
	}
	if r.set.absent >= 0 {
		err = r.absentRank(ctx, g)
	} else {
		err = r.all(ctx, g)
		if err != nil && ctx.Err() != nil {
			err = errInterrupted
		}
		if cerr := r.closeGroup(g); cerr != nil {
			err = errors.Join(err, cerr)
		}
	}
	r.progress.close()
	r.rep.finish(err)
	if a.opt.json {
		if werr := writeJSON(a.stdout, &r.rep); werr != nil {
			return werr
		}
	} else {
		r.text.verdict(&r.rep)
	}
	for _, res := range r.rep.Results {
		if res.First != "" {
			fmt.Fprintf(a.stderr, "demo: %d bytes of %v by %v: %s\n", res.Bytes, res.DType, res.Plan.Algorithm, res.First)
		}
	}
	if err == nil && !r.rep.OK {
		return errReported
	}
	return err
}

// group makes the group of the run. A plan that cannot be had is the fault of what was asked for.
func (r *runner) group(ctx context.Context) (*allreduce.Group, error) {
	g, err := allreduce.NewGroup(r.rt, r.set.groupConfig(&r.rep, largest(r.rows)))
	switch {
	case errors.Is(err, allreduce.ErrNoPlan) && r.set.algorithm != allreduce.Auto:
		return nil, &usageError{Flag: "--algo", Err: err}
	case errors.Is(err, allreduce.ErrNoPlan) && r.set.knobs.Algorithm != allreduce.Auto: // which the error names
		return nil, &usageError{Err: err}
	case errors.Is(err, launcher.ErrOutOfMemory) && r.set.knobs.MaxBytes != 0:
		return nil, &usageError{Err: fmt.Errorf("%w: FENCELINE_MAX_BYTES asks for staging of %d bytes on each rank: make it smaller, or unset it", err, r.set.knobs.MaxBytes)}
	case errors.Is(err, allreduce.ErrInvalidArgument), errors.Is(err, allreduce.ErrUnknownName), errors.Is(err, allreduce.ErrNoPlan):
		return nil, &usageError{Flag: "configuration", Err: err}
	}
	return g, r.set.remedyLate(ctx, err)
}

// closeGroup waits for the group's work and frees all that it used.
func (r *runner) closeGroup(g *allreduce.Group) error {
	err := g.Close()
	if errors.Is(err, allreduce.ErrBusy) {
		return err // work still runs: the runtime's Close releases the rest
	}
	errs := []error{err}
	for _, b := range r.left {
		errs = append(errs, b.free())
	}
	r.left = nil
	return errors.Join(errs...)
}

var errInterrupted = errors.New("interrupted")

// all runs every row.
func (r *runner) all(ctx context.Context, g *allreduce.Group) error {
	for i, row := range r.rows {
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err := r.one(ctx, g, i, row); err != nil {
			return err
		}
	}
	return nil
}

// one checks and times one row. Each check has payloads of its own, which hang on the seed, the row and nothing else.
func (r *runner) one(ctx context.Context, g *allreduce.Group, i int, w row) (err error) {
	plan, err := g.Plan(w.count, w.dtype)
	if err != nil {
		return err
	}
	b, err := newBench(r.rt, g, w, r.set.timeout)
	if err != nil {
		return r.set.remedyLate(ctx, err)
	}
	b.fillFor(&plan)
	defer func() {
		if err != nil {
			r.left = append(r.left, b)
			return
		}
		err = b.free()
	}()
	fail := func(err error) error {
		return fmt.Errorf("%d elements of %v by %v: %w", w.count, w.dtype, plan.Algorithm, r.set.remedyLate(ctx, err))
	}
	rng := rand.New(rand.NewPCG(r.set.seed, uint64(i)))
	res := result{Bytes: w.bytes(), Count: w.count, DType: w.dtype, Redop: "sum", Plan: plan}
	out, err := b.verify(ctx, rng, false)
	if err != nil {
		return fail(err)
	}
	t, err := r.measure(ctx, r.rt, b, r.set.iters)
	if err != nil {
		return fail(err)
	}
	in, err := b.verify(ctx, rng, true)
	if err != nil {
		return fail(err)
	}
	res.Iters, res.TimeUS = t.calls, float64(t.call)/float64(time.Microsecond)
	res.rate(g.World())
	res.Wrong, res.WrongInPlace, res.Stray = out.wrong, in.wrong, out.stray+in.stray
	res.RanksEqual = out.equal && in.equal
	switch {
	case out.first != "":
		res.First = "out of place: " + out.first
	case in.first != "":
		res.First = "in place: " + in.first
	}
	r.add(res)
	return nil
}

// add records a result and prints its line.
func (r *runner) add(res result) {
	r.rep.Results = append(r.rep.Results, res)
	r.progress.hide()
	if r.text != nil {
		r.text.row(&res)
	}
	r.progress.done(len(r.rep.Results))
}

// finish draws the conclusion: all is right only if every row came and is right, and nobody was absent.
func (r *runReport) finish(err error) {
	if err != nil {
		r.Error = strings.TrimSpace(err.Error())
	}
	r.OK = err == nil && r.Absent == nil && len(r.Results) > 0
	for i := range r.Results {
		r.OK = r.OK && r.Results[i].right()
	}
}
