package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
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

// childCommand is the hidden command that child processes run.
const childCommand = "probe-child"

func (a *app) probeFlags(c *cobra.Command) {
	f, o := c.Flags(), &a.opt.probe
	f.BoolVar(&o.virtual, "virtual", false, "probe each device with itself too, as two ranks that share it (the default on a single device)")
	f.BoolVar(&o.child, "child", false, "probe emulated devices in child processes too, as real ones always are")
	f.BoolVar(&o.numbers, "numbers", true, "measure latencies and bandwidths of what works")
	f.BoolVar(&o.noCache, "no-cache", false, "do not keep what is found of real devices for later runs")
	f.DurationVar(&o.timeout, "timeout", 2*time.Second, "longest wait for one probe")
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
	rep.Measurement, err = s.measure(c.Context(), rep.Machine, o.child, probe.Options{
		Virtual: o.virtual || len(rep.Machine.Devices) == 1, Timeout: o.timeout, Numbers: o.numbers, EmulatedNumbers: true,
	})
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

// look reads the machine and closes it again, so that children find the devices free.
func look(s settings) (m *topo.Machine, err error) {
	rt, err := open(s)
	if err != nil {
		return nil, err
	}
	defer closeRuntime(rt, &err)
	return readMachine(rt)
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
	for _, f := range rep.Faults {
		fmt.Fprintf(a.stdout, "FAULT: %s\n", f)
	}
	return nil
}

// faults are the checks that failed though the access is claimed.
func faults(m *topo.Machine, found *topo.Measurement) []string {
	list := []string{}
	for i, row := range found.Pairs {
		for j, p := range row {
			for _, c := range []struct {
				name string
				topo.Check
			}{{"read", p.Read}, {"write", p.Write}, {"flags", p.Flags}, {"atomics", p.Atomics}} {
				if c.Answer == topo.No {
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

// checkEmulated probes several pairs at a time, each on a driver of its own, since those that never answer take the
// whole time allowed.
func (s *settings) checkEmulated(ctx context.Context, m *topo.Machine, pairs []probe.Pair) (*topo.Measurement, error) {
	const atOnce = 6
	all := make([]*topo.Measurement, len(pairs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, p := range pairs {
		g.Go(func() (err error) { // small, with far more time than it takes
			all[i], err = s.measure(ctx, m, false, probe.Options{Pairs: []probe.Pair{p}, Bytes: 4096, Timeout: 500 * time.Millisecond})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	found := all[0]
	for i, p := range pairs {
		found.Pairs[p.From][p.To] = all[i].Pairs[p.From][p.To]
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
// claimed, otherwise what is claimed over anything but NVLink. Chipsets, firmware and virtual machines between PCIe
// devices break it without the driver's notice.
func doubtful(m *topo.Machine, devices []int, all bool) []probe.Pair {
	list := []probe.Pair{}
	seen := map[probe.Pair]bool{}
	for _, i := range devices {
		for _, j := range devices {
			p := probe.Pair{From: i, To: j}
			if i == j || seen[p] || m.Pairs[i][j].Access == topo.No || !all && strings.HasPrefix(m.Pairs[i][j].Link, "NV") {
				continue
			}
			seen[p] = true
			list = append(list, p)
		}
	}
	return list
}
