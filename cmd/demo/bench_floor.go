package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
	"github.com/fenceline/fenceline/topo/probe"
)

// floorHelp says what the floor is, for the help text and the report.
const floorHelp = "launch gap + flag latency + bytes / bandwidth, all measured in this run: the gap is the time of an empty kernel in a graph of the same kind; " +
	"the latency is one flag one way between the two ranks that are farthest apart; the bytes are what no algorithm can avoid, " +
	"2(D-1)/D times the message into each of D devices at the fastest rate of a kernel over one pair, " +
	"or twice the message for each rank through the memory of its device at the rate of large buffers (what stays in a cache can beat it), whichever takes longer"

// floorReport is what the floors of a number of ranks are made of. A number that could not be taken is 0.
type floorReport struct {
	Ranks       int     `json:"ranks"`
	Devices     int     `json:"devices"`
	PerDevice   int     `json:"ranks_per_device"` // the most
	GapUS       float64 `json:"launch_gap_us"`    // of the faster kind of launch
	Dependent   bool    `json:"dependent_launch"` // which is dependent launch
	GapOrdered  float64 `json:"launch_gap_ordered_us"`
	GapDepend   float64 `json:"launch_gap_dependent_us,omitempty"` // absent where the device cannot
	FlagUS      float64 `json:"flag_us"`
	LinkRate    float64 `json:"link_gbs,omitempty"` // GB/s into one device
	MemoryRate  float64 `json:"memory_gbs"`         // GB/s of one device, reads and writes together
	Virtual     bool    `json:"virtual"`            // all ranks on one device: no link is part of it
	Incomplete  string  `json:"incomplete,omitempty"`
	Explanation string  `json:"explanation"`
}

// us is the floor of a message, 0 when parts of it are missing.
func (f *floorReport) us(bytes uint64) float64 {
	if f == nil || f.Incomplete != "" {
		return 0
	}
	memory := 2 * float64(f.PerDevice) * float64(bytes) / (f.MemoryRate * 1e3)
	link := 0.0
	if f.Devices > 1 {
		d := float64(f.Devices)
		link = 2 * (d - 1) / d * float64(bytes) / (f.LinkRate * 1e3)
	}
	return f.GapUS + f.FlagUS + max(memory, link)
}

// floorPairs are the pairs of devices that floors need: one device with itself, and with every other both ways.
func floorPairs(worlds []worldReport) []probe.Pair {
	var list []probe.Pair
	add := func(p probe.Pair) {
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	for _, w := range worlds {
		first := w.Devices[0]
		add(probe.Pair{From: first, To: first})
		for _, d := range w.Devices[1:] {
			if d != first {
				add(probe.Pair{From: first, To: d})
				add(probe.Pair{From: d, To: first})
			}
		}
	}
	return list
}

// floorNumbers probes what the floors of all worlds need.
func (s *settings) floorNumbers(ctx context.Context, m *topo.Machine, worlds []worldReport) (*topo.Measurement, error) {
	o := probe.Options{Pairs: floorPairs(worlds), Numbers: true, EmulatedNumbers: true, Only: []string{"kernel", "flag_latency"}}
	if m.Emulated {
		o.Bytes, o.Timeout = emulatedProbeBytes, emulatedProbeTimeout
	}
	return s.measure(ctx, m, false, o)
}

// newFloor puts a world's floor together, without the launch gap.
func newFloor(w *worldReport, found *topo.Measurement) *floorReport {
	f := &floorReport{Ranks: w.Ranks, Explanation: floorHelp}
	on := map[int]int{}
	for _, d := range w.Devices {
		on[d]++
		f.PerDevice = max(f.PerDevice, on[d])
	}
	f.Devices = len(on)
	f.Virtual = f.Devices == 1 && w.Ranks > 1
	first := w.Devices[0]
	self := found.Pairs[first][first]
	f.MemoryRate = self.KernelRate
	if f.PerDevice > 1 {
		f.FlagUS = self.FlagLatency / 1e3
	}
	if f.MemoryRate == 0 || f.PerDevice > 1 && f.FlagUS == 0 {
		f.Incomplete = fmt.Sprintf("device %d could not be measured by itself", first)
	}
	for d := range on {
		if d == first {
			continue
		}
		for _, p := range []topo.Measured{found.Pairs[first][d], found.Pairs[d][first]} {
			f.FlagUS = max(f.FlagUS, p.FlagLatency/1e3)
			f.LinkRate = max(f.LinkRate, p.KernelRate)
			if p.FlagLatency == 0 || p.KernelRate == 0 {
				f.Incomplete = fmt.Sprintf("devices %d and %d do not reach each other both ways, so flags and kernels between them were not timed", first, d)
			}
		}
	}
	return f
}

// The empty kernels whose launches are timed: as the shipped ones begin and end, and with nothing between.
const (
	emptyOrdered = ".version 7.0\n.target sm_70\n.address_size 64\n\n.visible .entry empty()\n{\n\tret;\n}\n"
	emptyDepend  = ".version 7.8\n.target sm_90\n.address_size 64\n\n.visible .entry empty()\n{\n" +
		"\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n\tret;\n}\n"
	dependentSM = 90 // the first with dependent launch
)

// gaps times empty kernels on the streams of a group.
func (f *floorReport) gaps(ctx context.Context, rt *launcher.Runtime, clock *stopwatch, timeout time.Duration, l lengths) error {
	times := func(ptx string, dependent bool) (float64, error) {
		d, err := gapTimes(ctx, rt, clock, timeout, l, ptx, dependent)
		if err != nil {
			return 0, fmt.Errorf("time empty kernels: %w", err)
		}
		return micros(median(d)), nil
	}
	var err error
	if f.GapOrdered, err = times(emptyOrdered, false); err != nil {
		return err
	}
	f.GapUS = f.GapOrdered
	for r := range clock.g.World() {
		if rt.Devices()[clock.g.Rank(r).Device()].SM() < dependentSM {
			return nil
		}
	}
	if f.GapDepend, err = times(emptyDepend, true); err != nil {
		return err
	}
	if f.GapDepend < f.GapOrdered {
		f.GapUS, f.Dependent = f.GapDepend, true
	}
	return nil
}

func gapTimes(ctx context.Context, rt *launcher.Runtime, clock *stopwatch, timeout time.Duration, l lengths, ptx string, dependent bool) (times []time.Duration, err error) {
	g := clock.g
	modules := map[int]*launcher.Module{}
	defer func() {
		for _, m := range modules {
			err = errors.Join(err, m.Close())
		}
	}()
	args := make([]*launcher.Args, g.World())
	for r := range args {
		dev := g.Rank(r).Device()
		if modules[dev] == nil {
			m, err := rt.Load(dev, "empty.ptx", []byte(ptx))
			if err != nil {
				return nil, err
			}
			modules[dev] = m
		}
		k, err := modules[dev].Kernel("empty")
		if err != nil {
			return nil, err
		}
		if args[r], err = k.Pack(); err != nil {
			return nil, err
		}
	}
	cfg := launcher.Linear(1, 32)
	cfg.Dependent = dependent
	calls, replays := l.calls, l.replays
	if rt.Info().Emulated {
		calls, replays = 5, 1
	}
	return clock.times(ctx, timeout, graphWork{calls: calls, warmup: 1, replays: replays, capture: g.Capture, call: func() error {
		for r, a := range args {
			if err := a.Kernel().Launch(g.Rank(r).Stream(), cfg, a); err != nil {
				return err
			}
		}
		return nil
	}})
}
