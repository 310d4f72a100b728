package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/topo"
)

// topoOptions are the flags of `demo topo`.
type topoOptions struct {
	from  string
	save  string
	check string
	svg   string
	plan  bool
	ranks []int
}

// topoReport is what `demo topo --json` prints.
type topoReport struct {
	Version     int               `json:"version"`
	Machine     *topo.Machine     `json:"machine"`
	Plan        *planReport       `json:"plan,omitempty"`
	Drawn       string            `json:"drawn,omitempty"`       // the file of --svg
	Saved       string            `json:"saved,omitempty"`       // the file of --save
	Match       *bool             `json:"match,omitempty"`       // with --check: all is as saved
	Differences []topo.Difference `json:"differences,omitempty"` // with --check
}

// planReport is what a group would do.
type planReport struct {
	Devices     []int               `json:"devices"` // of each rank
	Algorithm   allreduce.Algorithm `json:"algorithm"`
	Reason      string              `json:"reason"`
	Knobs       allreduce.Knobs     `json:"knobs"`
	Measurement *topo.Measurement   `json:"measurement,omitempty"` // nil: claims decided
}

func (a *app) topoFlags(c *cobra.Command) {
	f, o := c.Flags(), &a.opt.topo
	f.StringVar(&o.from, "from", "", "read the machine from this file instead of opening one: a record as in --json's \"machine\", or a paste of nvidia-smi topo -m, with or without -p2p")
	f.BoolVar(&o.plan, "plan", false, "say what an all-reduce would do there, and why")
	f.IntSliceVar(&o.ranks, "ranks", nil, "with --plan: the device of each rank, such as 0,2 (default: one rank on each device)")
	f.StringVar(&o.svg, "svg", "", "draw the machine into this file")
	f.StringVar(&o.save, "save", "", "keep the machine as it is now in this file: what it claims, and what probing finds where that could be false")
	f.StringVar(&o.check, "check", "", "set the machine against such a file; exits with 1 when something differs")
	f.SortFlags = false
}

// topo is `demo topo`.
func (a *app) topo(c *cobra.Command) (err error) {
	given := c.Flags().Changed
	knobs, err := readKnobs()
	if err != nil {
		return err
	}
	if given("ranks") && !a.opt.topo.plan {
		return usagef("--ranks", joinInts(a.opt.topo.ranks), "says for which ranks to plan: add --plan")
	}
	for _, flag := range []string{"svg", "save", "check"} {
		if given(flag) && c.Flag(flag).Value.String() == "" {
			return usagef("--"+flag, "", "the name is empty: name a file")
		}
	}
	if given("save") && given("check") {
		return usagef("--save", a.opt.topo.save, "keeps the machine, and --check looks for changes: leave one of them out")
	}
	rep := topoReport{Version: reportVersion}
	if given("from") {
		err = a.topoFrom(&rep, given, knobs)
	} else {
		err = a.topoHere(c.Context(), &rep, given, knobs)
	}
	switch {
	case c.Context().Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	}
	if a.opt.json {
		err = writeJSON(a.stdout, &rep)
	} else {
		err = rep.print(a.stdout)
	}
	if err == nil && rep.Match != nil && !*rep.Match {
		return errReported
	}
	return err
}

// topoFrom describes a machine in a file. Nothing is opened, so claims decide.
func (a *app) topoFrom(rep *topoReport, given func(string) bool, knobs allreduce.Knobs) (err error) {
	for _, other := range []string{"machine", "devices", "backend"} {
		if given(other) {
			return usagef("--from", a.opt.topo.from, "reads a machine from a file, and --%s opens one: leave one of them out", other)
		}
	}
	if rep.Machine, err = readMachineFile(a.opt.topo.from); err != nil {
		return err
	}
	if a.opt.topo.save != "" || a.opt.topo.check != "" {
		if err = a.keep(rep, nil); err != nil {
			return err
		}
	}
	if err := a.draw(rep, nil); err != nil || !a.opt.topo.plan {
		return err
	}
	rep.Plan = &planReport{Knobs: knobs}
	return rep.Plan.choose(rep.Machine, a.opt.topo.ranks)
}

// draw writes the drawing that --svg asks for.
func (a *app) draw(rep *topoReport, measured *topo.Measurement) error {
	path := a.opt.topo.svg
	if path == "" {
		return nil
	}
	var b bytes.Buffer
	if err := rep.Machine.WriteSVG(&b, measured); err != nil {
		return err
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return &usageError{Flag: "--svg", Err: err}
	}
	rep.Drawn = path
	return nil
}

// topoHere describes the machine that the other flags name.
func (a *app) topoHere(ctx context.Context, rep *topoReport, given func(string) bool, knobs allreduce.Knobs) (err error) {
	s, err := a.opt.checkMachine(given)
	if err != nil {
		return err
	}
	rt, err := open(s)
	if err != nil {
		return err
	}
	defer closeRuntime(rt, &err)
	if rep.Machine, err = readMachine(rt); err != nil {
		return err
	}
	if a.opt.topo.save != "" || a.opt.topo.check != "" {
		found, err := s.check(ctx, rep.Machine, everyDevice(rep.Machine), false, false)
		if err != nil {
			return err
		}
		if err := a.keep(rep, found); err != nil {
			return err
		}
	}
	if a.opt.topo.svg != "" {
		found, err := s.check(ctx, rep.Machine, everyDevice(rep.Machine), false, true)
		if err != nil {
			return err
		}
		if err := a.draw(rep, found); err != nil {
			return err
		}
	}
	if !a.opt.topo.plan {
		return nil
	}
	rep.Plan = &planReport{Knobs: knobs}
	if err = rep.Plan.choose(rep.Machine, a.opt.topo.ranks); err != nil || knobs.P2PDisable {
		return err
	}
	if rep.Plan.Measurement, err = s.check(ctx, rep.Machine, rep.Plan.Devices, false, true); err != nil {
		return err
	}
	return rep.Plan.choose(rep.Machine, rep.Plan.Devices)
}

// choose fills in what would be done on the devices, one rank on each; nil is all of m's.
func (p *planReport) choose(m *topo.Machine, devices []int) error {
	if devices == nil {
		for i := range min(len(m.Devices), flags.MaxRanks) {
			devices = append(devices, i)
		}
	}
	p.Devices = devices
	plan, err := allreduce.Select(allreduce.SelectInput{Machine: m, Measurement: p.Measurement, Devices: devices, Knobs: p.Knobs})
	var wrong *allreduce.ArgumentError
	switch {
	case errors.As(err, &wrong) && wrong.Arg == "devices":
		return &usageError{Flag: "--ranks", Value: joinInts(devices), Err: err}
	case err != nil:
		return err
	}
	p.Algorithm, p.Reason = plan.Algorithm, plan.Reason
	return nil
}

// everyDevice lists the ordinals of m.
func everyDevice(m *topo.Machine) []int {
	list := make([]int, len(m.Devices))
	for i := range list {
		list[i] = i
	}
	return list
}

// print writes the paths, the peer access, and the plan; with --check the differences come first.
func (r *topoReport) print(w io.Writer) error {
	if r.Match != nil {
		if err := topo.WriteDifferences(w, r.Differences); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	if r.Machine.Emulated {
		fmt.Fprintf(w, "EMULATED: %s\n", orElse(r.Machine.Driver.Detail, r.Machine.Driver.Name))
	}
	if err := r.Machine.WriteLinks(w); err != nil {
		return err
	}
	fmt.Fprint(w, "\nP2P: can the row's device reach the column's memory?\n")
	if err := r.Machine.WriteMatrix(w); err != nil {
		return err
	}
	for _, n := range r.Machine.Notes {
		fmt.Fprintf(w, "\nNote: %s\n", n)
	}
	if r.Drawn != "" {
		fmt.Fprintf(w, "\nDrawn in %s\n", r.Drawn)
	}
	if r.Saved != "" {
		fmt.Fprintf(w, "\nSaved to %s\n", r.Saved)
	}
	if p := r.Plan; p != nil {
		fmt.Fprintf(w, "\nPlan for %d rank(s) on device(s) %s: %v: %s\n", len(p.Devices), joinInts(p.Devices), p.Algorithm, p.Reason)
	}
	return nil
}

// readMachineFile reads a machine from a file.
func readMachineFile(path string) (*topo.Machine, error) {
	m, err := topo.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, &usageError{Flag: "--from", Err: err}
	}
	return m, err
}

// readKnobs reads the operator's knobs from the environment.
func readKnobs() (allreduce.Knobs, error) {
	k, err := allreduce.KnobsFromEnv(os.Environ())
	if err != nil {
		return k, &usageError{Err: err}
	}
	return k, nil
}

// joinInts is "0,2".
func joinInts(list []int) string {
	text := make([]string, len(list))
	for i, n := range list {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, ",")
}
