package main

import (
	"context"
	"fmt"

	"github.com/fenceline/fenceline/topo"
	"github.com/fenceline/fenceline/topo/probe"
)

// keep saves the machine as it is now, or sets it against what was saved, as --save and --check say.
func (a *app) keep(rep *topoReport, measured *topo.Measurement) error {
	o := &a.opt.topo
	var key topo.Key
	if o.from == "" { // a machine in a file has no state to tell
		var err error
		if key, err = topo.ReadKey("/", rep.Machine); err != nil {
			return err
		}
	}
	now := topo.NewBaseline(key, rep.Machine, measured)
	if o.check == "" {
		rep.Saved = o.save
		if err := now.Save(o.save); err != nil {
			return &usageError{Flag: "--save", Err: err}
		}
		return nil
	}
	was, err := topo.ReadBaseline(o.check)
	if err != nil {
		return unreadable("--check", err)
	}
	found := was.Check(now, topo.Tolerance)
	match := len(found) == 0
	rep.Differences, rep.Match, rep.NotCompared = append([]topo.Difference{}, found...), &match, was.NotCompared()
	return nil
}

// remembered takes from the cache what is known of the pairs in exactly this state of the machine, has the others probed,
// and keeps what that found. A cache that cannot be used costs time and nothing else.
func remembered(ctx context.Context, cache topo.Cache, key topo.Key, pairs []probe.Pair,
	measure func(context.Context, []probe.Pair) (*topo.Measurement, error),
) (*topo.Measurement, error) {
	known, err := cache.Load(key)
	var rest []probe.Pair
	for _, p := range pairs {
		if err != nil || !settled(known.Pairs[p.From][p.To]) {
			rest = append(rest, p)
		}
	}
	if len(rest) == 0 {
		return known, nil
	}
	found, merr := measure(ctx, rest)
	if merr != nil {
		return nil, merr
	}
	found.Key = key
	if err == nil {
		for _, p := range rest {
			known.Pairs[p.From][p.To] = found.Pairs[p.From][p.To]
		}
		found = known
	}
	_ = cache.Store(found) // without it the next run probes again
	return found, nil
}

// settled is whether a pair was probed to an answer on all that an algorithm rests on. A probe whose child died, or that
// could not be made for what another one did, is none; that flags cannot be tried without writes is.
func settled(m topo.Measured) bool {
	return m.Read.Answer != topo.Unknown && m.Write.Answer != topo.Unknown &&
		(m.Flags.Answer != topo.Unknown || m.Write.Answer == topo.No)
}

// store keeps what a whole probe of real devices found, for later runs.
func store(m *topo.Machine, found *topo.Measurement) error {
	key, err := topo.ReadKey("/", m)
	if err != nil {
		return err
	}
	cache, err := topo.DefaultCache()
	if err != nil {
		return err
	}
	kept := *found
	kept.Key = key
	if err := cache.Store(&kept); err != nil {
		return fmt.Errorf("keep what was found: %w: or use --no-cache", err)
	}
	return nil
}
