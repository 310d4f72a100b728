package main

import (
	"fmt"
	"io"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/topo"
)

// table prints results line by line as they come, in the columns of nccl-tests.
type table struct {
	w       io.Writer
	headed  bool
	reasons []string
	whole   bool // what nccl sums has been said
}

// wholeHelp says how NCCL is held to the reference's bits.
const wholeHelp = "nccl: NCCL sums in an order of its own, so the payloads are whole numbers from -8 to 8, whose sums are exact in any order; no tolerance. NCCL_NVLS_ENABLE=0."

const (
	headFormat = "%11s %11s %6s %6s %13s %8s %10s %8s %8s %7s\n"
	rowFormat  = "%11d %11d %6s %6s %13s %8s %10.2f %8.2f %8.2f %7s\n"
)

// world says how many ranks there are and where.
func (t *table) world(r *runReport) {
	fmt.Fprintf(t.w, "\nRanks: %s\n", r.World.String())
	if r.Measurement != nil {
		t.probed(r)
	}
	fmt.Fprintf(t.w, "Seed %d. Time: %s.\n", r.Seed, r.Clock)
}

// probed says what probing found.
func (t *table) probed(r *runReport) {
	pairs := 0
	for _, row := range r.Measurement.Pairs {
		for _, p := range row {
			if p != (topo.Measured{}) {
				pairs++
			}
		}
	}
	bad := faults(r.machine, r.Measurement)
	if len(bad) == 0 {
		fmt.Fprintf(t.w, "Probed %d ordered pair(s): all that is claimed works.\n", pairs)
		return
	}
	fmt.Fprintf(t.w, "Probed %d ordered pair(s), with %d fault(s): %s\n", pairs, len(bad), bad[0])
}

// row prints one result. The reason of its plan comes first, once for each reason there is.
func (t *table) row(r *result) {
	reason := fmt.Sprintf("Plan: %v: %s", r.Plan.Algorithm, r.Plan.Reason)
	fresh := true
	for _, s := range t.reasons {
		fresh = fresh && s != reason
	}
	if fresh {
		t.reasons = append(t.reasons, reason)
		fmt.Fprintln(t.w, reason)
		if r.Plan.Algorithm == allreduce.NCCL && !t.whole {
			t.whole = true
			fmt.Fprintln(t.w, wholeHelp)
		}
	}
	if !t.headed {
		t.headed = true
		fmt.Fprintln(t.w)
		fmt.Fprintf(t.w, headFormat, "size", "count", "type", "redop", "algo", "grid", "time", "algbw", "busbw", "#wrong")
		fmt.Fprintf(t.w, headFormat, "(B)", "(elements)", "", "", "", "", "(us)", "(GB/s)", "(GB/s)", "")
	}
	wrong := fmt.Sprint(r.Wrong + r.WrongInPlace)
	if !r.right() && r.Wrong+r.WrongInPlace == 0 {
		wrong = "stray"
	}
	fmt.Fprintf(t.w, rowFormat, r.Bytes, r.Count, r.DType, r.Redop, r.Plan.Algorithm, grid(r), r.TimeUS, r.AlgBW, r.BusBW, wrong)
}

// grid is blocks × threads of one rank.
func grid(r *result) string { return gridOf(&r.Plan) }

// gridOf is "-" for NCCL, whose grids are its own.
func gridOf(p *allreduce.Plan) string {
	if p == nil || p.Blocks == 0 {
		return "-"
	}
	return fmt.Sprintf("%dx%d", p.Blocks, p.Threads)
}

// verdict prints the last lines.
func (t *table) verdict(r *runReport) {
	fmt.Fprintln(t.w)
	if r.Absent != nil {
		t.absentVerdict(r)
		return
	}
	bad := 0
	var wrong, stray uint64
	for i := range r.Results {
		res := &r.Results[i]
		if !res.right() {
			bad++
		}
		wrong, stray = wrong+res.Wrong+res.WrongInPlace, stray+res.Stray
	}
	if len(r.Results) > 0 {
		fmt.Fprintln(t.w, "#wrong: elements whose bits differ from the CPU reference, over all ranks, out of place and in place.")
	}
	switch {
	case r.Error != "":
		fmt.Fprintf(t.w, "FAIL: stopped after %d result(s), %d of them wrong: %s\n", len(r.Results), bad, r.Error)
	case !r.OK:
		fmt.Fprintf(t.w, "FAIL: %d of %d results wrong: %d elements differ, %d bytes overwritten outside the outputs\n", bad, len(r.Results), wrong, stray)
	default:
		fmt.Fprintf(t.w, "PASS: %d results, out of place and in place: all bits equal the CPU reference on all ranks\n", len(r.Results))
	}
}
