package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/flags/check"
	"github.com/fenceline/fenceline/internal/ptx"
)

// checkOptions are the flags of `demo check`.
type checkOptions struct {
	ptx, entry, spec, litmus, only, replay string
	set                                    []string
	gate, faults, exhaustive               bool
	seed, executions                       uint64
}

// checker is one `demo check`.
type checker struct {
	*app
	checkOptions
	ctx    context.Context
	given  func(string) bool
	parsed map[string]*ptx.Module // by file
}

// machineOnly are flags of every command that mean nothing here.
var machineOnly = []string{"backend", "machine", "devices"}

func (a *app) checkCommand() *cobra.Command {
	o := &checkOptions{}
	c := &cobra.Command{
		Use:   "check",
		Short: "Run kernels' PTX in ways that the memory model allows, and say what is not promised",
		Long: `demo check looks for races, stale values, deadlocks and wrong results in executions that PTX's memory model allows, whether or
not a GPU would show them: some at random, others systematically. Without flags it checks the kernels of this program. It exits
with 1 when it finds something. "No finding" holds for the executions that were run. Where these were all, each class of equivalent
ones once, the table says "all"; where it says "some", the last line gives the reasons why others were left out.`,
		Example: `  demo check                                          the shipped kernels
  demo check --only inplace                           those cases whose name holds it
  demo check --ptx k.ptx --spec k.spec --set count=5  a kernel of your own; see flags/check/examples
  demo check --litmus flags/check/testdata            litmus tests
  demo check --faults                                 classic faults, each found
  demo check --gate --only "world=2 dtype=f32"        is every weakened instruction noticed?
  demo check --ptx k.ptx --spec k.spec --replay 1f0c22ab-r:5d   one execution again, by the token of a finding`,
		RunE: a.started(func(a *app, c *cobra.Command) error {
			return a.check(&checker{app: a, checkOptions: *o, ctx: c.Context(), given: c.Flags().Changed, parsed: map[string]*ptx.Module{}})
		}),
	}
	c.SetHelpFunc(func(c *cobra.Command, args []string) {
		for _, m := range machineOnly {
			c.InheritedFlags().Lookup(m).Hidden = true
		}
		c.Parent().HelpFunc()(c, args)
	})
	f := c.Flags()
	f.StringVar(&o.ptx, "ptx", "", "PTX file of a kernel to check, with --spec")
	f.StringVar(&o.spec, "spec", "", "what is launched on what memory, and what must come out")
	f.StringVar(&o.entry, "entry", "", "the kernel that the spec launches, in the place of the one it names")
	f.StringArrayVar(&o.set, "set", nil, "NAME=VALUE: a param of the spec; may be repeated")
	f.StringVar(&o.litmus, "litmus", "", "file or folder of litmus tests to run")
	f.BoolVar(&o.faults, "faults", false, "show that classic faults are found")
	f.BoolVar(&o.gate, "gate", false, "weaken every instruction that orders anything, one at a time: each must be found, or known to be redundant")
	f.StringVar(&o.only, "only", "", "of the shipped cases, those whose name holds this; with --gate, the others of the same kernels are asked about what these do not catch")
	f.BoolVar(&o.exhaustive, "exhaustive", false, "no random executions: only the systematic search, each class of equivalent ones once, to its end if --executions lets it")
	f.Uint64Var(&o.executions, "executions", 0, "executions of each case, at most: so many at random, and so many systematically (default 300 and 300; with --exhaustive alone 1000000)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the random choices")
	f.StringVar(&o.replay, "replay", "", "run one execution again: the token of a finding in this very kernel, spec and params")
	f.SortFlags = false
	return c
}

// check is `demo check`.
func (a *app) check(c *checker) error {
	if err := c.usage(); err != nil {
		return err
	}
	switch {
	case c.litmus != "":
		return c.runLitmus()
	case c.gate:
		return c.runGate()
	case c.faults:
		return c.runFaults()
	}
	var jobs []*checkJob
	var err error
	if c.ptx != "" {
		jobs, err = c.ownJobs()
	} else {
		jobs, err = c.shippedJobs()
	}
	if err == errInterrupted {
		return c.runJobs(nil) // which says so
	}
	if err != nil {
		return err
	}
	if c.replay != "" && len(jobs) != 1 {
		return usagef("--replay", c.replay, "replays one case and %d are chosen: name it by --only, or give --ptx and --spec", len(jobs))
	}
	return c.runJobs(jobs)
}

// usage refuses flags that do not go together.
func (c *checker) usage() error {
	modes := []string{"ptx", "litmus", "gate", "faults"}
	modes = slices.DeleteFunc(modes, func(m string) bool { return !c.given(m) })
	for _, m := range machineOnly {
		if c.given(m) {
			return usagef("--"+m, "", "check runs kernels in the memory model and on no machine: leave it out")
		}
	}
	refuse := func(flag string, unless ...string) error {
		if !c.given(flag) || slices.ContainsFunc(unless, c.given) {
			return nil
		}
		return usagef("--"+flag, "", "goes with --%s: give that too, or leave it out", strings.Join(unless, " or --"))
	}
	if len(modes) > 1 {
		return usagef("--"+modes[1], "", "does not go with --%s: run one after the other", modes[0])
	}
	for flag, unless := range map[string][]string{"spec": {"ptx"}, "entry": {"ptx"}, "set": {"ptx"}} {
		if err := refuse(flag, unless...); err != nil {
			return err
		}
	}
	for _, flag := range []string{"ptx", "litmus", "spec", "replay"} {
		if v := map[string]string{"ptx": c.ptx, "litmus": c.litmus, "spec": c.spec, "replay": c.replay}[flag]; c.given(flag) && v == "" {
			return usagef("--"+flag, "", "the value is empty: give one")
		}
	}
	switch {
	case c.ptx != "" && c.spec == "":
		return usagef("--ptx", c.ptx, "a spec must say how it is launched: add --spec FILE, as in flags/check/examples")
	case c.given("only") && (c.ptx != "" || c.litmus != "" || c.faults):
		return usagef("--only", c.only, "chooses among the shipped cases: leave it out here")
	case c.replay != "" && len(modes) > 0 && c.ptx == "":
		return usagef("--replay", c.replay, "does not go with --%s: use the command that the finding came from", modes[0])
	case c.exhaustive && (c.gate || c.replay != ""):
		return usagef("--exhaustive", "", "does not go with --gate or --replay: leave it out")
	case c.given("executions") && c.executions == 0:
		return usagef("--executions", "0", "nothing would be looked at: use 1 or more")
	}
	return nil
}

// strategies are the searches of one case, in their order.
func (c *checker) strategies() []check.Options {
	o := check.Options{Seed: c.seed, Executions: c.executions, Replay: c.replay}
	switch {
	case c.replay != "":
		return []check.Options{o}
	case c.exhaustive:
		o.Strategy = check.Exhaustive
		return []check.Options{o}
	case o.Executions == 0:
		o.Executions = 300
	}
	pct, all := o, o
	all.Strategy = check.Exhaustive
	pct.Strategy, pct.Executions = check.PCT, o.Executions/2
	if o.Executions -= pct.Executions; pct.Executions == 0 {
		return []check.Options{o, all}
	}
	return []check.Options{o, pct, all}
}

// parseSet reads --set.
func parseSet(list []string) (map[string]string, error) {
	set := map[string]string{}
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		if !ok || k == "" || v == "" {
			return nil, usagef("--set", s, "use NAME=VALUE, such as count=5")
		}
		if _, twice := set[k]; twice {
			return nil, usagef("--set", s, "%s is given twice: give one value", k)
		}
		set[k] = v
	}
	return set, nil
}

// strategyName is how a search is called in tables.
func strategyName(s check.Strategy) string {
	return map[check.Strategy]string{check.Random: "random", check.PCT: "pct", check.Exhaustive: "exhaustive"}[s]
}

func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
