package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags"
)

// tuneOptions are the flags of `demo tune`.
type tuneOptions struct {
	benchOptions
	out             string
	blocks, threads []string
}

// tuner is one run. What it shares with a bench it takes from there.
type tuner struct {
	*benchRun
	out             string
	blocks, threads []int
	report          tuneReport
	table           *tuneTable // nil with --json
}

const (
	tuneReplays = 5 // of a round
	tuneRounds  = 3 // over those that did best
	tuneBest    = 6 // how many those are
	scouting    = 2 // replays of the first look at each
	tuneSlack   = 0.02
	mostThreads = 512
)

func (a *app) tuneCommand() *cobra.Command {
	o := &tuneOptions{}
	c := &cobra.Command{
		Use:   "tune",
		Short: "Measure which algorithm and grid is fastest for each size, and keep it in a table",
		Long: fmt.Sprintf(`demo tune times each direct algorithm with each number of blocks and threads, for each size and world size, and writes the
fastest into a table, which --table of run and bench, and Config.Table, go by. Each choice has a short look first; the best %[1]d, and what is
taken without a table, then take turns in rounds. The latter stays where nothing is more than %[2]g %% faster. Every winner's result is
compared with the CPU reference.

Where the choices of two neighbouring sizes differ, both are timed and compared at sizes between, and the one changes to the other where
neither is faster by more than %[2]g %%, or else less than a %[3]dth below where the other becomes faster. Below the smallest size its choice
holds; beyond the largest, what is taken without a table. A table measured with one element type holds for all.

The table names the machine, and is refused where devices or links differ. It is written whole when all is measured: an interrupted or
failed run leaves the file as it was. On emulated devices it runs too; the times mean nothing, and no GPU takes such a table.`, tuneBest, tuneSlack*100, boundParts),
		Example: `  demo tune --out h200.json
  demo tune --out h200.json --ranks 2,4,8 --share -b 1K -e 4M
  demo tune --out h200.json --algo oneshot-push,oneshot-pull --blocks 8,16,32 --threads 256,512
  demo run --table h200.json`,
		RunE: a.started(func(a *app, c *cobra.Command) error { return a.tune(c, o) }),
	}
	f := c.Flags()
	f.StringVar(&o.out, "out", "", "the file of the table (required)")
	o.measured(a, c, tuneReplays)
	f.StringSliceVar(&o.algos, "algo", nil, "some of "+strings.Join(directNames(), ", ")+" (default: all that the machine can take)")
	f.StringSliceVar(&o.blocks, "blocks", nil, fmt.Sprintf("blocks of a rank, 1 to %d (default 1, 2, 4, 8, 16, 32, 64; emulated 1, 4)", flags.MaxBlocks))
	f.StringSliceVar(&o.threads, "threads", nil, fmt.Sprintf("threads of a block, multiples of 32 up to %d (default 64, 128, 256, 512; emulated 64, 256)", mostThreads))
	f.IntVar(&o.rounds, "rounds", 0, fmt.Sprintf("rounds over the best (default %d, emulated 1)", tuneRounds))
	f.SortFlags = false
	return c
}

func directNames() []string {
	var names []string
	for _, a := range allreduce.Algorithms()[1:] {
		if a.Direct() {
			names = append(names, a.String())
		}
	}
	return names
}

// tune is `demo tune`.
func (a *app) tune(c *cobra.Command, o *tuneOptions) (err error) {
	t, err := o.check(a, c.Flags().Changed)
	if err != nil {
		return err
	}
	defer moreConnections()()
	if t.rt, err = open(t.set.settings); err != nil {
		return err
	}
	defer closeRuntime(t.rt, &err)
	if err := t.prepare(); err != nil {
		return err
	}
	ctx := c.Context()
	if err := t.examine(ctx); err != nil {
		return err
	}
	t.defaults()
	t.bar = newProgress(a.stderr, len(t.rep.Worlds)*(2*len(t.set.rows)-1)) // sizes, and what lies between each two
	t.bar.label = "sizes"
	defer t.bar.close()
	t.report.start(t)
	if !a.opt.json {
		t.table = &tuneTable{w: a.stdout}
		if err := t.rep.brief(a.stdout); err != nil {
			return err
		}
	}
	err = t.search(ctx)
	if err != nil && ctx.Err() != nil {
		err = errInterrupted
	}
	t.bar.close()
	if err == nil {
		err = t.save()
	}
	t.report.finish(err)
	if a.opt.json {
		if werr := writeJSON(a.stdout, &t.report); werr != nil {
			return errors.Join(err, werr)
		}
		return err
	}
	t.table.verdict(&t.report)
	return err
}

// check checks all that can be checked without a machine.
func (o *tuneOptions) check(a *app, given func(string) bool) (*tuner, error) {
	set, err := o.benchOptions.check(a, given)
	if err != nil {
		return nil, err
	}
	t := &tuner{benchRun: &benchRun{set: set}, out: o.out}
	set.floor = false
	if o.out == "" {
		return nil, usagef("--out", "", "name the file for the table, such as --out tuned.json")
	}
	if err := checkTarget("--out", o.out); err != nil {
		return nil, err
	}
	if set.knobs.Algorithm != allreduce.Auto {
		return nil, usagef("FENCELINE_ALGO", set.knobs.Algorithm.String(), "it forces one algorithm, and there is nothing to tune: unset it")
	}
	for _, alg := range set.algorithms {
		if !alg.Direct() && !set.every {
			return nil, usagef("--algo", alg.String(), "it has no grid to tune: use some of %s", strings.Join(directNames(), ", "))
		}
	}
	if len(set.algorithms) == 0 {
		set.algorithms, set.every = allreduce.Algorithms()[1:], true
	}
	set.algorithms = slices.DeleteFunc(set.algorithms, func(alg allreduce.Algorithm) bool { return !alg.Direct() })
	if t.blocks, err = numbers("--blocks", o.blocks, 1, flags.MaxBlocks); err != nil {
		return nil, err
	}
	t.threads, err = numbers("--threads", o.threads, 32, mostThreads)
	return t, err
}

// numbers reads a list of multiples of unit, each once, the smallest first.
func numbers(flag string, texts []string, unit, most int) ([]int, error) {
	var list []int
	for _, text := range texts {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < unit || n > most || n%unit != 0 {
			kind := "numbers"
			if unit > 1 {
				kind = fmt.Sprintf("multiples of %d", unit)
			}
			return nil, usagef(flag, text, "use %s from %d to %d", kind, unit, most)
		}
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

// defaults fills in what hangs on whether the devices are real: the emulator takes long for each choice, for nothing.
func (t *tuner) defaults() {
	emulated := t.rep.Backend.Emulated
	if len(t.blocks) == 0 {
		t.blocks = choice(emulated, []int{1, 4}, []int{1, 2, 4, 8, 16, 32, 64})
	}
	if len(t.threads) == 0 {
		t.threads = choice(emulated, []int{64, 256}, []int{64, 128, 256, 512})
	}
	if t.set.replays == 0 {
		t.lengths.replays = tuneReplays
	}
	if emulated && !t.set.itersGiven {
		t.lengths.calls, t.lengths.callsGiven = 1, true
	}
}

func choice[T any](c bool, yes, no T) T {
	if c {
		return yes
	}
	return no
}

// save writes the table.
func (t *tuner) save() error {
	table, err := allreduce.NewTunedTable(t.rep.machine, t.report.Rules)
	if err != nil {
		return err
	}
	if err := table.Save(t.out); err != nil {
		return err
	}
	t.report.Written = t.out
	return nil
}

// search finds the fastest choice for every world, element type and size.
func (t *tuner) search(ctx context.Context) error {
	for i := range t.rep.Worlds {
		if err := t.searchWorld(ctx, i); err != nil {
			return err
		}
	}
	t.report.Rules = rulesOf(t.report.Choices, len(t.set.dtypes) > 1)
	if len(t.report.Rules) == 0 {
		return fmt.Errorf("no direct kernel can run on this machine, so there is nothing to tune: see demo topo --plan")
	}
	return nil
}

func (t *tuner) searchWorld(ctx context.Context, i int) (err error) {
	w := &t.rep.Worlds[i]
	var capable allreduce.Table // one rule for each algorithm makes the group set memory aside for it, and room for the largest grid
	for _, alg := range t.set.algorithms {
		if _, err := allreduce.Select(t.input(w, alg)); errors.Is(err, allreduce.ErrNoPlan) {
			t.report.note("%d ranks: %v is left out: %v", w.Ranks, alg, err)
		} else if err != nil {
			return err
		} else {
			capable = append(capable, allreduce.Rule{Algorithm: alg, Blocks: slices.Max(t.blocks)})
		}
	}
	if len(capable) == 0 {
		return nil
	}
	f := &field{clocks: map[*allreduce.Group]*stopwatch{}}
	defer func() { err = errors.Join(err, t.closeField(f)) }()
	g, err := t.group(ctx, f, w, allreduce.Auto, capable)
	if err != nil {
		return err
	}
	if t.table != nil {
		t.bar.hide()
		t.table.world(&t.report, w)
	}
	c := &groupContender{label: "tune", rt: t.rt, g: g, captured: true, emulated: t.rep.Backend.Emulated, timeout: t.set.timeout, lengths: t.lengths, clock: f.clocks[g],
		registers: t.set.direct != 0}
	first := len(t.report.Choices)
	for _, row := range t.set.rows {
		found, err := t.searchSize(ctx, c, capable, w, row)
		if err != nil {
			return err
		}
		t.report.Choices = append(t.report.Choices, found)
		t.bar.hide()
		if t.table != nil {
			t.table.choice(&found)
		}
		t.step()
	}
	choices := t.report.Choices[first:]
	if err := t.bounds(ctx, c, choices); err != nil {
		return err
	}
	t.bar.hide()
	if t.table != nil {
		t.table.bounds(choices)
	}
	return nil
}

// step is one more step of the bar.
func (t *tuner) step() {
	t.cells++
	t.bar.done(t.cells)
}
