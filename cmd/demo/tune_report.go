package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/fenceline/fenceline/allreduce"
)

// tuneReport is what `demo tune --json` prints.
type tuneReport struct {
	machineReport
	Worlds      []worldReport   `json:"worlds"`
	DirectBytes uint64          `json:"direct_bytes,omitempty"` // as bench's
	Seed        uint64          `json:"seed"`
	Clock       string          `json:"clock"`
	Blocks      []int           `json:"blocks"` // that were tried
	Threads     []int           `json:"threads"`
	Choices     []tuneChoice    `json:"choices"`
	Rules       allreduce.Table `json:"rules"`
	Written     string          `json:"written,omitempty"` // the file; absent when none was written
	Error       string          `json:"error,omitempty"`
	OK          bool            `json:"ok"`
}

// tuneChoice is what was found for one size.
type tuneChoice struct {
	Ranks       int             `json:"ranks"`
	Bytes       uint64          `json:"bytes"`
	DType       allreduce.DType `json:"dtype"`
	Plan        allreduce.Plan  `json:"plan"`
	TimeUS      float64         `json:"time_us"`      // median
	Shipped     bool            `json:"shipped"`      // it is what is taken without a table
	ShippedPlan allreduce.Plan  `json:"shipped_plan"` // that
	ShippedUS   float64         `json:"shipped_us"`
	Tried       int             `json:"tried"`            // choices
	To          uint64          `json:"to"`               // it holds for sizes up to this one, and the next size's choice for those above
	Probes      []tuneProbe     `json:"probes,omitempty"` // what that was found from

	grid allreduce.Rule
}

func (r *tuneReport) start(t *tuner) {
	r.machineReport, r.Worlds, r.DirectBytes, r.Seed, r.Clock = t.rep.machineReport, t.rep.Worlds, t.set.direct, t.set.seed, t.rep.Clock
	r.Blocks, r.Threads, r.Choices = t.blocks, t.threads, []tuneChoice{}
}

func (r *tuneReport) finish(err error) {
	if err != nil {
		r.Error = strings.TrimSpace(err.Error())
	}
	r.OK = err == nil
}

// tuneTable prints what is found as it comes.
type tuneTable struct{ w io.Writer }

const (
	tuneHead = "%11s %6s %13s %7s %9s | %13s %7s %9s | %6s %6s\n"
	tuneRow  = "%11d %6s %13s %7s %9.2f | %13s %7s %9.2f | %5.1f%% %6d\n"

	boundHead = "%11s %6s %13s %7s %9s | %13s %7s %9s | %10s %6s\n"
	boundRow  = "%11d %6s %13s %7s %9s | %13s %7s %9s | %10d %6d\n"
)

func (t *tuneTable) world(r *tuneReport, w *worldReport) {
	fmt.Fprintf(t.w, "\nRanks: %s\n\n", w.String())
	fmt.Fprintf(t.w, tuneHead, "size", "type", "best", "grid", "time", "without table", "grid", "time", "saved", "tried")
	fmt.Fprintf(t.w, tuneHead, "(B)", "", "", "", "(us)", "", "", "(us)", "", "")
}

func (t *tuneTable) choice(c *tuneChoice) {
	grid := func(p allreduce.Plan) string { return fmt.Sprintf("%dx%d", p.Blocks, p.Threads) }
	saved := 0.0
	if c.ShippedUS > 0 {
		saved = 100 * (1 - c.TimeUS/c.ShippedUS)
	}
	fmt.Fprintf(t.w, tuneRow, c.Bytes, c.DType, c.Plan.Algorithm, grid(c.Plan), c.TimeUS, c.ShippedPlan.Algorithm, grid(c.ShippedPlan), c.ShippedUS, saved, c.Tried)
}

// bounds says where the choices of a world change.
func (t *tuneTable) bounds(choices []tuneChoice) {
	grid := func(r allreduce.Rule) string {
		if r.Blocks == 0 {
			return "by size"
		}
		return fmt.Sprintf("%dx%d", r.Blocks, r.Threads)
	}
	us := func(us float64) string {
		if us == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f", us)
	}
	head := false
	for i := range choices {
		c := &choices[i]
		p := c.nearest()
		if p == nil {
			continue
		}
		if !head {
			fmt.Fprintln(t.w)
			fmt.Fprintf(t.w, boundHead, "up to", "type", "choice", "grid", "time", "above", "grid", "time", "timed at", "sizes")
			fmt.Fprintf(t.w, boundHead, "(B)", "", "", "", "(us)", "", "", "(us)", "(B)", "timed")
			head = true
		}
		next := choices[i+1].grid
		fmt.Fprintf(t.w, boundRow, c.To, c.DType, c.grid.Algorithm, grid(c.grid), us(p.SmallUS), next.Algorithm, grid(next), us(p.LargeUS), p.Bytes, len(c.Probes))
	}
}

func (t *tuneTable) verdict(r *tuneReport) {
	fmt.Fprintln(t.w)
	for _, n := range r.Notes[min(len(r.machine.Notes), len(r.Notes)):] {
		fmt.Fprintf(t.w, "Note: %s\n", n)
	}
	if r.Error != "" {
		fmt.Fprintf(t.w, "FAIL: no table was written: %s\n", r.Error)
		return
	}
	fmt.Fprintf(t.w, "Wrote %s: %d rule(s). Use it with --table.\n", r.Written, len(r.Rules))
	if r.Backend.Emulated {
		fmt.Fprintln(t.w, "EMULATED: the times mean nothing, and no GPU takes this table.")
	}
}
