package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/internal/nccl"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

func (a *app) benchCommand() *cobra.Command {
	o := &benchOptions{}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Time the all-reduce by size, world size and algorithm, in nccl-tests' columns, beside the floor for each size",
		Long: `demo bench times calls in a captured graph with the device's own clock, algorithms in turn for each size and in several rounds, so
that drift hits all alike. A time is that of the slowest rank; the columns show the median of all replays, and p10, p90 and p99. #wrong
counts elements whose bits differ from the CPU reference, for payloads other than those that were timed. NCCL gets whole numbers, whose sums
are exact in the order of its choice, too.

The floor is ` + floorHelp + `. With several ranks on one device it is that of kernel and protocol, not of a link.

On emulated devices all of it runs, and the times mean nothing.`,
		Example: `  demo bench                                          auto, 1K to 1M
  demo bench --ranks 2,4,8 --share --algo all -b 8K -e 512K
  demo bench -b 64K -e 1M -i 64K -n 500 -w 2 --rounds 5 -d f16,f32
  demo bench --algo oneshot-push,twoshot-pull --json --plot latency.svg
  demo bench --compare nccl                           NCCL in the same run, where libnccl.so.2 is found
  demo bench --beside torch.jsonl                     and what scripts/symm_mem_bench.py measured
  demo bench --table tuned.json                       auto goes by a table of demo tune`,
		RunE: a.started(func(a *app, c *cobra.Command) error { return a.benchmark(c, o) }),
	}
	o.measured(a, c, benchReplays)
	f := c.Flags()
	f.StringSliceVar(&o.algos, "algo", nil, "auto, all, or some of "+strings.Join(algorithmNames(), ", ")+" (default auto)")
	f.IntVar(&o.rounds, "rounds", 0, fmt.Sprintf("rounds over the algorithms for each size (default %d, emulated 1)", benchRounds))
	f.BoolVar(&o.floor, "floor", true, "measure the floor")
	f.StringVar(&o.table, "table", "", "auto goes by this table of demo tune")
	f.StringVar(&o.compare, "compare", "", "measure this beside ours: nccl. Several ranks on one device are a process each, over NCCL's socket transport")
	f.StringVar(&o.library, "nccl", nccl.DefaultLibrary, "the library of --compare nccl and --algo nccl")
	f.StringVar(&o.beside, "beside", "", "show what this file holds beside it: what scripts/symm_mem_bench.py --out wrote, PyTorch's symmetric memory")
	f.StringVar(&o.plot, "plot", "", "draw latency against size into this file, which ends in "+strings.ReplaceAll(plotFormats, ", ", " or ")+", when all is measured")
	f.SortFlags = false
	return c
}

// benchRun is one run.
type benchRun struct {
	set     *benchSettings
	rt      *launcher.Runtime
	rep     benchReport
	text    *benchTable // nil with --json
	bar     *progress
	cells   int         // measured so far, for the bar
	left    []contender // memory that a kernel may still use, freed once the groups are closed
	lengths lengths
	nccl    *nccl.Library // of --compare
}

// benchmark is `demo bench`.
func (a *app) benchmark(c *cobra.Command, o *benchOptions) (err error) {
	set, err := o.check(a, c.Flags().Changed)
	if err != nil {
		return err
	}
	r := &benchRun{set: set}
	defer moreConnections()()
	defer noMulticast()()
	if r.rt, err = open(set.settings); err != nil {
		return err
	}
	defer closeRuntime(r.rt, &err)
	if err := r.prepare(); err != nil {
		return err
	}
	ctx := c.Context()
	if err := r.examine(ctx); err != nil {
		return err
	}
	r.bar = newProgress(a.stderr, r.total())
	defer r.bar.close()
	if !a.opt.json {
		r.text = &benchTable{w: a.stdout}
		if err := r.rep.brief(a.stdout); err != nil {
			return err
		}
		r.text.head(&r.rep)
	}
	err = r.all(ctx)
	if err != nil && ctx.Err() != nil {
		err = errInterrupted
	}
	r.bar.close()
	if err == nil && set.plot != "" {
		if err = r.rep.draw(set.plot); err == nil {
			r.rep.Plot = set.plot
		}
	}
	r.rep.finish(err)
	if a.opt.json {
		if werr := writeJSON(a.stdout, &r.rep); werr != nil {
			return errors.Join(err, werr)
		}
	} else {
		r.text.verdict(&r.rep)
	}
	if err == nil && !r.rep.OK {
		return errReported
	}
	return err
}

// moreConnections gives the streams of many ranks queues of their own, for kernels that wait for each other must not wait in
// one line. It is read when CUDA starts. What it returns undoes it.
func moreConnections() func() {
	if _, ok := os.LookupEnv(maxConnections); ok {
		return func() {}
	}
	_ = os.Setenv(maxConnections, "32") // fails for bad names only
	return func() { _ = os.Unsetenv(maxConnections) }
}

// prepare describes the machine, places the ranks, and refuses what cannot run before anything does.
func (r *benchRun) prepare() (err error) {
	set := r.set
	if r.rep.machineReport, err = describe(r.rt); err == nil {
		err = r.rep.stated(set.settings)
	}
	if err != nil {
		return err
	}
	emulated := r.rep.Backend.Emulated
	if emulated {
		set.emulatedSizes()
	}
	if err := set.fitsTable(r.rep.machine); err != nil {
		return err
	}
	if err := r.loadNCCL(); err != nil {
		return err
	}
	if err := r.loadBeside(); err != nil {
		return err
	}
	if r.rep.Worlds, err = set.places(len(r.rep.Devices), emulated); err != nil {
		return err
	}
	for i := range r.rep.Worlds {
		w := &r.rep.Worlds[i]
		if err := w.fits(r.rep.Devices, emulated, largest(set.rows)); err != nil {
			return err
		}
		if err := r.selectable(w); err != nil {
			return err
		}
	}
	r.lengths = lengths{calls: set.iters, warmup: set.warmup, replays: set.replays, callsGiven: set.itersGiven, replaysGiven: set.replays != 0}
	if !set.itersGiven {
		r.lengths.calls = benchIters
	}
	if set.replays == 0 {
		r.lengths.replays = benchReplays
	}
	if set.rounds == 0 {
		set.rounds = benchRounds
		if emulated {
			set.rounds = 1
		}
	}
	r.rep.start(set, r.lengths)
	return nil
}

// places puts the ranks of every world on the devices.
func (s *benchSettings) places(n int, emulated bool) ([]worldReport, error) {
	sizes, why := s.worlds, ""
	one := *s
	if n == 1 {
		one.share = true
	}
	if len(sizes) == 0 {
		why = "the default on this machine"
		most := n
		switch {
		case n == 1 && emulated:
			most = defaultRanks
		case n == 1:
			most = mostByMachine
		}
		for w := 2; w <= min(most, mostByMachine); w *= 2 {
			sizes = append(sizes, w)
		}
	}
	var list []worldReport
	for _, w := range sizes {
		one.ranks = w
		place, err := one.settings.place(n, emulated)
		if err != nil {
			return nil, err
		}
		if why != "" {
			place.Why = why
		}
		list = append(list, place)
	}
	return list, nil
}

// selectable refuses an algorithm that was asked for by name and cannot work.
func (r *benchRun) selectable(w *worldReport) error {
	if r.set.every {
		return nil
	}
	for _, alg := range r.set.algorithms {
		if _, err := allreduce.Select(r.input(w, alg)); err != nil {
			return &usageError{Flag: "--algo", Err: err}
		}
	}
	return nil
}

func (r *benchRun) input(w *worldReport, want allreduce.Algorithm) allreduce.SelectInput {
	return r.set.selectInput(&r.rep.machineReport, w, r.rep.Measurement, want)
}

// examine probes what the ranks would rely on, and what the floor is made of.
func (r *benchRun) examine(ctx context.Context) (err error) {
	var devices []int
	for _, w := range r.rep.Worlds {
		for _, d := range w.Devices {
			if !slices.Contains(devices, d) {
				devices = append(devices, d)
			}
		}
	}
	if !noPeers(allreduce.Auto, r.set.knobs) {
		r.rep.Measurement, err = r.set.check(ctx, r.rep.machine, devices, false, true)
	}
	var numbers *topo.Measurement
	if err == nil && r.set.floor {
		numbers, err = r.set.floorNumbers(ctx, r.rep.machine, r.rep.Worlds)
	}
	if err := afterProbe(ctx, err, ""); err != nil {
		return err
	}
	for i := range r.rep.Worlds {
		if r.set.floor {
			r.rep.Floors = append(r.rep.Floors, *newFloor(&r.rep.Worlds[i], numbers))
		}
	}
	return nil
}

// all measures every world.
func (r *benchRun) all(ctx context.Context) error {
	for i := range r.rep.Worlds {
		if err := r.world(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// world measures all sizes with one number of ranks.
func (r *benchRun) world(ctx context.Context, i int) (err error) {
	w := &r.rep.Worlds[i]
	f, err := r.field(ctx, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.closeField(f)) }()
	var floor *floorReport
	if r.set.floor {
		floor = &r.rep.Floors[i]
		if err := floor.gaps(ctx, r.rt, f.clocks[f.groups[0]], r.set.timeout, r.lengths); err != nil {
			return err
		}
	}
	r.bar.hide()
	if r.text != nil {
		r.text.world(&r.rep, i)
	}
	for _, row := range r.set.rows {
		if err := r.size(ctx, f, w, floor, row); err != nil {
			return err
		}
	}
	return nil
}

// total is how many cells the bar counts to.
func (r *benchRun) total() int {
	return len(r.rep.Worlds) * len(r.set.rows) * r.set.rounds
}
