package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/fenceline/fenceline/allreduce"
)

// cliffSlack is what counts as none: times of one size vary by some percent.
const cliffSlack = 0.10

// cliff is two sizes between which the time of auto does not grow as it should: the larger one is faster, or one element more
// costs much more.
type cliff struct {
	InPlace bool            `json:"in_place,omitempty"`
	Ranks   int             `json:"ranks"`
	DType   allreduce.DType `json:"dtype"`
	Small   cliffEdge       `json:"small"`
	Large   cliffEdge       `json:"large"`
}

type cliffEdge struct {
	Bytes  uint64          `json:"bytes"`
	TimeUS float64         `json:"time_us"`
	Plan   *allreduce.Plan `json:"plan,omitempty"`
}

func (c *cliff) String() string {
	edge := func(e cliffEdge) string {
		return fmt.Sprintf("%d bytes %.2f us (%v)", e.Bytes, e.TimeUS, e.Plan.Algorithm)
	}
	place := choice(c.InPlace, ", in place", "")
	return fmt.Sprintf("%d ranks, %v%s: %s, %s", c.Ranks, c.DType, place, edge(c.Small), edge(c.Large))
}

// findCliffs looks at what auto took, out of place and in place.
func findCliffs(results []benchResult) []cliff {
	var outOfPlace, inPlace []benchResult
	for _, r := range results {
		if r.Name != allreduce.Auto.String() || r.Plan == nil {
			continue
		}
		if r.Out.Samples > 0 {
			outOfPlace = append(outOfPlace, r)
		}
		if r.Out = r.In; r.Out.Samples > 0 {
			inPlace = append(inPlace, r)
		}
	}
	found := cliffsOf(outOfPlace)
	for _, c := range cliffsOf(inPlace) {
		c.InPlace = true
		found = append(found, c)
	}
	return found
}

// cliffsOf goes by the times out of place.
func cliffsOf(rows []benchResult) (found []cliff) {
	slices.SortStableFunc(rows, func(a, b benchResult) int {
		return cmp.Or(cmp.Compare(a.Ranks, b.Ranks), cmp.Compare(a.DType, b.DType), cmp.Compare(a.Count, b.Count))
	})
	add := func(a, b *benchResult) {
		found = append(found, cliff{false, a.Ranks, a.DType, cliffEdge{a.Bytes, a.Out.TimeUS, a.Plan}, cliffEdge{b.Bytes, b.Out.TimeUS, b.Plan}})
	}
	var slowest, told *benchResult // of the smaller sizes, and the one that was last told of
	for i := range rows {
		b := &rows[i]
		if i == 0 || b.Ranks != rows[i-1].Ranks || b.DType != rows[i-1].DType {
			slowest = b
			continue
		}
		a := &rows[i-1]
		drops := a.Out.TimeUS > (1+cliffSlack)*b.Out.TimeUS
		dearer := b.Count == a.Count+1 && b.Out.TimeUS > (1+cliffSlack)*a.Out.TimeUS
		switch {
		case drops || dearer:
			add(a, b)
		case slowest != told && slowest.Out.TimeUS > (1+cliffSlack)*b.Out.TimeUS: // bit by bit
			add(slowest, b)
		}
		if slowest.Out.TimeUS > (1+cliffSlack)*b.Out.TimeUS {
			told = slowest
		}
		if b.Out.TimeUS > slowest.Out.TimeUS {
			slowest = b
		}
	}
	return found
}

// printCliffs says what findCliffs found.
func printCliffs(w io.Writer, found []cliff) {
	if len(found) == 0 {
		fmt.Fprintf(w, "No cliff: with auto no larger size is faster, and no single element more slower, by over %.0f %%.\n", 100*cliffSlack)
		return
	}
	fmt.Fprintf(w, "Cliffs of auto (a larger size is faster, or one element more slower, by over %.0f %%):\n", 100*cliffSlack)
	for i := range found {
		fmt.Fprintf(w, "  %v\n", &found[i])
	}
}
