package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fenceline/fenceline/allreduce"
)

// candidate is one choice for one size. The shipped one has no table.
type candidate struct {
	by    allreduce.Table
	plan  allreduce.Plan
	times []time.Duration
}

func (c *candidate) shipped() bool { return c.by == nil }

// candidates are all choices that differ, the shipped one first. Grids with much more threads than there is work are left out.
func (t *tuner) candidates(g *allreduce.Group, capable allreduce.Table, w row) ([]candidate, error) {
	var list []candidate
	add := func(by allreduce.Table) error {
		plan, err := g.PlanBy(by, w.count, w.dtype)
		if err != nil || by != nil && plan.Algorithm != by[0].Algorithm {
			return err
		}
		for _, c := range list {
			if c.plan.Algorithm == plan.Algorithm && c.plan.Blocks == plan.Blocks && c.plan.Threads == plan.Threads {
				return nil
			}
		}
		list = append(list, candidate{by: by, plan: plan})
		return nil
	}
	if err := add(nil); err != nil {
		return nil, err
	}
	for _, rule := range capable {
		if err := add(allreduce.Table{{Algorithm: rule.Algorithm}}); err != nil {
			return nil, err
		}
		for _, threads := range t.threads {
			for _, blocks := range t.blocks {
				if work := (w.bytes() + 7) / 8; blocks > 1 && uint64(blocks*threads) > 2*work {
					continue
				}
				if err := add(allreduce.Table{{Algorithm: rule.Algorithm, Blocks: blocks, Threads: threads}}); err != nil {
					return nil, err
				}
			}
		}
	}
	return list, nil
}

// searchSize finds the fastest choice for one size, and checks its result.
func (t *tuner) searchSize(ctx context.Context, c *groupContender, capable allreduce.Table, w *worldReport, row row) (found tuneChoice, err error) {
	list, err := t.candidates(c.g, capable, row)
	if err != nil {
		return found, err
	}
	tried := len(list)
	var best, shipped candidate
	err = t.at(ctx, c, row, func() error {
		full := c.lengths
		c.lengths.replays = min(scouting, full.replays)
		err := t.round(ctx, c, list)
		c.lengths = full
		if err != nil {
			return err
		}
		list = fastest(list, tuneBest)
		for i := range list {
			list[i].times = nil
		}
		if err := t.rounds(ctx, c, list); err != nil {
			return err
		}
		best, shipped = pick(list)
		return t.right(ctx, c, &best)
	})
	if err != nil {
		return found, err
	}
	found = tuneChoice{Ranks: w.Ranks, Bytes: row.bytes(), DType: row.dtype, Plan: best.plan, Tried: tried, Shipped: best.shipped(), To: row.bytes(),
		TimeUS: micros(median(slices.Clone(best.times))), ShippedPlan: shipped.plan, ShippedUS: micros(median(slices.Clone(shipped.times)))}
	if best.by != nil {
		found.grid = best.by[0]
	} else {
		found.grid = allreduce.Rule{Algorithm: best.plan.Algorithm}
	}
	return found, nil
}

// at makes the calls of c those of one size while measure runs.
func (t *tuner) at(ctx context.Context, c *groupContender, row row, measure func() error) error {
	err := c.open(ctx, row, t.set.seed)
	if err == nil {
		err = measure()
	}
	if err != nil {
		t.left = append(t.left, c)
		return t.failed(ctx, c, row, err)
	}
	return c.close()
}

// rounds times the candidates in turn, as often as was asked for.
func (t *tuner) rounds(ctx context.Context, c *groupContender, list []candidate) error {
	for range t.set.rounds {
		if err := t.round(ctx, c, list); err != nil {
			return err
		}
	}
	return nil
}

// right compares the result of a candidate with the reference.
func (t *tuner) right(ctx context.Context, c *groupContender, by *candidate) error {
	c.by = by.by
	v, err := c.check(ctx, t.set.seed+1, false)
	if err == nil && (v.wrong+v.stray > 0 || !v.equal) {
		err = fmt.Errorf("%v gave a wrong result: %s", by.plan, v.first)
	}
	return err
}

// round times every candidate once.
func (t *tuner) round(ctx context.Context, c *groupContender, list []candidate) error {
	for i := range list {
		if ctx.Err() != nil {
			return errInterrupted
		}
		c.by = list[i].by
		times, _, err := c.times(ctx, false)
		if err != nil {
			return fmt.Errorf("%v: %w", list[i].plan, err)
		}
		list[i].times = append(list[i].times, times...)
	}
	return nil
}

// fastest are the n candidates with the smallest medians, in their order, and the shipped one in any case.
func fastest(list []candidate, n int) []candidate {
	order := slices.Clone(list)
	slices.SortStableFunc(order, func(a, b candidate) int {
		return int(median(slices.Clone(a.times)) - median(slices.Clone(b.times)))
	})
	limit := time.Duration(math.MaxInt64)
	if len(order) > n {
		limit = median(slices.Clone(order[n-1].times))
	}
	return slices.DeleteFunc(slices.Clone(list), func(c candidate) bool {
		return !c.shipped() && median(slices.Clone(c.times)) > limit
	})
}

// pick is the fastest, or the shipped one where nothing is faster by more than tuneSlack.
func pick(list []candidate) (best, shipped candidate) {
	best = list[0]
	for _, c := range list {
		if median(slices.Clone(c.times)) < median(slices.Clone(best.times)) {
			best = c
		}
		if c.shipped() {
			shipped = c
		}
	}
	if float64(median(slices.Clone(best.times))) >= (1-tuneSlack)*float64(median(slices.Clone(shipped.times))) {
		best = shipped
	}
	return best, shipped
}

// rulesOf makes rules of the choices: each holds from where the one of the next smaller size ends, and neighbours that are the
// same are one. typed: for the element type that was measured, otherwise for all.
func rulesOf(choices []tuneChoice, typed bool) allreduce.Table {
	var rules allreduce.Table
	for i, c := range choices {
		r := c.grid
		r.World, r.To = c.Ranks, c.To
		if typed {
			r.DTypes = []allreduce.DType{c.DType}
		}
		if i > 0 && choices[i-1].Ranks == c.Ranks && choices[i-1].DType == c.DType {
			r.From = choices[i-1].To + 1
			if last := &rules[len(rules)-1]; sameChoice(*last, r) {
				last.To = r.To
				continue
			}
		}
		rules = append(rules, r)
	}
	return rules
}
