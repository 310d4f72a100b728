package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
	"github.com/fenceline/fenceline/topo/probe"
)

// probeOptions are the flags of `demo probe`.
type probeOptions struct {
	virtual, child, numbers, noCache bool
	timeout                          time.Duration
}

// probeReport is what `demo probe --json` prints.
type probeReport struct {
	Version     int               `json:"version"`
	Machine     *topo.Machine     `json:"machine"`
	Measurement *topo.Measurement `json:"measurement"`
	Faults      []string          `json:"faults"` // what is claimed and was not found to work
	OK          bool              `json:"ok"`
}

const (
	probeTimeout         = 2 * time.Second
	emulatedProbeTimeout = 500 * time.Millisecond // far more than the work takes
	emulatedProbeBytes   = 4096
	atOnce               = 6 // emulated pairs that are probed at a time
)

// childCommand is the hidden command that child processes run.
const childCommand = "probe-child"

func (a *app) probeFlags(c *cobra.Command) {
	f, o := c.Flags(), &a.opt.probe
	f.BoolVar(&o.virtual, "virtual", false, "probe each device with itself too, as two ranks that share it (the default on a single device)")
	f.BoolVar(&o.child, "child", false, "probe emulated devices in child processes too, as real ones always are")
	f.BoolVar(&o.numbers, "numbers", true, "measure latencies and bandwidths of what works")
	f.BoolVar(&o.noCache, "no-cache", false, "do not keep what is found of real devices for later runs")
	f.DurationVar(&o.timeout, "timeout", probeTimeout, fmt.Sprintf("longest wait for one probe (emulated: %v)", emulatedProbeTimeout))
	f.SortFlags = false
}

// probe is `demo probe`.
func (a *app) probe(c *cobra.Command) error {
	s, err := a.opt.checkMachine(c.Flags().Changed)
	if err != nil {
		return err
	}
	o := a.opt.probe
	if o.timeout < minTimeout || o.timeout > time.Hour {
		return usagef("--timeout", o.timeout.String(), "use %v to 1h", minTimeout)
	}
	rep := probeReport{Version: reportVersion}
	if rep.Machine, err = look(s); err != nil {
		return err
	}
	rep.Measurement, err = a.probeAll(c.Context(), s, rep.Machine, c.Flags().Changed("timeout"))
	switch {
	case c.Context().Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	}
	if !rep.Machine.Emulated && !o.noCache {
		if err := store(rep.Machine, rep.Measurement); err != nil {
			fmt.Fprintln(a.stderr, "demo:", err)
		}
	}
	rep.Faults = faults(rep.Machine, rep.Measurement)
	rep.OK = len(rep.Faults) == 0
	if err := a.printProbe(&rep); err != nil {
		return err
	}
	if !rep.OK {
		return errReported
	}
	return nil
}

// probeAll probes every pair, with progress on a terminal.
func (a *app) probeAll(ctx context.Context, s settings, m *topo.Machine, timed bool) (*topo.Measurement, error) {
	o := a.opt.probe
	opts := probe.Options{Virtual: o.virtual || len(m.Devices) == 1, Timeout: o.timeout, Numbers: o.numbers, EmulatedNumbers: true}
	n := len(m.Devices)
	total := n * (n - 1)
	if opts.Virtual {
		total += n
	}
	if o.numbers {
		total *= len(probe.Steps())
	} else {
		total *= probe.Checks
	}
	bar := newProgress(a.stderr, total)
	bar.label = "probes"
	defer bar.close()
	var mu sync.Mutex // several pairs report at once
	made := 0
	opts.Report = func(probe.Result) {
		mu.Lock()
		defer mu.Unlock()
		made++
		bar.done(made)
	}
	if !m.Emulated {
		return s.measure(ctx, m, false, opts)
	}
	if !timed {
		opts.Timeout = emulatedProbeTimeout
	}
	if o.child {
		return s.measure(ctx, m, true, opts)
	}
	opts.Bytes = emulatedProbeBytes
	var groups [][]probe.Pair // both directions together: numbers need the checks of both
	for i := range n {
		for j := range i {
			groups = append(groups, []probe.Pair{{From: j, To: i}, {From: i, To: j}})
		}
		if opts.Virtual {
			groups = append(groups, []probe.Pair{{From: i, To: i}})
		}
	}
	return s.measureApart(ctx, m, groups, opts)
}

// look reads the machine and closes it again, so that children find the devices free.
func look(s settings) (m *topo.Machine, err error) {
	rt, err := open(s)
	if err != nil {
		return nil, err
	}
	defer closeRuntime(rt, &err)
	if m, err = readMachine(rt); err != nil {
		return nil, err
	}
	return m, stated(s, m)
}

func (a *app) printProbe(rep *probeReport) error {
	if a.opt.json {
		return writeJSON(a.stdout, rep)
	}
	if rep.Machine.Emulated {
		fmt.Fprintf(a.stdout, "EMULATED: %s\n\n", rep.Machine.Driver.Detail)
	}
	if err := probe.WriteChecks(a.stdout, rep.Machine, rep.Measurement); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	if err := probe.WriteNumbers(a.stdout, rep.Machine, rep.Measurement); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	if rep.OK {
		fmt.Fprintln(a.stdout, "PASS: all that is claimed and was probed works")
		return nil
	}
	fmt.Fprintf(a.stdout, "FAULT: %d check(s) are not as claimed, listed below the table of pairs\n", len(rep.Faults))
	return nil
}

// faults are the checks that failed though the access is claimed, and those that could not be brought to an end.
func faults(m *topo.Machine, found *topo.Measurement) []string {
	list := []string{}
	for i, row := range found.Pairs {
		for j, p := range row {
			for _, c := range []struct {
				name string
				topo.Check
			}{{"read", p.Read}, {"write", p.Write}, {"flags", p.Flags}, {"atomics", p.Atomics}} {
				switch {
				case c.Answer == topo.Unknown && strings.HasPrefix(c.Detail, "not settled"):
					list = append(list, fmt.Sprintf("%d→%d is claimed, and %s is %v", i, j, c.name, c.Check))
				case c.Answer == topo.No:
					list = append(list, fmt.Sprintf("%d→%d is claimed and does not work: %s: %v", i, j, c.name, c.Check))
				}
			}
		}
	}
	return list
}

// measure probes the machine that s opens. Emulated devices are probed on a driver of their own in this process, where
// nothing can hang for good; real ones, or all with child, in child processes.
func (s *settings) measure(ctx context.Context, m *topo.Machine, child bool, o probe.Options) (*topo.Measurement, error) {
	if !m.Emulated || child {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program to start probes: %w", err)
		}
		return probe.RunChild(ctx, append([]string{self}, s.childArgs(m.Emulated)...), m, o)
	}
	rt, err := open(*s)
	if err != nil {
		return nil, err
	}
	found, err := probe.Run(ctx, rt.Driver(), m, o)
	var leak *launcher.LeakError
	if cerr := rt.Close(); cerr != nil && !errors.As(cerr, &leak) { // a probe that never ended keeps its memory until here
		err = errors.Join(err, cerr)
	}
	return found, err
}

// check probes, without numbers, each pair of real devices, and of emulated ones those whose claims are to be doubted, or
// with all every pair. It is nil when there is none. With cache, what was found earlier of real devices in the same state stands.
func (s *settings) check(ctx context.Context, m *topo.Machine, devices []int, all, cache bool) (*topo.Measurement, error) {
	pairs := doubtful(m, devices, all || !m.Emulated)
	if len(pairs) == 0 {
		return nil, nil
	}
	if m.Emulated {
		return s.checkEmulated(ctx, m, pairs)
	}
	measure := func(ctx context.Context, pairs []probe.Pair) (*topo.Measurement, error) {
		return s.measure(ctx, m, false, probe.Options{Pairs: pairs})
	}
	key, err := topo.ReadKey("/", m)
	dir, derr := topo.DefaultCache()
	if !cache || err != nil || derr != nil {
		return measure(ctx, pairs)
	}
	return remembered(ctx, dir, key, pairs, measure)
}

// checkEmulated probes several pairs at a time, since those that never answer take the whole time allowed.
func (s *settings) checkEmulated(ctx context.Context, m *topo.Machine, pairs []probe.Pair) (*topo.Measurement, error) {
	groups := make([][]probe.Pair, len(pairs))
	for i, p := range pairs {
		groups[i] = []probe.Pair{p}
	}
	return s.measureApart(ctx, m, groups, probe.Options{Bytes: emulatedProbeBytes, Timeout: emulatedProbeTimeout})
}

// measureApart probes several groups of emulated pairs at a time, each on a driver of its own.
func (s *settings) measureApart(ctx context.Context, m *topo.Machine, groups [][]probe.Pair, o probe.Options) (*topo.Measurement, error) {
	all := make([]*topo.Measurement, len(groups))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, pairs := range groups {
		g.Go(func() (err error) {
			part := o
			part.Pairs = pairs
			all[i], err = s.measure(ctx, m, false, part)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	found := all[0]
	for i, pairs := range groups {
		for _, p := range pairs {
			found.Pairs[p.From][p.To] = all[i].Pairs[p.From][p.To]
		}
	}
	return found, nil
}

// childArgs open the same devices in a child.
func (s *settings) childArgs(emulated bool) []string {
	if !emulated {
		return []string{childCommand, "--backend", launcher.CUDA}
	}
	args := []string{childCommand, "--backend", launcher.Emu}
	if s.machine != "" {
		args = append(args, "--machine", s.machine)
	}
	if s.devices != 0 {
		args = append(args, "--devices", strconv.Itoa(s.devices))
	}
	return args
}

// probeChild is a child's part: it takes orders from stdin. Its runtime is left to the end of the process, for
// closing it could wait for a probe that never ends.
func (a *app) probeChild(c *cobra.Command) error {
	s, err := a.opt.checkMachine(c.Flags().Changed)
	if err != nil {
		return err
	}
	rt, err := open(s)
	if err != nil {
		return err
	}
	return probe.Serve(c.Context(), rt.Driver(), os.Stdin, a.stdout)
}

// doubtful are the pairs of these devices whose claims are not to be believed unseen: with all any peer access that is
// claimed, otherwise what is claimed over anything but NVLink; what cannot be read is of no use here. Chipsets, firmware and virtual machines between PCIe
// devices break it without the driver's notice.
func doubtful(m *topo.Machine, devices []int, all bool) []probe.Pair {
	list := []probe.Pair{}
	seen := map[probe.Pair]bool{}
	for _, i := range devices {
		for _, j := range devices {
			p := probe.Pair{From: i, To: j}
			if i == j || seen[p] || m.Pairs[i][j].CanRead() == topo.No || !all && strings.HasPrefix(m.Pairs[i][j].Link, "NV") {
				continue
			}
			seen[p] = true
			list = append(list, p)
		}
	}
	return list
}
