package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/topo"
)

// benchReport is the whole of a bench. Text, JSON and the plot are all made from it.
type benchReport struct {
	machineReport
	Worlds      []worldReport     `json:"worlds"`
	Knobs       allreduce.Knobs   `json:"knobs,omitzero"`
	Measurement *topo.Measurement `json:"measurement,omitempty"`
	Table       allreduce.Table   `json:"table,omitempty"`        // what auto went by
	DirectBytes uint64            `json:"direct_bytes,omitempty"` // the buffers were registered, and oneshot-pull read inputs directly from this size on
	Seed        uint64            `json:"seed"`
	Clock       string            `json:"clock"`
	Iters       int               `json:"iters"` // calls of a graph; a row says how many it had
	Warmup      int               `json:"warmup"`
	Replays     int               `json:"replays"` // of a round
	Rounds      int               `json:"rounds"`
	Floors      []floorReport     `json:"floors,omitempty"` // as worlds
	Results     []benchResult     `json:"results"`
	Beside      *besideReport     `json:"beside,omitempty"`
	Cliffs      []cliff           `json:"cliffs,omitempty"` // where auto's time does not grow as it should; none emulated
	NCCL        int               `json:"nccl,omitempty"`   // the version compared with, 22803 for 2.28.3
	Plot        string            `json:"plot,omitempty"`   // the file that was drawn
	Error       string            `json:"error,omitempty"`
	OK          bool              `json:"ok"`
}

const (
	benchHostClock   = "host clock around queueing and waiting; median of calls"
	benchDeviceClock = "device events around a captured graph, divided by its calls, all ranks begun together; slowest rank, median of replays"
)

// benchResult is one row: a size, a number of ranks and a contender.
type benchResult struct {
	Ranks   int             `json:"ranks"`
	Name    string          `json:"name"`  // auto, an algorithm, nccl, or of --beside
	Bytes   uint64          `json:"bytes"` // per rank
	Count   uint64          `json:"count"` // elements
	DType   allreduce.DType `json:"dtype"`
	Redop   string          `json:"redop"`
	Plan    *allreduce.Plan `json:"plan,omitempty"` // absent for others' libraries
	Out     benchTimes      `json:"out_of_place"`
	In      benchTimes      `json:"in_place"`
	FloorUS float64         `json:"floor_us,omitempty"`
	Ratio   float64         `json:"ratio,omitempty"` // out of place: the median over the floor
}

// half is one of the two sides of a row.
type half struct {
	inPlace bool
	t       *benchTimes
}

func (r *benchResult) halves() [2]half { return [2]half{{false, &r.Out}, {true, &r.In}} }

func (r *benchResult) right() bool { return r.Out.right() && r.In.right() }

// finish draws the numbers from the samples.
func (r *benchResult) finish(f *floorReport) {
	r.Out.finish(r.Bytes, r.Ranks)
	r.In.finish(r.Bytes, r.Ranks)
	if r.FloorUS = f.us(r.Bytes); r.FloorUS > 0 {
		r.Ratio = r.Out.TimeUS / r.FloorUS
	}
}

func (r *benchReport) start(set *benchSettings, l lengths) {
	r.Knobs, r.Seed, r.DirectBytes = set.knobs, set.seed, set.direct
	r.Iters, r.Warmup, r.Replays, r.Rounds = l.calls, l.warmup, l.replays, set.rounds
	r.Clock = benchDeviceClock
	if r.Backend.Emulated {
		r.Clock = benchHostClock
	}
	r.Table = set.rules()
	r.Results = []benchResult{}
}

func (r *benchReport) finish(err error) {
	if err != nil {
		r.Error = strings.TrimSpace(err.Error())
	}
	if !r.Backend.Emulated {
		r.Cliffs = findCliffs(r.Results)
	}
	r.OK = err == nil && len(r.Results) > 0
	for i := range r.Results {
		r.OK = r.OK && r.Results[i].right()
	}
}

// benchTable prints results as they come, in the columns of nccl-tests.
type benchTable struct {
	w     io.Writer
	noted int
}

const (
	benchHead = "%11s %11s %6s %6s %13s %7s | %8s %7s %7s %6s | %8s %7s %7s %6s | %8s %8s %8s | %7s %6s\n"
)

// head follows the machine, with which all notes so far were printed.
func (t *benchTable) head(r *benchReport) {
	t.noted = len(r.Notes)
	fmt.Fprintf(t.w, "\nSeed %d. Time: %s.\n", r.Seed, r.Clock)
	if !r.Backend.Emulated {
		fmt.Fprintf(t.w, "%d calls in a graph, %d replay(s) ahead, %d timed in each of %d round(s); fewer where they take long, unless asked for.\n",
			r.Iters, r.Warmup, r.Replays, r.Rounds)
	}
}

func (t *benchTable) notes(r *benchReport) {
	for _, n := range r.Notes[t.noted:] {
		fmt.Fprintf(t.w, "Note: %s\n", n)
	}
	t.noted = len(r.Notes)
}

// world heads the rows of one number of ranks.
func (t *benchTable) world(r *benchReport, i int) {
	w := r.Worlds[i]
	fmt.Fprintf(t.w, "\nRanks: %s\n", w.String())
	if len(r.Floors) > 0 {
		fmt.Fprintf(t.w, "Floor: %s\n", r.Floors[i].String())
	}
	t.notes(r)
	fmt.Fprintln(t.w)
	fmt.Fprintf(t.w, "%59s | %-31s | %-31s | %-26s |\n", "", "out of place", "in place", "out of place")
	fmt.Fprintf(t.w, benchHead, "size", "count", "type", "redop", "algo", "grid", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong", "p10", "p90", "p99", "floor", "ratio")
	fmt.Fprintf(t.w, benchHead, "(B)", "(elements)", "", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(us)", "")
}

func (t *benchTable) row(r *benchResult) {
	grid, floor, ratio, name := gridOf(r.Plan), "-", "-", r.Name
	if r.Plan != nil && r.Name == allreduce.Auto.String() {
		name = "*" + r.Plan.Algorithm.String()
	}
	if r.FloorUS > 0 {
		floor, ratio = fmt.Sprintf("%.2f", r.FloorUS), r.Out.us(r.Ratio)
	}
	o, i := &r.Out, &r.In
	fmt.Fprintf(t.w, benchHead, fmt.Sprint(r.Bytes), fmt.Sprint(r.Count), r.DType, r.Redop, name, grid, o.us(o.TimeUS), o.us(o.AlgBW), o.us(o.BusBW), o.wrongs(),
		i.us(i.TimeUS), i.us(i.AlgBW), i.us(i.BusBW), i.wrongs(), o.us(o.P10), o.us(o.P90), o.us(o.P99), floor, ratio)
}

// us is a number, or "-" where nothing was measured.
func (t *benchTimes) us(v float64) string {
	if t.Samples == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

func (t *benchTimes) wrongs() string {
	switch {
	case t.Samples == 0:
		return "-"
	case t.Wrong == 0 && !t.right():
		return "stray"
	}
	return fmt.Sprint(t.Wrong)
}

// verdict prints the last lines.
func (t *benchTable) verdict(r *benchReport) {
	fmt.Fprintln(t.w)
	bad, starred, whole := 0, false, false
	for i := range r.Results {
		res := &r.Results[i]
		whole = whole || res.Name == compareNCCL || res.Plan != nil && res.Plan.Algorithm == allreduce.NCCL
		starred = starred || res.Name == allreduce.Auto.String()
		if res.right() {
			continue
		}
		bad++
		for _, h := range res.halves() {
			if h.t.First != "" {
				fmt.Fprintf(t.w, "%d bytes of %v on %d ranks by %s: %s\n", res.Bytes, res.DType, res.Ranks, res.Name, h.t.First)
			}
		}
	}
	if starred {
		fmt.Fprintln(t.w, "*: what auto took.")
		if !r.Backend.Emulated {
			printCliffs(t.w, r.Cliffs)
		}
	}
	if whole {
		fmt.Fprintln(t.w, wholeHelp)
	}
	if len(r.Floors) > 0 {
		fmt.Fprintf(t.w, "floor: %s. ratio: time out of place over the floor.\n", floorHelp)
	}
	if r.Plot != "" {
		fmt.Fprintf(t.w, "Drawn: %s\n", r.Plot)
	}
	switch {
	case r.Error != "":
		fmt.Fprintf(t.w, "FAIL: stopped after %d row(s), %d of them wrong: %s\n", len(r.Results), bad, r.Error)
	case !r.OK:
		fmt.Fprintf(t.w, "FAIL: %d of %d rows wrong\n", bad, len(r.Results))
	default:
		fmt.Fprintf(t.w, "PASS: %d rows, #wrong is 0 in all\n", len(r.Results))
	}
	if r.Backend.Emulated {
		fmt.Fprintln(t.w, "EMULATED: the times mean nothing for hardware.")
	}
}

func (f *floorReport) String() string {
	if f.Incomplete != "" {
		return "none: " + f.Incomplete
	}
	kind := "ordered"
	if f.Dependent {
		kind = "dependent"
	}
	s := fmt.Sprintf("launch gap %.2f us (%s launch) + flag %.2f us + bytes / bandwidth (memory %.0f GB/s", f.GapUS, kind, f.FlagUS, f.MemoryRate)
	if f.Devices > 1 {
		s += fmt.Sprintf(", link %.0f GB/s", f.LinkRate)
	}
	s += ")"
	if f.Virtual {
		s += "; virtual ranks of one device: of kernel and protocol, not of a link"
	}
	return s
}

func (w *worldReport) String() string {
	places := make([]string, len(w.Devices))
	for rank, d := range w.Devices {
		places[rank] = fmt.Sprintf("%d→GPU%d", rank, d)
	}
	shared := ""
	if w.Shared {
		shared = ", several on one device"
	}
	return fmt.Sprintf("%d%s (%s): %s", w.Ranks, shared, w.Why, strings.Join(places, " "))
}
