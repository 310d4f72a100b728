package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags"
)

// absentRank shows what happens when a rank never arrives: the others fail in time and name it, the group refuses
// more work, and a new group on the same runtime works. It closes g.
func (r *runner) absentRank(ctx context.Context, g *allreduce.Group) error {
	rep := &absentReport{Rank: r.set.absent, Others: []absentWitness{}}
	r.rep.Absent = rep
	w := r.rows[0]
	b, err := newBench(r.rt, g, w, r.set.timeout)
	if err != nil {
		return errors.Join(r.set.remedyLate(ctx, err), g.Close())
	}
	r.left = append(r.left, b)
	if r.text != nil {
		r.text.absentStart(rep.Rank, w, r.set.timeout)
	}
	err = r.witness(ctx, g, b)
	if err == nil {
		err = r.refusal(b)
	}
	cerr := r.closeGroup(g)
	if ctx.Err() != nil && (cerr == nil || errors.Is(cerr, flags.ErrTimeout)) {
		return errInterrupted // what the calls that were cut short came to is no news
	}
	if err = errors.Join(err, cerr); err != nil {
		return err
	}
	if r.text != nil {
		r.text.absentSeen(rep)
	}
	again, err := r.group(ctx)
	if err != nil {
		return fmt.Errorf("rebuild the group: %w", err)
	}
	err = r.one(ctx, again, 0, w)
	if cerr := r.closeGroup(again); cerr != nil {
		err = errors.Join(err, cerr)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return fmt.Errorf("after the rebuild: %w", err)
	}
	rep.Rebuilt = r.rep.Results[0].right()
	return nil
}

// witness lets all ranks but the absent one call, and records what each gets.
func (r *runner) witness(ctx context.Context, g *allreduce.Group, b *bench) error {
	in, out, err := b.bodies()
	if err != nil {
		return err
	}
	rep := r.rep.Absent
	ctx, cancel := context.WithTimeout(ctx, r.set.timeout)
	defer cancel()
	var mu sync.Mutex
	start := time.Now()
	err = g.Each(ctx, func(_ context.Context, rank *allreduce.Rank) error {
		id := rank.ID()
		if id == rep.Rank {
			return nil
		}
		err := rank.AllReduce(in[id], out[id], b.row.count, b.row.dtype)
		if err == nil {
			err = rank.Sync(ctx) // not Each's context: one rank's error must not cut the others short
		}
		after := time.Since(start)
		w := absentWitness{Rank: id, AfterMS: float64(after) / float64(time.Millisecond), Names: names(err, rep.Rank), InTime: after <= r.set.timeout}
		if err != nil {
			w.Error = err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		rep.Others = append(rep.Others, w)
		return nil
	})
	slices.SortFunc(rep.Others, func(a, b absentWitness) int { return a.Rank - b.Rank })
	return err
}

// names is whether err tells that rank was missing.
func names(err error, rank int) bool {
	var stuck *flags.StuckError
	if errors.As(err, &stuck) {
		return slices.Contains(stuck.Missing, rank)
	}
	var absent *allreduce.AbsentError
	return errors.As(err, &absent) && slices.Contains(absent.Missing, rank)
}

// refusal tries the failed group once more.
func (r *runner) refusal(b *bench) error {
	in, out, err := b.bodies()
	if err != nil {
		return err
	}
	err = b.g.AllReduce(in, out, b.row.count, b.row.dtype)
	r.rep.Absent.Refused = errors.Is(err, allreduce.ErrFailed)
	if err != nil {
		r.rep.Absent.Refusal = err.Error()
	}
	return nil
}

func (t *table) absentStart(rank int, w row, timeout time.Duration) {
	fmt.Fprintf(t.w, "\nRank %d stays away from a call of %d elements of %v. The group gives it up after %v, so that the others know\nwithin --timeout %v.\n", rank, w.count, w.dtype, groupTimeout(timeout), timeout)
}

func (t *table) absentSeen(r *absentReport) {
	for _, w := range r.Others {
		told := w.Error
		if told == "" {
			told = "NO ERROR"
		}
		fmt.Fprintf(t.w, "  rank %d after %.0f ms: %s\n", w.Rank, w.AfterMS, told)
	}
	fmt.Fprintf(t.w, "Another call on the same group: %s\n", orElse(r.Refusal, "WAS TAKEN"))
	fmt.Fprint(t.w, "A new group on the same runtime:\n\n")
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (t *table) absentVerdict(r *runReport) {
	a := r.Absent
	if r.Error == "" && a.shown() {
		fmt.Fprintf(t.w, "FAULT, as demonstrated: rank %d never arrived. Every other rank failed in time and named it, the group took no more work,\nand a new group on the same devices gives right results.\n", a.Rank)
		return
	}
	var why []string
	for _, w := range a.Others {
		switch {
		case !w.Names:
			why = append(why, fmt.Sprintf("rank %d does not name rank %d", w.Rank, a.Rank))
		case !w.InTime:
			why = append(why, fmt.Sprintf("rank %d took longer than the timeout", w.Rank))
		}
	}
	if !a.Refused {
		why = append(why, "the failed group took more work")
	}
	if !a.Rebuilt {
		why = append(why, "the rebuilt group was not shown to work")
	}
	if r.Error != "" {
		why = append(why, r.Error)
	}
	fmt.Fprintf(t.w, "FAIL: rank %d was absent, and not all went as it must: %s\n", a.Rank, strings.Join(why, "; "))
}
