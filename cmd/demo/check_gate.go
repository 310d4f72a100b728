package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/fenceline/fenceline/flags/check"
	"github.com/fenceline/fenceline/kernels"
)

// gateReport is what `demo check --gate --json` prints.
type gateReport struct {
	Version  int       `json:"version"`
	Seed     uint64    `json:"seed"`
	Mutants  []gateRow `json:"mutants"`
	Executed int       `json:"executed"` // of the mutants, those that some case runs
	Good     int       `json:"good"`     // of these, those that were caught or are known to be redundant
	// Interrupted: not all was looked at, and OK is no verdict.
	Interrupted bool `json:"interrupted,omitempty"`
	OK          bool `json:"ok"`

	total int // mutants that there are, when interrupted; 0: not known yet
}

// gateRow is what became of one mutant.
type gateRow struct {
	Kernel      string     `json:"kernel"`
	File        string     `json:"file"`
	Line        int        `json:"line"`
	Source      string     `json:"source,omitempty"`
	SourceLine  int        `json:"source_line,omitempty"`
	Calls       []string   `json:"calls,omitempty"`
	Instruction string     `json:"instruction"`
	Mutation    string     `json:"mutation"`
	Fate        check.Fate `json:"fate"`
	Case        string     `json:"case,omitempty"`
	Kind        check.Kind `json:"kind,omitempty"`
	Replay      string     `json:"replay,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	Executions  uint64     `json:"executions"`
}

// runGate weakens the shipped kernels.
func (c *checker) runGate() error {
	all, err := c.chosen(kernels.GateCases())
	if err != nil {
		return err
	}
	type build struct {
		source string
		sm     int
	}
	parse := func(k *kernels.Case) (check.GateCase, error) {
		s, err := shippedSource(k)
		if err != nil {
			return check.GateCase{}, err
		}
		spec, err := check.ParseSpec(s.specFile, string(s.spec))
		return check.GateCase{Name: s.name, Spec: spec, File: s.ptxFile, PTX: s.ptx, Set: s.set, Lines: kernels.Lines, Calls: kernels.Calls, Entries: s.entries}, err
	}
	var cases, others []check.GateCase // others are those of the builds that are weakened, which --only leaves out
	weakened, taken := map[build]bool{}, map[string]bool{}
	for i := range all {
		if c.ctx.Err() != nil {
			return c.printGate(&gateReport{Interrupted: true}, nil, false)
		}
		one, err := parse(&all[i])
		if err != nil {
			return err
		}
		cases = append(cases, one)
		weakened[build{all[i].Source, all[i].SM}], taken[all[i].Name()] = true, true
	}
	for _, k := range kernels.GateCases() {
		if !weakened[build{k.Source, k.SM}] || taken[k.Name()] {
			continue
		}
		one, err := parse(&k)
		if err != nil {
			return err
		}
		others = append(others, one)
	}
	text, err := kernels.Redundant()
	if err != nil {
		return err
	}
	redundant, err := check.ParseRedundancies("redundant.txt", string(text))
	if err != nil {
		return err
	}
	var progress *checkProgress
	var mu sync.Mutex
	mutants := 0
	defer func() {
		if progress != nil {
			progress.close()
		}
	}()
	found, err := check.Gate(c.ctx, cases, check.GateOptions{Executions: c.executions, Seed: c.seed, Redundant: redundant, Others: others, SourceText: sourceText,
		Progress: func(done, total int) {
			mu.Lock()
			defer mu.Unlock()
			mutants = total
			if progress == nil {
				progress = newCheckProgress(c.stderr, total)
			}
			progress.done(done)
		}})
	if err != nil && c.ctx.Err() == nil {
		return err
	}
	if progress != nil {
		progress.close()
	}
	if err != nil {
		return c.printGate(&gateReport{Interrupted: true, total: mutants}, found, false)
	}
	return c.printGate(&gateReport{}, found, len(others) == 0)
}

// sourceText is a line of a shipped source.
func sourceText(source string, line int) string {
	text, err := kernels.Source(source)
	rows := strings.Split(string(text), "\n")
	if err != nil || line < 1 || line > len(rows) {
		return ""
	}
	return rows[line-1]
}

// printGate: complete says that every case of these builds was asked for, so that a mutant which none runs is a gap.
func (c *checker) printGate(rep *gateReport, found []check.Judged, complete bool) error {
	check.SortJudged(found)
	rep.Version, rep.Seed, rep.Mutants = reportVersion, c.seed, []gateRow{}
	rep.Good, rep.Executed = check.Share(found)
	counts := map[check.Fate]int{}
	for i := range found {
		j := &found[i]
		counts[j.Fate]++
		rep.Mutants = append(rep.Mutants, gateRow{j.Kernel, j.File, j.Line, j.Source, j.SourceLine, j.Calls, j.Text, j.What, j.Fate, j.Case, j.Kind, j.Token, j.Reason, j.Executions})
	}
	rep.OK = !rep.Interrupted && rep.Executed > 0 && rep.Good == rep.Executed && !(complete && counts[check.NotExecuted] > 0)
	if c.opt.json {
		if err := writeJSON(c.stdout, rep); err != nil {
			return err
		}
	} else {
		c.gateTable(rep, counts)
	}
	switch {
	case rep.Interrupted:
		return errInterrupted
	case !rep.OK:
		return errReported
	}
	return nil
}

func (c *checker) gateTable(rep *gateReport, counts map[check.Fate]int) {
	w := c.stdout
	if rep.Interrupted && len(rep.Mutants) == 0 {
		fmt.Fprintln(w, "INTERRUPTED before any mutant was judged: this is no verdict")
		return
	}
	fmt.Fprintf(w, "%-12s %-28s %-60s %-48s %-24s %s\n", "fate", "PTX", "source", "instruction", "weakened to", "by")
	for _, r := range rep.Mutants {
		source := ""
		if r.SourceLine > 0 {
			source = calledFrom(r.Calls) + fmt.Sprintf("%s:%d", r.Source, r.SourceLine)
		}
		by := r.Reason
		if r.Fate == check.Caught {
			by = fmt.Sprintf("%s: %s", r.Kind, r.Case)
		}
		fmt.Fprintf(w, "%-12s %-28s %-60s %-48s %-24s %s\n", r.Fate, fmt.Sprintf("%s:%d", r.File, r.Line), source, r.Instruction, r.Mutation, by)
	}
	fmt.Fprintf(w, "\n%d mutants: %d caught, %d known to be redundant, %d NOT CAUGHT, %d in code that no case runs.\n", len(rep.Mutants),
		counts[check.Caught], counts[check.Harmless], counts[check.NotCaught], counts[check.NotExecuted])
	verdict := "PASS"
	switch {
	case rep.Interrupted:
		fmt.Fprintf(w, "INTERRUPTED after %d of %d mutants: not exhaustive, and no verdict\n", len(rep.Mutants), max(rep.total, len(rep.Mutants)))
		return
	case !rep.OK && rep.Good == rep.Executed && rep.Executed > 0:
		fmt.Fprintln(w, "FAIL: no case runs the instructions above that say so: add one to kernels/specs.go")
		return
	case !rep.OK:
		verdict = "FAIL"
	}
	share := 0.0
	if rep.Executed > 0 {
		share = 100 * float64(rep.Good) / float64(rep.Executed)
	}
	fmt.Fprintf(w, "%s: %d of the %d that run were caught or are known to be redundant (%.1f %%)\n", verdict, rep.Good, rep.Executed, share)
}
