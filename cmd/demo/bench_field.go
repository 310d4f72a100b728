package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/allreduce"
)

// field is all that is measured beside each other with one number of ranks.
type field struct {
	groups     []*allreduce.Group
	contenders []contender
	clocks     map[*allreduce.Group]*stopwatch
	others     []func() error // close what is not ours
}

// field makes the groups of a world. One group does all that goes over direct kernels, each choice in captures of its own: so
// all have the same streams, and none takes room from another. Copy and host, which do not mix with them in a graph,
// have a group each.
func (r *benchRun) field(ctx context.Context, w *worldReport) (f *field, err error) {
	f = &field{clocks: map[*allreduce.Group]*stopwatch{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.closeField(f))
		}
	}()
	table, direct, refused := r.set.rules(), allreduce.Table{}, map[allreduce.Algorithm]bool{}
	for _, alg := range r.set.algorithms {
		if alg == allreduce.NCCL && r.nccl != nil {
			r.rep.note("%d ranks: %v is what --compare measures", w.Ranks, alg)
			continue
		}
		if _, err := allreduce.Select(r.input(w, alg)); errors.Is(err, allreduce.ErrNoPlan) && r.set.every {
			refused[alg] = true
			r.rep.note("%d ranks: %v is left out: %v", w.Ranks, alg, err)
		} else if err != nil {
			return f, err
		} else if alg.Direct() {
			direct = append(direct, allreduce.Rule{Algorithm: alg})
		}
	}
	if r.set.auto || len(direct) > 0 {
		g, err := r.group(ctx, f, w, allreduce.Auto, append(table[:len(table):len(table)], direct...))
		if err != nil {
			return f, err
		}
		if r.set.auto {
			f.contenders = append(f.contenders, r.contender(f, allreduce.Auto, g, table, len(direct) > 0 || table != nil))
		}
		for _, rule := range direct {
			by := allreduce.Table{rule}
			plan, err := g.PlanBy(by, r.set.rows[0].count, r.set.rows[0].dtype)
			switch {
			case err != nil:
				return f, err
			case plan.Algorithm == rule.Algorithm:
				f.contenders = append(f.contenders, r.contender(f, rule.Algorithm, g, by, true))
			case r.set.every:
				r.rep.note("%d ranks: %v is left out: %s", w.Ranks, rule.Algorithm, plan.Reason)
			default:
				return f, fmt.Errorf("%v with %d ranks: %s", rule.Algorithm, w.Ranks, plan.Reason)
			}
		}
	}
	for _, alg := range r.set.algorithms {
		if alg.Direct() || refused[alg] || alg == allreduce.NCCL && r.nccl != nil {
			continue
		}
		g, err := r.group(ctx, f, w, alg, nil)
		switch {
		case (errors.Is(err, allreduce.ErrNoPlan) || errors.Is(err, allreduce.ErrNCCL)) && r.set.every: // its copies must not go where the other groups' kernels do
			r.rep.note("%d ranks: %v is left out: %v", w.Ranks, alg, err)
			continue
		case err != nil:
			return f, err
		}
		f.contenders = append(f.contenders, r.contender(f, alg, g, nil, false))
	}
	if r.nccl != nil {
		err = r.addNCCL(ctx, f, w)
	}
	return f, err
}

func (r *benchRun) group(ctx context.Context, f *field, w *worldReport, alg allreduce.Algorithm, t allreduce.Table) (*allreduce.Group, error) {
	cfg := r.set.worldConfig(&r.rep.machineReport, w, r.rep.Measurement, alg, t, largest(r.set.rows))
	cfg.DirectBytes = r.set.direct
	g, err := allreduce.NewGroup(r.rt, cfg)
	if err != nil {
		return nil, fmt.Errorf("%d ranks, %v: %w", w.Ranks, alg, r.set.remedyLate(ctx, err))
	}
	f.groups = append(f.groups, g)
	clock, err := newStopwatch(r.rt, g)
	if err != nil {
		return nil, err
	}
	f.clocks[g] = clock
	return g, nil
}

func (r *benchRun) contender(f *field, alg allreduce.Algorithm, g *allreduce.Group, by allreduce.Table, captured bool) contender {
	return &groupContender{label: alg.String(), rt: r.rt, g: g, by: by, captured: captured, emulated: r.rep.Backend.Emulated,
		timeout: r.set.timeout, lengths: r.lengths, clock: f.clocks[g], registers: r.set.direct != 0}
}

// closeField frees all of it. Where work still runs, the runtime's Close releases the rest.
func (r *benchRun) closeField(f *field) error {
	var errs []error
	busy := false
	for _, end := range f.others {
		errs = append(errs, end())
	}
	f.others = nil
	for _, g := range f.groups {
		err := g.Close()
		busy = busy || errors.Is(err, allreduce.ErrBusy)
		errs = append(errs, err)
	}
	for _, clock := range f.clocks {
		if !busy {
			errs = append(errs, clock.close())
		}
	}
	f.groups, f.clocks = nil, nil
	for _, c := range r.left {
		if !busy {
			errs = append(errs, c.close())
		}
	}
	r.left = nil
	return errors.Join(errs...)
}

// size measures one size: the contenders in turn, round after round, and then checks each.
func (r *benchRun) size(ctx context.Context, f *field, w *worldReport, floor *floorReport, row row) (err error) {
	results := make([]benchResult, len(f.contenders))
	var opened []contender
	defer func() {
		if err != nil {
			r.left = append(r.left, opened...)
			return
		}
		for _, c := range opened {
			err = errors.Join(err, c.close())
		}
	}()
	for i, c := range f.contenders {
		plan, err := c.plan(row)
		if err != nil {
			return err
		}
		results[i] = benchResult{Ranks: w.Ranks, Name: c.name(), Bytes: row.bytes(), Count: row.count, DType: row.dtype, Redop: "sum", Plan: plan}
		opened = append(opened, c)
		if err := c.open(ctx, row, r.set.seed); err != nil {
			return r.failed(ctx, c, row, err)
		}
	}
	for range r.set.rounds {
		for i, c := range f.contenders {
			if err := r.cell(ctx, c, &results[i]); err != nil {
				return r.failed(ctx, c, row, err)
			}
		}
		r.cells++
		r.bar.done(r.cells)
	}
	for i, c := range f.contenders {
		for _, half := range results[i].halves() {
			v, err := c.check(ctx, r.set.seed+1, half.inPlace)
			if err != nil {
				return r.failed(ctx, c, row, err)
			}
			half.t.checked(v)
		}
	}
	r.bar.hide()
	for i := range results {
		results[i].finish(floor)
	}
	for _, res := range append(results, r.besides(w, floor, row)...) {
		r.rep.Results = append(r.rep.Results, res)
		if r.text != nil {
			r.text.row(&res)
		}
	}
	return nil
}

// cell times one contender in one round.
func (r *benchRun) cell(ctx context.Context, c contender, res *benchResult) error {
	for _, half := range res.halves() {
		if ctx.Err() != nil {
			return errInterrupted
		}
		times, calls, err := c.times(ctx, half.inPlace)
		if err != nil {
			return err
		}
		half.t.add(times, calls)
	}
	return nil
}

func (r *benchRun) failed(ctx context.Context, c contender, w row, err error) error {
	return fmt.Errorf("%d elements of %v by %s: %w", w.count, w.dtype, c.name(), r.set.remedyLate(ctx, err))
}
