package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/fenceline/fenceline/flags/check"
)

// checkReport is what `demo check --json` prints.
type checkReport struct {
	Version int        `json:"version"`
	Seed    uint64     `json:"seed"`
	Cases   []checkRow `json:"cases"`
	// Interrupted: not all was looked at, and OK is no verdict.
	Interrupted bool `json:"interrupted,omitempty"`
	OK          bool `json:"ok"` // nothing was found, but for the faults that were to be found
}

// checkRow is what was found of one case.
type checkRow struct {
	Name          string         `json:"name"`
	Strategies    []string       `json:"strategies"`
	Executions    uint64         `json:"executions"`
	Operations    uint64         `json:"operations"`
	Exhaustive    bool           `json:"exhaustive"`
	Why           string         `json:"why,omitempty"` // why not exhaustive
	Interrupted   bool           `json:"interrupted,omitempty"`
	Unasserted    string         `json:"unasserted,omitempty"` // why nothing is known of results: the spec compares none
	Evictions     uint64         `json:"evictions,omitempty"`
	MS            float64        `json:"ms"`
	FaultExpected bool           `json:"fault_expected,omitempty"`
	Findings      []checkFinding `json:"findings"`
}

// checkFinding is a check.Finding for JSON.
type checkFinding struct {
	Kind    check.Kind    `json:"kind"`
	Message string        `json:"message"`
	First   *checkAccess  `json:"first,omitempty"`
	Second  *checkAccess  `json:"second,omitempty"`
	Missing string        `json:"missing,omitempty"`
	Fix     string        `json:"fix,omitempty"`
	Unfixed string        `json:"unfixed,omitempty"` // that each was tried and none is a fix
	Replay  string        `json:"replay,omitempty"`
	Waiting []checkAccess `json:"waiting,omitempty"`
	History []checkAccess `json:"history,omitempty"`
	Traced  bool          `json:"traced,omitempty"` // second is the write of a wrong result, and history what its thread read ahead of it
	Left    int           `json:"left,omitempty"`   // and how many more reads there were

	text, brief string
}

// checkAccess is a check.Access for JSON.
type checkAccess struct {
	Task       string    `json:"task,omitempty"`
	Device     int       `json:"device"` // -1: the host
	Block      [3]uint32 `json:"block"`
	Thread     [3]uint32 `json:"thread"`
	Text       string    `json:"instruction,omitempty"`
	File       string    `json:"file,omitempty"`
	Line       int       `json:"line,omitempty"`
	Source     string    `json:"source,omitempty"`
	SourceLine int       `json:"source_line,omitempty"`
	Calls      []string  `json:"calls,omitempty"` // through which the line was inlined, the outermost first
	Buffer     string    `json:"buffer,omitempty"`
	Offset     int       `json:"offset"`
	Size       int       `json:"size"`
	Value      *uint64   `json:"value,omitempty"` // of the size bytes, where it is known; of 16 the first 8
	High       uint64    `json:"high,omitempty"`  // and the other 8
	Write      bool      `json:"write"`
	Strong     bool      `json:"strong"`
	Scope      string    `json:"scope,omitempty"`

	ReadFrom *checkAccess  `json:"read_from,omitempty"` // of a read that a wrong result came from: the write that it read
	Newer    *checkAccess  `json:"newer,omitempty"`     // and the newest that was there, if it read an older one
	Writes   []checkAccess `json:"writes,omitempty"`    // of what a thread polls in a deadlock: the latest
	Earlier  int           `json:"earlier,omitempty"`   // and how many came before those
}

func accessOf(a *check.Access) *checkAccess {
	if a == nil {
		return nil
	}
	calls := slices.Clone(a.Calls)
	slices.Reverse(calls)
	var value *uint64
	if a.Known {
		value = new(a.Value)
	}
	return &checkAccess{a.Task, a.Device, a.Block, a.Thread, a.Text, a.File, a.Line, a.Source, a.SourceLine, calls, a.Buffer,
		a.Offset, a.Size, value, a.High, a.Write, a.Strong, a.Scope, accessOf(a.ReadFrom), accessOf(a.Newer), accessesOf(a.Writes), a.Earlier}
}

func accessesOf(list []check.Access) []checkAccess {
	var out []checkAccess
	for i := range list {
		out = append(out, *accessOf(&list[i]))
	}
	return out
}

// historyShown is how many of a finding's strong operations the text shows, the latest.
const historyShown = 12

// waitingShown is how many waiting threads the text shows.
const waitingShown = 8

func findingOf(f *check.Finding) checkFinding {
	short := *f
	cut := ""
	if n := len(short.History) - historyShown; n > 0 && !f.Polls() {
		short.History = short.History[n:]
		cut += fmt.Sprintf("\n  (%s before the first one shown)", plural(uint64(n), "strong operation", "strong operations"))
	}
	if n := len(short.Waiting) - waitingShown; n > 0 {
		short.Waiting = short.Waiting[:waitingShown]
		cut += fmt.Sprintf("\n  (and %s waiting)", plural(uint64(n), "more thread", "more threads"))
	}
	brief := short
	if !f.Traced {
		brief.History = nil
	}
	return checkFinding{Kind: f.Kind, Message: f.Message, First: accessOf(f.A), Second: accessOf(f.B), Missing: f.Missing, Fix: f.Fix, Unfixed: f.Unfixed,
		Replay: f.Token, Waiting: accessesOf(f.Waiting), History: accessesOf(f.History), Traced: f.Traced, Left: f.Left, text: short.String() + cut, brief: brief.String()}
}

// add puts a search's result in the row.
func (r *checkRow) add(s check.Strategy, found *check.Result) {
	r.Strategies = append(r.Strategies, strategyName(s))
	r.Executions += found.Executions
	r.Operations += found.Operations
	r.Evictions += found.Evictions
	r.Exhaustive = r.Exhaustive || found.Exhaustive
	if r.Why = found.Why; r.Exhaustive {
		r.Why = ""
	}
	for i := range found.Findings {
		r.Findings = append(r.Findings, findingOf(&found.Findings[i]))
	}
}

// right is whether what was to be found was found, and nothing else.
func (r *checkRow) right() bool { return r.FaultExpected == (len(r.Findings) > 0) }

// checkOutput prints rows as they come.
type checkOutput struct {
	c        *checker
	rep      *checkReport
	progress *checkProgress
	headed   bool
	mu       sync.Mutex
}

func (c *checker) newCheckOutput(rep *checkReport, total int) *checkOutput {
	return &checkOutput{c: c, rep: rep, progress: newCheckProgress(c.stderr, total)}
}

func (o *checkOutput) close() { o.progress.close() }

// executions is told how far a case has come. With one case alone there is something to show.
func (o *checkOutput) executions(uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.progress.done(len(o.rep.Cases))
}

const (
	checkHead = "%-78s %-22s %11s %12s %9s  %s\n"
	checkLine = "%-78s %-22s %11d %12d %9s  %s\n"
)

// row prints a case.
func (o *checkOutput) row(r *checkRow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rep.Cases = append(o.rep.Cases, *r)
	if o.c.opt.json {
		o.progress.done(len(o.rep.Cases))
		return
	}
	o.progress.hide()
	w := o.c.stdout
	if !o.headed {
		o.headed = true
		fmt.Fprintf(w, checkHead, "case", "strategy", "executions", "operations", "covered", "found")
	}
	covered, found := "some", "nothing"
	if r.Exhaustive {
		covered = "all"
	}
	if len(r.Findings) > 0 {
		found = string(r.Findings[0].Kind)
		if n := len(r.Findings); n > 1 {
			found += fmt.Sprintf(" and %d more", n-1)
		}
	}
	switch {
	case r.Interrupted && len(r.Findings) == 0:
		found += " so far: INTERRUPTED"
	case r.FaultExpected && len(r.Findings) > 0:
		found += ", as it must be"
	case r.FaultExpected:
		found += ": THE FAULT WAS MISSED"
	}
	if r.Unasserted != "" {
		found += "; NO RESULT WAS COMPARED"
	}
	fmt.Fprintf(w, checkLine, r.Name, strings.Join(r.Strategies, ","), r.Executions, r.Operations, covered, found)
	if r.Unasserted != "" {
		fmt.Fprintln(w, "  "+r.Unasserted)
	}
	for _, f := range r.Findings {
		text := f.text
		if r.FaultExpected { // a demonstration, which the history would bury
			text = f.brief
		}
		fmt.Fprintln(w, "  "+strings.ReplaceAll(text, "\n", "\n  "))
	}
	o.progress.done(len(o.rep.Cases))
}

// finish draws the conclusion.
func (o *checkOutput) finish() error {
	o.progress.close()
	o.rep.OK = len(o.rep.Cases) > 0
	var executions, wrong, faults uint64
	var covered uint64
	reasons, counts := []string{}, map[string]uint64{} // by the words, without their numbers
	words := func(why string) string { return strings.Trim(strings.Map(notDigit, why), " ") }
	for i := range o.rep.Cases {
		r := &o.rep.Cases[i]
		executions += r.Executions
		switch {
		case r.Exhaustive:
			covered++
		default:
			if counts[words(r.Why)] == 0 {
				reasons = append(reasons, r.Why)
			}
			counts[words(r.Why)]++
		}
		if r.FaultExpected {
			faults++
		}
		if !r.right() {
			o.rep.OK = false
			wrong++
		}
	}
	if o.c.opt.json {
		if err := writeJSON(o.c.stdout, o.rep); err != nil {
			return err
		}
	} else {
		for i, why := range reasons {
			reasons[i] = fmt.Sprintf("%s (%d)", why, counts[words(why)])
		}
		o.verdict(executions, wrong, faults, covered, strings.Join(reasons, "; "))
	}
	if !o.rep.OK {
		return errReported
	}
	return nil
}

// interrupted says what was done until then, in the place of a verdict.
func (o *checkOutput) interrupted(total int) error {
	o.progress.close()
	o.rep.Interrupted, o.rep.OK = true, false
	if o.c.opt.json {
		if err := writeJSON(o.c.stdout, o.rep); err != nil {
			return err
		}
		return errInterrupted
	}
	var executions uint64
	found := 0
	for i := range o.rep.Cases {
		executions += o.rep.Cases[i].Executions
		if len(o.rep.Cases[i].Findings) > 0 {
			found++
		}
	}
	w := o.c.stdout
	if len(o.rep.Cases) > 0 {
		fmt.Fprintln(w)
	}
	if total == 0 {
		fmt.Fprintln(w, "INTERRUPTED before any execution: this is no verdict")
		return errInterrupted
	}
	fmt.Fprintf(w, "INTERRUPTED after %s in %d of %s, with findings in %d of them: not exhaustive, and no verdict\n", plural(executions, "execution", "executions"),
		len(o.rep.Cases), plural(uint64(total), "case", "cases"), found)
	return errInterrupted
}

func notDigit(r rune) rune {
	if unicode.IsDigit(r) {
		return -1
	}
	return r
}

func (o *checkOutput) verdict(executions, wrong, faults, covered uint64, why string) {
	w := o.c.stdout
	n := uint64(len(o.rep.Cases))
	fmt.Fprintln(w)
	violation := "violation"
	if slices.ContainsFunc(o.rep.Cases, func(r checkRow) bool { return r.Unasserted != "" }) {
		violation = "race, deadlock or fault (NO RESULT WAS COMPARED: the spec expects nothing)"
	}
	switch {
	case wrong > 0 && faults > 0:
		fmt.Fprintf(w, "FAIL: %d of %s went otherwise than they must\n", wrong, plural(n, "case", "cases"))
		return
	case wrong > 0:
		fmt.Fprintf(w, "FAIL: violations in %d of %s\n", wrong, plural(n, "case", "cases"))
		return
	case faults > 0:
		fmt.Fprintf(w, "PASS: %s found, nothing found in %s\n", plural(faults, "fault", "faults"), plural(n-faults, "right kernel", "right kernels"))
		return
	case covered == n:
		fmt.Fprintf(w, "PASS: no %s in any execution of %s (%s run, every class of equivalent ones covered)\n", violation, plural(n, "case", "cases"), plural(executions, "execution", "executions"))
		return
	}
	fmt.Fprintf(w, "PASS: no %s in the %s of %s that were run. All of %s are covered; the others are not exhaustive: %s\n",
		violation, plural(executions, "execution", "executions"), plural(n, "case", "cases"), plural(covered, "case", "cases"), why)
}
