package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/internal/ptx"
)

// GateCase is a spec with values of its params, for kernels that the gate weakens.
type GateCase struct {
	Name  string
	Spec  *Spec
	File  string // of the PTX
	PTX   []byte
	Set   map[string]string
	Lines func(file string, line int) (source string, sourceLine int, ok bool)
	Calls func(file string, line int) []string // through which the line was inlined, as "file:line"; nil: not known
	// Entries are those to weaken, of the ones that the case launches; nil: all.
	Entries []string
}

// Fate is what became of a mutant.
type Fate string

const (
	Caught      Fate = "caught"
	Harmless    Fate = "redundant"    // on the reviewed list
	NotCaught   Fate = "NOT CAUGHT"   // it runs, and nothing was found
	NotExecuted Fate = "NOT EXECUTED" // no case runs it
)

// Judged is a mutant and what became of it.
type Judged struct {
	Mutant
	Kernel     string
	Source     string // where the instruction came from, as far as that is known
	SourceLine int
	Calls      []string // through which it was inlined, the innermost first
	Fate       Fate
	Case       string // that caught it
	Kind       Kind   // of the finding
	Token      string
	Reason     string // why it is redundant
	Executions uint64 // that were run of it
}

// Redundancy is an entry of the reviewed list: instructions that may be weakened without harm.
type Redundancy struct {
	Kernel string // the entry begins with it
	Op     string // the opcode begins with it
	What   string // the mutation; "*" is any
	Source string // the source line holds it, or one of the calls through which it was inlined; or empty
	Reason string
}

// ParseRedundancies reads a reviewed list: a line holds kernel | opcode | mutation | text of the source line | reason.
func ParseRedundancies(name, text string) ([]Redundancy, error) {
	var list []Redundancy
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		f := strings.SplitN(line, "|", 5)
		for k := range f {
			f[k] = strings.TrimSpace(f[k])
		}
		if len(f) != 5 || f[0] == "" || f[1] == "" || f[2] == "" || f[4] == "" {
			return nil, fmt.Errorf("%s:%d: want `kernel | opcode | mutation | text of the source line | reason`, of which only the fourth may be empty", name, i+1)
		}
		list = append(list, Redundancy{f[0], f[1], f[2], f[3], f[4]})
	}
	return list, nil
}

// GateOptions say how hard the gate looks.
type GateOptions struct {
	Executions uint64 // of one mutant in one case, at most; 0: 300
	Seed       uint64
	Redundant  []Redundancy
	Others     []GateCase                           // asked about what runs in the cases and none of them catches
	SourceText func(source string, line int) string // a line of a source, to match Redundancy.Source; nil: none match
	Progress   func(done, total int)                // from several goroutines
}

// gate is one run over the mutants of an entry.
type gate struct {
	o     GateOptions
	entry string
	cases []GateCase
	other []GateCase
	text  []byte // of the module, with the entries that the cases launch
	file  string
}

// Gate weakens every instruction of every entry that the cases launch, one at a time, and says which of the mutants some
// case catches. It stops early, with what it has, when ctx ends.
func Gate(ctx context.Context, cases []GateCase, o GateOptions) ([]Judged, error) {
	if o.Executions == 0 {
		o.Executions = 300
	}
	gates, err := gatesOf(ctx, cases, o)
	if err != nil {
		return nil, err
	}
	var all []Judged
	total, done := 0, 0
	for _, g := range gates {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		total += len(g.mutants())
	}
	for _, g := range gates {
		found, err := g.run(ctx, func(n int) {
			if o.Progress != nil {
				o.Progress(done+n, total)
			}
		})
		all = append(all, found...)
		done += len(found)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// gatesOf groups the cases by module and entry.
func gatesOf(ctx context.Context, cases []GateCase, o GateOptions) ([]*gate, error) {
	var gates []*gate
	keep := map[*gate][]string{}
	for _, c := range cases {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		launched, err := c.Spec.Entries(c.Set)
		if err != nil {
			return nil, err
		}
		for _, e := range launched {
			if !c.weakens(e) {
				continue
			}
			i := slices.IndexFunc(gates, func(g *gate) bool { return g.file == c.File && g.entry == e })
			if i < 0 {
				i = len(gates)
				gates = append(gates, &gate{o: o, entry: e, file: c.File, text: c.PTX})
			}
			gates[i].cases = append(gates[i].cases, c)
			keep[gates[i]] = append(keep[gates[i]], launched...)
		}
	}
	for _, c := range o.Others {
		launched, err := c.Spec.Entries(c.Set)
		if err != nil {
			return nil, err
		}
		for _, g := range gates {
			if g.file == c.File && slices.Contains(launched, g.entry) && c.weakens(g.entry) {
				g.other, keep[g] = append(g.other, c), append(keep[g], launched...)
			}
		}
	}
	for _, g := range gates {
		g.text = Isolate(g.text, keep[g])
	}
	return gates, nil
}

// weakens is whether an entry that the case launches is to be weakened.
func (c *GateCase) weakens(entry string) bool {
	return c.Entries == nil || slices.Contains(c.Entries, entry)
}

// mutants are those of the entry; of choices between no displacement and another, those whose source says that they are of halves.
func (g *gate) mutants() []Judged {
	var list []Judged
	for _, m := range Mutants(g.file, g.text, g.entry) {
		j := Judged{Mutant: m, Kernel: g.entry}
		if lines := g.cases[0].Lines; lines != nil {
			j.Source, j.SourceLine, _ = lines(g.file, j.Line)
		}
		if calls := g.cases[0].Calls; calls != nil {
			j.Calls = calls(g.file, j.Line)
		}
		if m.What != firstHalf || g.holds(&j, "half") {
			list = append(list, j)
		}
	}
	return list
}

func (g *gate) run(ctx context.Context, progress func(int)) ([]Judged, error) {
	covering, err := g.coverage(ctx)
	if err != nil {
		return nil, err
	}
	all := g.mutants()
	var done atomic.Int64
	err = inParallel(ctx, len(all), func(i int) error {
		j := &all[i]
		r := g.redundant(j)
		other := g.other
		if r != nil {
			other = nil
		}
		if cases := covering[j.Line]; len(cases) == 0 {
			j.Fate = NotExecuted
		} else if err := g.judge(ctx, j, r != nil, cases, other); err != nil {
			return err
		}
		if j.Fate == NotCaught && r != nil {
			j.Fate, j.Reason = Harmless, r.Reason
		}
		j.PTX = nil
		progress(int(done.Add(1)))
		return nil
	})
	all = slices.DeleteFunc(all, func(j Judged) bool { return j.Fate == "" })
	if err != nil {
		return all, err
	}
	params, err := g.params(ctx)
	return append(all, params...), err
}

// weakParams are params of specs that stand for something to rely on, and the value that takes it away.
var weakParams = map[string]string{"halves": "1"}

// params judges the weak values of the cases' params as mutants of the host's part, the same for all cases.
func (g *gate) params(ctx context.Context) ([]Judged, error) {
	var all []Judged
	for _, name := range slices.Sorted(maps.Keys(weakParams)) {
		weakened := func(list []GateCase) (cases []GateCase) {
			for _, c := range list {
				if slices.ContainsFunc(c.Spec.Params, func(p SpecParam) bool { return p.Name == name }) {
					c.Set = maps.Clone(c.Set)
					c.Set[name] = weakParams[name]
					cases = append(cases, c)
				}
			}
			return cases
		}
		cases, other := weakened(g.cases), weakened(g.other)
		if len(cases) == 0 {
			continue
		}
		j := Judged{Kernel: g.entry, Mutant: Mutant{File: g.file, Text: "the spec's " + name, What: weakParams[name], PTX: g.text}}
		if err := g.judge(ctx, &j, false, cases, other); err != nil {
			return all, err
		}
		j.PTX = nil
		all = append(all, j)
	}
	return all, nil
}

// inParallel does n things on all processors, until one fails or ctx ends.
func inParallel(ctx context.Context, n int, do func(int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return do(i)
		})
	}
	return g.Wait()
}

// judge runs a mutant in cases, and in the other ones if none of these catches it.
func (g *gate) judge(ctx context.Context, j *Judged, harmless bool, cases, other []GateCase) error {
	err := g.try(ctx, j, cases, harmless)
	if err == nil && j.Fate == NotCaught && len(other) > 0 {
		err = g.try(ctx, j, other, harmless)
	}
	return err
}

// try runs a mutant in each case until one catches it, small cases first, and ahead of all those in which polls give up: one execution
// of each, then a few, then many, and as many again by priorities.
// Of one that is known to be harmless one execution of a few cases is enough, to see whether the list still holds.
func (g *gate) try(ctx context.Context, j *Judged, cases []GateCase, harmless bool) error {
	module, err := ptx.Parse(g.file, j.PTX)
	if err != nil {
		return fmt.Errorf("mutant %v: %w", &j.Mutant, err)
	}
	all := g.o.Executions
	one, few := min(1, all), min(20, all)
	rounds := []struct {
		of Strategy
		n  uint64
	}{{Random, one}, {Random, few - one}, {Random, all - few}, {PCT, all}, {Exhaustive, few}}
	switch {
	case harmless:
		rounds, cases = rounds[:1], cases[:min(4, len(cases))]
	case j.What == firstHalf: // it takes a rank that is a whole call late, which is rare at random
		slices.Reverse(rounds)
	}
	if !harmless { // where polls give up nobody looks whether they end by themselves, which takes most of a small case's time
		cases = slices.Clone(cases)
		slices.SortStableFunc(cases, func(a, b GateCase) int { return cmp.Compare(truth64(b.Spec.giveUp), truth64(a.Spec.giveUp)) })
	}
	for i, round := range rounds {
		for _, c := range cases {
			if round.n == 0 {
				continue
			}
			p, err := c.Spec.Program(module, c.Set)
			if err != nil {
				return err
			}
			r, err := Check(ctx, p, Options{Strategy: round.of, Executions: round.n, Seed: g.o.Seed + uint64(i), NoFix: true})
			if err != nil {
				return fmt.Errorf("mutant %v: %w", &j.Mutant, err)
			}
			j.Executions += r.Executions
			if len(r.Findings) > 0 {
				f := &r.Findings[0]
				j.Fate, j.Case, j.Kind, j.Token = Caught, c.Name, f.Kind, f.Token
				return nil
			}
		}
	}
	j.Fate = NotCaught
	return nil
}

// coverage says which cases execute each line, and puts the cases in order, those with the least to do first.
func (g *gate) coverage(ctx context.Context) (map[int][]GateCase, error) {
	module, err := ptx.Parse(g.file, g.text)
	if err != nil {
		return nil, err
	}
	type ran struct {
		GateCase
		insts      map[*ptx.Inst]bool
		operations uint64
	}
	found := make([]ran, len(g.cases))
	err = inParallel(ctx, len(g.cases), func(i int) error {
		p, err := g.cases[i].Spec.Program(module, g.cases[i].Set)
		if err != nil {
			return err
		}
		r, err := Check(ctx, p, Options{Executions: 3, Seed: g.o.Seed, NoFix: true, Cover: true})
		if err != nil {
			return err
		}
		if len(r.Findings) > 0 {
			return fmt.Errorf("case %s fails as it is: %s", g.cases[i].Name, r.Findings[0].Message)
		}
		found[i] = ran{g.cases[i], r.Executed, r.Operations}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, func(a, b ran) int { return cmp.Compare(a.operations, b.operations) })
	covering := map[int][]GateCase{}
	for i := range found {
		g.cases[i] = found[i].GateCase
		lines := map[int]bool{}
		for in := range found[i].insts {
			lines[in.Line] = true
		}
		for line := range lines {
			covering[line] = append(covering[line], g.cases[i])
		}
	}
	return covering, g.coverAddresses(ctx, covering)
}

// coverAddresses adds the lines of address arithmetic, which is no instruction that a search notices: a case executes a displacement
// if a trap in its place stops it.
func (g *gate) coverAddresses(ctx context.Context, covering map[int][]GateCase) error {
	// A choice of halves is executed with the access ahead of it, of the epoch that it goes by.
	lines := slices.Sorted(maps.Keys(covering))
	for _, n := range scan(g.text, g.entry) {
		if i, _ := slices.BinarySearch(lines, n.line); n.mods[0] == "selp" && len(n.fold()) != 0 && i > 0 {
			covering[n.line] = covering[lines[i-1]]
		}
	}
	list := slices.DeleteFunc(scan(g.text, g.entry), func(n instruction) bool {
		return n.mods[0] != "add" && n.mods[0] != "or" || len(n.fold()) == 0
	})
	found := make([][]GateCase, len(list))
	err := inParallel(ctx, len(list), func(i int) error {
		n := &list[i]
		module, err := ptx.Parse(g.file, replace(g.text, n, n.guard+"trap;"))
		if err != nil {
			return fmt.Errorf("%s:%d: trap in place of `%v`: %w", g.file, n.line, n, err)
		}
		for _, c := range g.cases {
			p, err := c.Spec.Program(module, c.Set)
			if err != nil {
				return err
			}
			r, err := Check(ctx, p, Options{Executions: 3, Seed: g.o.Seed, NoFix: true})
			if err != nil {
				return err
			}
			if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == Faulted }) {
				found[i] = append(found[i], c)
			}
		}
		return nil
	})
	for i := range list {
		covering[list[i].line] = append(covering[list[i].line], found[i]...)
	}
	return err
}

func (g *gate) redundant(j *Judged) *Redundancy {
	for i := range g.o.Redundant {
		r := &g.o.Redundant[i]
		op := strings.Fields(strings.TrimLeft(j.Text, "@!%"))
		if strings.HasPrefix(j.Text, "@") {
			op = op[1:]
		}
		if !strings.HasPrefix(j.Kernel, r.Kernel) || !strings.HasPrefix(op[0], r.Op) || r.What != "*" && r.What != j.What {
			continue
		}
		if r.Source == "" || g.holds(j, r.Source) {
			return r
		}
	}
	return nil
}

// holds is whether a line of the sources that led to the instruction has this text.
func (g *gate) holds(j *Judged, text string) bool {
	if g.o.SourceText == nil {
		return false
	}
	for _, at := range append([]string{fmt.Sprintf("%s:%d", j.Source, j.SourceLine)}, j.Calls...) {
		source, line, _ := strings.Cut(at, ":")
		if n, err := strconv.Atoi(line); err == nil && strings.Contains(g.o.SourceText(source, n), text) {
			return true
		}
	}
	return false
}

// Share is how many mutants of those that run were caught or are known to be harmless, and how many run.
func Share(all []Judged) (good, executed int) {
	for i := range all {
		switch all[i].Fate {
		case Caught, Harmless:
			good++
			executed++
		case NotCaught:
			executed++
		}
	}
	return good, executed
}

// SortJudged puts what was not caught first, then by place.
func SortJudged(all []Judged) {
	order := map[Fate]int{NotCaught: 0, NotExecuted: 1, Harmless: 2, Caught: 3}
	slices.SortStableFunc(all, func(a, b Judged) int {
		return cmp.Or(cmp.Compare(order[a.Fate], order[b.Fate]), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
}
