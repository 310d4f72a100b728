package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/flags/stress"
	"github.com/fenceline/fenceline/topo"
)

// stressReport is the whole of a stress run. Text and JSON are both printed from it.
type stressReport struct {
	machineReport
	World       worldReport           `json:"world"`
	Measurement *topo.Measurement     `json:"measurement,omitempty"` // what probing found; absent when claims decided
	Seed        uint64                `json:"seed"`
	DurationMS  float64               `json:"duration_ms"` // asked for
	MaxBytes    uint64                `json:"max_bytes"`
	Delays      bool                  `json:"delays"`
	Load        string                `json:"load"`
	Rounds      []stressRound         `json:"rounds"`
	Total       stressTally           `json:"total"`
	CallsPerS   float64               `json:"calls_per_s"`
	Times       stressQuantiles       `json:"times_us"`
	Litmus      []stress.LitmusResult `json:"litmus,omitempty"`
	Control     []controlRow          `json:"control,omitempty"` // does not count
	Error       string                `json:"error,omitempty"`
	OK          bool                  `json:"ok"`
}

// stressRound is one group: how it was made, and what came of it.
type stressRound struct {
	Algorithm   allreduce.Algorithm `json:"algorithm"`
	Grid        string              `json:"grid"` // of a call of a quarter of the largest size
	DirectBytes uint64              `json:"direct_bytes"`
	PieceBytes  uint64              `json:"piece_bytes"`
	FirstEpoch  uint32              `json:"first_epoch"`
	DelayOneIn  uint32              `json:"delay_one_in,omitempty"` // 0: no pauses in kernels
	DelayMaxNS  uint32              `json:"delay_max_ns,omitempty"`
	DelaySeed   uint32              `json:"delay_seed,omitempty"`
	DelayPlaces int                 `json:"delay_places,omitempty"`
	Calls       uint64              `json:"calls"`
	Wrong       uint64              `json:"wrong"`
	Stray       uint64              `json:"stray_bytes"`
	CallsPerS   float64             `json:"calls_per_s"`
	Times       stressQuantiles     `json:"times_us"`
	seconds     float64
}

// stressQuantiles are times of sampled calls: device events around the call, slowest rank.
type stressQuantiles struct {
	Samples uint64  `json:"samples"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

func (t *stressTimes) quantiles() stressQuantiles {
	return stressQuantiles{t.n, micros(t.quantile(0.5)), micros(t.quantile(0.99)), micros(t.most)}
}

// stuck is whether err tells of a rank that did not come in time.
func stuck(err error) bool {
	return errors.Is(err, flags.ErrTimeout) || errors.Is(err, allreduce.ErrAbsent)
}

func (r *stressReport) start(set *stressSettings) {
	r.Seed, r.MaxBytes, r.Delays, r.Load = set.seed, set.maxBytes, set.delays, set.load
	r.DurationMS = float64(set.duration) / float64(time.Millisecond)
	r.Rounds = []stressRound{}
}

func (r *stressRound) fill(t *stressTally, took time.Duration) {
	r.Calls, r.Wrong, r.Stray, r.Times, r.seconds = t.Calls, t.Wrong, t.Stray, t.times.quantiles(), took.Seconds()
	if took > 0 {
		r.CallsPerS = float64(t.Calls) / r.seconds
	}
}

// finish draws the conclusion. The control has no part in it.
func (r *stressReport) finish(err error) {
	if err != nil {
		r.Error = strings.TrimSpace(err.Error())
	}
	seconds := 0.0
	for i := range r.Rounds {
		seconds += r.Rounds[i].seconds
	}
	if seconds > 0 {
		r.CallsPerS = float64(r.Total.Calls) / seconds
	}
	r.Times = r.Total.times.quantiles()
	r.OK = err == nil && r.Total.Calls > 0 && r.Total.Wrong+r.Total.Stray == 0 && r.forbidden() == 0
}

func (r *stressReport) forbidden() (n uint64) {
	for i := range r.Litmus {
		n += r.Litmus[i].Forbidden()
	}
	return n
}

// head is printed before anything runs.
func (r *stressReport) head(w io.Writer) {
	b := r.Backend
	fmt.Fprintf(w, "Backend: %s (%s)\n", b.Backend, b.Detail)
	if b.Emulated {
		fmt.Fprintln(w, "EMULATED: no GPU executed anything; times are of the emulator and mean nothing for hardware")
	}
	shared := ""
	if r.World.Shared {
		shared = ", several on one device"
	}
	fmt.Fprintf(w, "Ranks: %d%s (%s)\n", r.World.Ranks, shared, r.World.Why)
	if !r.peersHold() {
		fmt.Fprintln(w, "Peer access does not do all that it claims, and only what does work is used: see demo probe")
	}
	delays := "off"
	if r.Delays {
		delays = "on"
	}
	fmt.Fprintf(w, "Stress: %v, messages up to %d bytes, delays %s, load %s, seed %d\n\n",
		time.Duration(r.DurationMS*float64(time.Millisecond)), r.MaxBytes, delays, r.Load, r.Seed)
}

// print writes all that came out.
func (r *stressReport) print(w io.Writer) {
	fmt.Fprintf(w, "%13s %8s %10s %10s %16s %10s %9s %7s %9s %9s %9s\n", "algo", "grid", "piece (B)", "direct (B)", "pauses", "calls", "calls/s", "#wrong", "p50 (us)", "p99 (us)", "max (us)")
	for i := range r.Rounds {
		x := &r.Rounds[i]
		pauses := "-"
		if x.DelayOneIn > 0 {
			pauses = fmt.Sprintf("1/%d up to %dns", x.DelayOneIn, x.DelayMaxNS)
		}
		fmt.Fprintf(w, "%13v %8s %10d %10d %16s %10d %9.0f %7d %9.1f %9.1f %9.1f\n", x.Algorithm, x.Grid, x.PieceBytes, x.DirectBytes, pauses,
			x.Calls, x.CallsPerS, x.Wrong+x.Stray, x.Times.P50, x.Times.P99, x.Times.Max)
	}
	t := &r.Total
	fmt.Fprintf(w, "\n%d calls, %d elements, %.0f calls/s; #wrong %d elements in %d calls, and %d bytes beside them; p50 %.1f, p99 %.1f, max %.1f µs of %d calls timed\n",
		t.Calls, t.Elements, r.CallsPerS, t.Wrong, t.BadCalls, t.Stray, r.Times.P50, r.Times.P99, r.Times.Max, r.Times.Samples)
	if t.First != "" {
		fmt.Fprintf(w, "First: %s\n", t.First)
	}
	r.printLitmus(w)
	for i := range r.Control {
		fmt.Fprintf(w, "control %s: %s\n", r.Control[i].Weakening, r.Control[i].Verdict)
	}
	fmt.Fprintln(w)
	switch {
	case r.Error == errInterrupted.Error():
		fmt.Fprintf(w, "INTERRUPTED after %d calls, %d of them wrong\n", t.Calls, t.BadCalls)
	case r.Error != "":
		fmt.Fprintf(w, "FAIL: stopped after %d calls, %d of them wrong: %s\n", t.Calls, t.BadCalls, r.Error)
	case !r.OK:
		fmt.Fprintf(w, "FAIL: %d of %d calls wrong, %d bytes overwritten beside the outputs, %d forbidden litmus outcomes\n", t.BadCalls, t.Calls, t.Stray, r.forbidden())
	default:
		fmt.Fprintf(w, "PASS: %d calls, all bits equal the CPU reference on all ranks", t.Calls)
		if len(r.Litmus) > 0 {
			fmt.Fprint(w, "; no forbidden litmus outcome")
		}
		fmt.Fprintln(w)
	}
}

// printLitmus writes a line for each test: what was seen of what it forbids and allows, and the most frequent outcomes.
func (r *stressReport) printLitmus(w io.Writer) {
	if len(r.Litmus) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%-58s %7s %10s %9s %8s  %s\n", "litmus test", "devices", "runs", "forbidden", "allowed", "outcomes")
	var runs, vain uint64
	skipped, allowed, allowedSeen := 0, 0, 0
	for i := range r.Litmus {
		x := &r.Litmus[i]
		if x.Skipped != "" {
			skipped++
			fmt.Fprintf(w, "%-58s not run: %s\n", x.Name, x.Skipped)
			continue
		}
		runs, vain = runs+x.Runs, vain+x.Stuck
		seen, of := x.Weak()
		allowedSeen, allowed = allowedSeen+seen, allowed+of
		forbidden := fmt.Sprint(x.Forbidden())
		if !slices.ContainsFunc(x.Expect, func(e stress.Seen) bool { return e.Forbids() }) {
			forbidden = "-"
		}
		fmt.Fprintf(w, "%-58s %7s %10d %9s %5d/%-2d  %s\n", x.Name, placed(x.Devices), x.Runs, forbidden, seen, of, outcomes(x))
	}
	fmt.Fprintf(w, "\n%d litmus tests, %d not run, %d runs, in %d of which a thread waited in vain; outcomes that are allowed: %d of %d seen; forbidden: %d\n",
		len(r.Litmus), skipped, runs, vain, allowedSeen, allowed, r.forbidden())
	for i := range r.Litmus {
		x := &r.Litmus[i]
		for _, e := range x.Expect {
			if e.Forbids() && e.Count > 0 {
				fmt.Fprintf(w, "FORBIDDEN %d of %d times: %s, devices %s: %s: %s\n", e.Count, x.Runs, x.Name, placed(x.Devices), e.Mode, e.Text)
			}
		}
	}
}

// placed are the devices of a test: "0", "0 1", "0 host".
func placed(devices []int) string {
	var s []string
	for _, d := range devices {
		if d < 0 {
			s = append(s, "host")
		} else {
			s = append(s, fmt.Sprint(d))
		}
	}
	return strings.Join(s, " ")
}

// outcomes is the histogram: values in the order of x.Observed, each with its count.
func outcomes(x *stress.LitmusResult) string {
	const most = 6
	s := []string{}
	for i, o := range x.Outcomes {
		if i == most {
			s = append(s, fmt.Sprintf("%d more", len(x.Outcomes)-most))
			break
		}
		values := []string{}
		for k, v := range o.Values {
			values = append(values, fmt.Sprintf("%s=%d", x.Observed[k], v))
		}
		s = append(s, fmt.Sprintf("%s: %d", strings.Join(values, " "), o.Count))
	}
	return strings.Join(s, "; ")
}
