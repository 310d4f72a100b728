package main

import (
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
	"github.com/fenceline/fenceline/internal/plainfile"
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
	bytes string
	dtype string
	p2p   []string
}

// topoReport is what `demo topo --json` prints.
type topoReport struct {
	Version     int               `json:"version"`
	Machine     *topo.Machine     `json:"machine"`
	Plan        *planReport       `json:"plan,omitempty"`
	P2P         []string          `json:"-"`                      // capabilities to print; the machine has them all
	Drawn       string            `json:"drawn,omitempty"`        // the file of --svg
	Saved       string            `json:"saved,omitempty"`        // the file of --save
	Match       *bool             `json:"match,omitempty"`        // with --check: all is as saved
	Differences []topo.Difference `json:"differences,omitempty"`  // with --check
	NotCompared []string          `json:"not_compared,omitempty"` // with --check: what the saved file does not know
}

// planReport is what a group would do.
type planReport struct {
	Devices     []int               `json:"devices"` // of each rank
	Bytes       uint64              `json:"bytes"`   // of the message
	DType       allreduce.DType     `json:"dtype"`
	Algorithm   allreduce.Algorithm `json:"algorithm"`
	Reason      string              `json:"reason"`
	Blocks      int                 `json:"blocks"` // of each rank, on empty devices
	Threads     int                 `json:"threads"`
	Pieces      uint64              `json:"pieces"` // launches
	Knobs       allreduce.Knobs     `json:"knobs"`
	Measurement *topo.Measurement   `json:"measurement,omitempty"` // nil: claims decided

	library error // why NCCL's cannot be loaded here
}

func (a *app) topoFlags(c *cobra.Command) {
	f, o := c.Flags(), &a.opt.topo
	f.StringVar(&o.from, "from", "", "read the machine from this file instead of opening one: what --save or --json wrote, what probe --json wrote, or a paste of nvidia-smi topo -m, with or without -p2p")
	f.StringSliceVar(&o.p2p, "p2p", nil, "print these matrices too, as nvidia-smi topo -p2p does: r reading, w writing, n NVLink, a atomics, p proprietary access through BAR1")
	f.BoolVar(&o.plan, "plan", false, "say what an all-reduce would do there, and why")
	f.IntSliceVar(&o.ranks, "ranks", nil, "with --plan: the device of each rank, such as 0,2 (default: one rank on each device)")
	f.StringVar(&o.bytes, "bytes", "64KB", "with --plan: size of the message, in bytes or with KB, MB or GB")
	f.StringVar(&o.dtype, "dtype", "f32", "with --plan: its element type, f32, f16 or bf16")
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
	call, err := a.topoCall(given, knobs)
	if err != nil {
		return err
	}
	for _, flag := range []string{"svg", "save", "check", "from"} {
		switch path := c.Flag(flag).Value.String(); {
		case !given(flag):
		case path == "":
			return usagef("--"+flag, "", "the name is empty: name a file")
		case isFolder(path):
			return usagef("--"+flag, path, "this is a folder: name a file in it")
		case flag == "svg" || flag == "save":
			if err := checkTarget("--"+flag, path); err != nil {
				return err
			}
		}
	}
	if given("save") && given("check") {
		return usagef("--save", a.opt.topo.save, "keeps the machine, and --check looks for changes: leave one of them out")
	}
	rep := topoReport{Version: reportVersion, P2P: a.opt.topo.p2p}
	if given("from") {
		err = a.topoFrom(&rep, given, call)
	} else {
		err = a.topoHere(c.Context(), &rep, given, call)
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

// topoCall checks the flags that say what is to be planned and printed; nil is no plan.
func (a *app) topoCall(given func(string) bool, knobs allreduce.Knobs) (*planReport, error) {
	o := &a.opt.topo
	for _, c := range o.p2p {
		if len(c) != 1 || !strings.Contains("rwnap", c) {
			return nil, usagef("--p2p", c, "no such capability: use r, w, n, a or p, or several as in r,w")
		}
	}
	if given("p2p") && len(o.p2p) == 0 {
		return nil, usagef("--p2p", "", "the list is empty: use r, w, n, a or p, or several as in r,w")
	}
	if !o.plan {
		switch {
		case given("ranks"):
			return nil, usagef("--ranks", joinInts(o.ranks), "says for which ranks to plan: add --plan")
		case given("bytes"):
			return nil, usagef("--bytes", o.bytes, "says for what message to plan: add --plan")
		case given("dtype"):
			return nil, usagef("--dtype", o.dtype, "says for what message to plan: add --plan")
		}
		return nil, nil
	}
	p := &planReport{Knobs: knobs}
	var err error
	if p.DType, err = allreduce.ParseDType(o.dtype); err != nil {
		return nil, &usageError{Flag: "--dtype", Err: err}
	}
	size, err := parseSize(o.bytes, o.bytes)
	switch {
	case err != nil:
		return nil, usagef("--bytes", o.bytes, "not a size: use a number of bytes such as 65536, 64KB or 1MiB, up to 1GiB")
	case size.n%p.DType.Size() != 0:
		return nil, usagef("--bytes", o.bytes, "no whole number of %v elements: use a multiple of %d", p.DType, p.DType.Size())
	}
	p.Bytes = size.n
	return p, nil
}

func isFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// topoFrom describes a machine in a file. Nothing is opened, so claims decide.
func (a *app) topoFrom(rep *topoReport, given func(string) bool, plan *planReport) (err error) {
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
	if err := a.draw(rep, nil); err != nil || plan == nil {
		return err
	}
	rep.Plan = plan
	return rep.Plan.choose(rep.Machine, a.opt.topo.ranks)
}

// draw writes the drawing that --svg asks for.
func (a *app) draw(rep *topoReport, measured *topo.Measurement) error {
	path := a.opt.topo.svg
	if path == "" {
		return nil
	}
	if err := rep.Machine.SaveSVG(path, measured); err != nil {
		return &usageError{Flag: "--svg", Err: err}
	}
	rep.Drawn = path
	return nil
}

// topoHere describes the machine that the other flags name.
func (a *app) topoHere(ctx context.Context, rep *topoReport, given func(string) bool, plan *planReport) (err error) {
	s, err := a.opt.checkMachine(given)
	if err != nil {
		return err
	}
	rt, err := open(s)
	if err != nil {
		return err
	}
	defer closeRuntime(rt, &err)
	if rep.Machine, err = readMachine(rt); err == nil {
		err = stated(s, rep.Machine)
	}
	if err != nil {
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
	if plan == nil {
		return nil
	}
	rep.Plan = plan
	if plan.Knobs.Algorithm == allreduce.NCCL && !rep.Machine.Emulated {
		plan.library = allreduce.CheckNCCL("")
	}
	if err = rep.Plan.choose(rep.Machine, a.opt.topo.ranks); err != nil || noPeers(allreduce.Auto, plan.Knobs) || plan.Knobs.Algorithm == allreduce.Copy {
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
	plan, err := allreduce.Select(allreduce.SelectInput{Machine: m, Measurement: p.Measurement, Devices: devices, Knobs: p.Knobs, Bytes: p.Bytes, DType: p.DType, NCCL: p.library})
	var wrong *allreduce.ArgumentError
	switch {
	case errors.As(err, &wrong) && wrong.Arg == "devices":
		return &usageError{Flag: "--ranks", Value: joinInts(devices), Err: err}
	case errors.Is(err, allreduce.ErrNoPlan): // FENCELINE_ALGO, which the error names
		return &usageError{Err: err}
	case err != nil:
		return err
	}
	p.Algorithm, p.Reason, p.Blocks, p.Threads, p.Pieces = plan.Algorithm, plan.Reason, plan.Blocks, plan.Threads, plan.Pieces
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
		if len(r.NotCompared) > 0 {
			fmt.Fprintf(w, "Not compared, for the baseline does not know it: %s\n", strings.Join(r.NotCompared, "; "))
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
	for _, c := range r.P2P {
		fmt.Fprintf(w, "\n$ nvidia-smi topo -p2p %s\n", c)
		if err := r.Machine.WriteP2P(w, c); err != nil {
			return err
		}
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
		if p.Blocks == 0 {
			fmt.Fprintf(w, "A call of %d bytes of %v: by NCCL's own kernels, in %d piece(s)\n", p.Bytes, p.DType, p.Pieces)
		} else {
			fmt.Fprintf(w, "A call of %d bytes of %v: %d blocks of %d threads for each rank, in %d piece(s)\n", p.Bytes, p.DType, p.Blocks, p.Threads, p.Pieces)
		}
	}
	return nil
}

// readMachineFile reads a machine from a file.
func readMachineFile(path string) (*topo.Machine, error) {
	m, err := topo.ReadFile(path)
	if err != nil {
		return nil, unreadable("--from", err)
	}
	return m, nil
}

// unreadable is a flag whose file cannot be read, or holds something else.
func unreadable(flag string, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		remedy = "name a file that is there"
	case errors.Is(err, fs.ErrPermission):
		remedy = "name a file that may be read"
	case errors.Is(err, topo.ErrText), errors.Is(err, topo.ErrFormat), errors.As(err, new(*plainfile.Error)): // which end with theirs
	default:
		remedy = "name another file"
	}
	if remedy != "" {
		err = fmt.Errorf("%w: %s", err, remedy)
	}
	return &usageError{Flag: flag, Err: err}
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
