package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/internal/ptx"
)

// Check runs executions of p and reports what is wrong in any. The error is for a program that makes no sense and for a
// replay token that is none; what is wrong with the kernels is a finding. "No finding" means none in the executions that
// were run; with Result.Exhaustive, in any there is. When ctx ends, the search ends within some thousand operations, and
// Check returns what it has found so far together with ctx's error.
func Check(ctx context.Context, p *Program, o Options) (*Result, error) {
	x, err := newExec(ctx, p, &o)
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", p.Name, err)
	}
	s := &search{x: x, o: o, r: &Result{Outcomes: map[string]uint64{}}}
	if o.Executions == 0 {
		s.o.Executions = 1000
		if o.Strategy == Exhaustive {
			s.o.Executions = 1_000_000
		}
	}
	if o.Cover {
		x.covered = map[*ptx.Inst]bool{}
		s.r.Executed = x.covered
	}
	s.o.Findings = max(o.Findings, 1)
	switch {
	case o.Replay != "":
		err = s.replay(o.Replay)
	case o.Strategy == Exhaustive:
		s.all()
	default:
		s.random(o.Strategy == PCT)
	}
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", p.Name, err)
	}
	s.r.Operations, s.r.Evictions, s.r.steps = x.ops, x.evicted, x.all
	if x.evicted > 0 {
		s.incomplete(fmt.Sprintf("%d writes were forgotten: raise MaxWrites", x.evicted))
	}
	if x.why != "" {
		s.incomplete(x.why)
	}
	if o.Replay == "" && o.Strategy != Exhaustive && !p.Racy && !o.NoFix {
		s.shorten()
	}
	if !o.NoFix {
		for i := range s.r.Findings {
			s.explain(&s.r.Findings[i])
		}
	}
	if p.Stronger != nil && !o.NoFix {
		for i := range s.r.Findings {
			s.fix(&s.r.Findings[i])
		}
	}
	if ctx.Err() != nil {
		s.incomplete("interrupted")
		return s.r, fmt.Errorf("check %s: %w", p.Name, ctx.Err())
	}
	return s.r, nil
}

// Limits of what is done about a finding, in steps.
const (
	shortenSteps = 20_000_000
	fixSteps     = 20_000_000 // of one variant, in all its trials
	fixLeast     = 100        // executions within that, to say that a finding has gone away
)

// done is whether the search is to end for another reason than what it found.
func (s *search) done() bool {
	s.r.spent = s.o.budget > 0 && s.x.all >= s.o.budget
	return s.r.spent || s.x.ctx.Err() != nil
}

// search is one call of Check.
type search struct {
	x    *exec
	o    Options
	r    *Result
	seen map[string]bool
}

func (s *search) incomplete(why string) {
	s.r.Exhaustive = false
	if s.r.Why == "" {
		s.r.Why = why
	}
}

// one counts the execution that was just run. False: enough was found.
func (s *search) one(token func() string) bool {
	x := s.x
	if x.pruned {
		return true
	}
	s.r.Executions++
	if s.o.Progress != nil && s.r.Executions%256 == 0 {
		s.o.Progress(s.r.Executions)
	}
	if x.p.Observe != nil && !x.over {
		s.r.Outcomes[x.outcome()]++
	}
	for i := range x.found {
		f := &x.found[i]
		key := f.key()
		if s.seen[key] {
			continue
		}
		if s.seen == nil {
			s.seen = map[string]bool{}
		}
		s.seen[key] = true
		f.Token = s.keyed(token())
		s.r.Findings = append(s.r.Findings, *f)
		if f.Kind == Endless { // others would take as long
			return false
		}
	}
	return x.p.Racy || len(s.r.Findings) < s.o.Findings
}

// key is alike for findings that are.
func (f *Finding) key() string {
	k := string(f.Kind)
	for _, a := range []*Access{f.A, f.B} {
		if a != nil {
			k += fmt.Sprintf(" %s:%d", a.File, a.Line)
		}
	}
	return k
}

func (s *search) random(pct bool) {
	r := newRandomly(pct)
	s.x.choose = r
	s.r.Why = "executions were chosen at random"
	for i := uint64(0); i < s.o.Executions && !s.done(); i++ {
		r.seed = mix(s.o.Seed + i*0x9e3779b97f4a7c15)
		s.x.run()
		if !s.one(func() string { return r.token() }) {
			return
		}
	}
}

func (s *search) keyed(token string) string {
	if s.x.p.Key == "" {
		return token
	}
	return s.x.p.Key + "-" + token
}

func (r *randomly) token() string {
	if r.changes < 0 {
		return fmt.Sprintf("r:%x", r.seed)
	}
	return fmt.Sprintf("p:%x:%x", r.seed, r.length)
}

// mix spreads a seed over all bits.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (s *search) all() {
	d := &systematically{}
	s.x.choose = d
	s.r.Exhaustive = true
	for tries := uint64(0); ; tries++ {
		if tries >= 4*s.o.Executions || s.r.Executions >= s.o.Executions || s.done() {
			s.incomplete(fmt.Sprintf("stopped after %d executions", s.r.Executions))
			return
		}
		s.x.run()
		if !s.one(d.token) {
			s.incomplete("stopped at a finding")
			return
		}
		if !d.advance() {
			return
		}
	}
}

func (s *search) replay(token string) error {
	s.r.Why = "one execution was replayed"
	misfit := func(format string, args ...any) error {
		return fmt.Errorf("the token does not fit: %s: give the token of a finding in what is checked here, unchanged", fmt.Sprintf(format, args...))
	}
	if key := s.x.p.Key; key != "" {
		own, rest, ok := strings.Cut(token, "-")
		if !ok || own != key {
			return misfit("those of this kernel, spec and params begin with %s-", key)
		}
		token = rest
	}
	kind, rest, _ := strings.Cut(token, ":")
	switch kind {
	case "x":
		path, err := parsePath(token)
		if err != nil {
			return misfit("%v", err)
		}
		d := &systematically{script: path}
		s.x.choose = d
		s.x.run()
		s.one(d.token)
		switch {
		case s.x.ctx.Err() != nil:
		case d.misfit > 0:
			return misfit("its part %d is no choice that there is", d.misfit)
		case d.at < len(path):
			return misfit("it has %d parts, and the execution that it leads to %d choices", len(path), d.at)
		case s.x.pruned:
			return misfit("it leads to no execution")
		}
		return nil
	case "r", "p":
		r := newRandomly(kind == "p")
		first, second, two := strings.Cut(rest, ":")
		var err, err2 error
		r.seed, err = strconv.ParseUint(first, 16, 64)
		if kind == "p" {
			r.length, err2 = strconv.ParseUint(second, 16, 64)
			r.fixed = true
		}
		if err != nil || err2 != nil || two != (kind == "p") || r.fixed && r.length == 0 {
			return misfit("%q is neither r:SEED nor p:SEED:LENGTH, in hexadecimal", token)
		}
		s.x.choose = r
		s.x.run()
		s.one(r.token)
		if s.x.pruned && s.x.ctx.Err() == nil {
			return misfit("it leads to no execution")
		}
		return nil
	}
	return misfit("%q begins with none of x, r and p", token)
}

// shorten looks for executions that show the same findings after fewer operations.
func (s *search) shorten() {
	const tries = 100
	kept, ops, evicted, all := s.r.Findings, s.x.ops, s.x.evicted, s.x.all
	if !slices.ContainsFunc(kept, func(f Finding) bool { return f.Kind != Endless }) {
		return
	}
	r, ok := s.x.choose.(*randomly)
	if !ok {
		return
	}
	for i := uint64(1); i <= tries && !s.done() && s.x.all-all < shortenSteps; i++ {
		r.seed = mix(s.o.Seed - i*0x9e3779b97f4a7c15)
		s.x.run()
		for k := range s.x.found {
			f := &s.x.found[k]
			for j := range kept {
				if f.Kind != Endless && kept[j].key() == f.key() && len(f.History) < len(kept[j].History) {
					f.Token = s.keyed(r.token())
					kept[j] = *f
				}
			}
		}
	}
	s.x.ops, s.x.evicted = ops, evicted
}

// trials are the searches that must find nothing in a variant before it is named, those that refute it soonest first. Those at
// random have seeds of their own: that the executions which showed the finding have changed says little.
func (s *search) trials() []Options {
	o := Options{Steps: s.o.Steps, MaxWrites: s.o.MaxWrites, NoFix: true}
	var list []Options
	add := func(of Strategy, executions uint64) {
		o.Strategy, o.Executions, o.Seed = of, executions, mix(s.o.Seed+uint64(len(list)+1)*0xd1342543de82ef95)
		list = append(list, o)
	}
	add(Random, 30)
	add(PCT, 30)
	own := s.o
	own.NoFix, own.Replay, own.Progress, own.Cover, own.Findings = true, "", nil, false, 1
	own.Executions = min(s.o.Executions, 2000)
	list = append(list, own)
	add(Random, 400)
	add(PCT, 400)
	add(Exhaustive, 400)
	return list
}

// mends is whether the variant shows nothing in all trials. known: it is certain that it does, or they were enough to say so.
func (s *search) mends(v *Variant, trials []Options) (good, known bool) {
	executions, spent := uint64(0), false
	budget := uint64(fixSteps)
	for _, o := range trials {
		o.budget = budget
		r, err := Check(s.x.ctx, v.Program, o)
		switch {
		case err != nil:
			return false, false
		case len(r.Findings) > 0:
			return false, true
		case r.Exhaustive && r.Executions > 0:
			return true, true
		}
		executions += r.Executions
		budget -= min(r.steps, budget)
		if spent = r.spent || budget == 0; spent {
			break
		}
	}
	good = executions > 0 && (!spent || executions >= fixLeast)
	return good, good
}

// fix looks for one instruction that, made stronger, makes the finding go away.
func (s *search) fix(f *Finding) {
	if f.Kind == Endless { // no order of accesses ends a kernel, and each try would be as long
		return
	}
	variants := s.x.p.Stronger(f)
	trials := s.trials()
	open := 0
	for i := range variants {
		good, known := s.mends(&variants[i], trials)
		switch {
		case s.x.ctx.Err() != nil:
			return
		case good:
			f.Fix = variants[i].What
			return
		case !known:
			open++
		}
	}
	switch n := len(variants); {
	case open > 0:
		f.Unfixed = fmt.Sprintf("no single stronger instruction, of %d tried on this finding's lines, is known to make it go away: %d were not tried to the end", n, open)
	case n > 0:
		f.Unfixed = fmt.Sprintf("no single stronger instruction, of %d tried on this finding's lines, makes it go away", n)
	}
}
