package main

import (
	"context"
	"math"
	"time"

	"github.com/fenceline/fenceline/allreduce"
)

const (
	boundPack  = 16   // bytes: sizes between two that were asked for are multiples of it, whole elements of any type
	boundRound = 1024 // or of this, where the search is not finer
	boundParts = 16   // the search ends when what is left is this part of the smaller size

	never = time.Duration(math.MaxInt64) // the time of a choice that cannot take a size
)

// tuneProbe is a size between two that were asked for, at which the choices of both were timed.
type tuneProbe struct {
	Bytes   uint64  `json:"bytes"`
	SmallUS float64 `json:"small_us,omitempty"` // median of the smaller size's choice; absent where it cannot take this size
	LargeUS float64 `json:"large_us,omitempty"`
}

// crossing is the size up to which the choice of the smaller of two sizes should hold, rather than that of the larger: at least
// small, and below large. timed gives the times of both. At the result neither is faster by more than tuneSlack, or the first is,
// and the other one is from less than a boundParts-th more on.
//
// Both ends come first. A grid that just fits a size does worse on the very next, so that right above it the other choice can be
// the faster at once; then, as where the two are equal, small is kept, the size that was asked for.
func crossing(small, large uint64, timed func(bytes uint64) (ofSmall, ofLarge time.Duration, err error)) (uint64, error) {
	ahead := func(bytes uint64) (int, error) { // 1: the choice of small; -1: that of large; 0: neither
		a, b, err := timed(bytes)
		switch {
		case clearlyFaster(a, b):
			return 1, err
		case clearlyFaster(b, a):
			return -1, err
		}
		return 0, err
	}
	lo, hi := small/boundPack*boundPack+boundPack, (large-1)/boundPack*boundPack
	if lo >= large {
		return small, nil
	}
	if who, err := ahead(lo); err != nil || who <= 0 {
		return small, err
	}
	if hi > lo {
		if who, err := ahead(hi); err != nil || who >= 0 {
			return hi, err
		}
	}
	for hi-lo > lo/boundParts {
		step := choice[uint64](lo/boundParts < boundRound, boundPack, boundRound)
		mid := (lo + hi) / 2 / step * step
		if mid <= lo {
			break
		}
		switch who, err := ahead(mid); {
		case err != nil || who == 0:
			return mid, err
		case who > 0:
			lo = mid
		default:
			hi = mid
		}
	}
	return lo, nil
}

// clearlyFaster is whether a is smaller than b by more than tuneSlack.
func clearlyFaster(a, b time.Duration) bool { return float64(a) < (1-tuneSlack)*float64(b) }

// bounds finds how far the choices of a world hold. Those of neighbours that differ are timed at sizes between.
func (t *tuner) bounds(ctx context.Context, c *groupContender, choices []tuneChoice) error {
	for i := 1; i < len(choices); i++ {
		small, large := &choices[i-1], &choices[i]
		if small.DType == large.DType && !sameChoice(small.grid, large.grid) {
			to, err := crossing(small.Bytes, large.Bytes, func(bytes uint64) (time.Duration, time.Duration, error) {
				return t.probe(ctx, c, small, large, bytes)
			})
			if err != nil {
				return err
			}
			small.To = to
		}
		t.step()
	}
	return nil
}

// probe times the choices of two neighbours at a size between, and checks their results.
func (t *tuner) probe(ctx context.Context, c *groupContender, small, large *tuneChoice, bytes uint64) (ofSmall, ofLarge time.Duration, err error) {
	at := row{small.DType, bytes / small.DType.Size()}
	var list []candidate
	var whose []int
	for i, grid := range []allreduce.Rule{small.grid, large.grid} {
		by := allreduce.Table{grid}
		plan, err := c.g.PlanBy(by, at.count, at.dtype)
		if err != nil {
			return 0, 0, err
		}
		if plan.Algorithm == grid.Algorithm {
			list, whose = append(list, candidate{by: by, plan: plan}), append(whose, i)
		}
	}
	err = t.at(ctx, c, at, func() error {
		if err := t.rounds(ctx, c, list); err != nil {
			return err
		}
		for i := range list {
			if err := t.right(ctx, c, &list[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	took, us := [2]time.Duration{never, never}, [2]float64{}
	for k, i := range whose {
		took[i] = median(list[k].times)
		us[i] = micros(took[i])
	}
	small.Probes = append(small.Probes, tuneProbe{bytes, us[0], us[1]})
	return took[0], took[1], nil
}

// nearest is the probe that is nearest to where a choice ends; nil of none.
func (c *tuneChoice) nearest() *tuneProbe {
	far := func(p tuneProbe) uint64 { return max(p.Bytes, c.To) - min(p.Bytes, c.To) }
	var best *tuneProbe
	for i := range c.Probes {
		if best == nil || far(c.Probes[i]) < far(*best) {
			best = &c.Probes[i]
		}
	}
	return best
}

func sameChoice(a, b allreduce.Rule) bool {
	return a.Algorithm == b.Algorithm && a.Blocks == b.Blocks && a.Threads == b.Threads
}
