package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fenceline/fenceline/flags/check"
)

// litmusReport is what `demo check --litmus --json` prints.
type litmusReport struct {
	Version int         `json:"version"`
	Seed    uint64      `json:"seed"`
	Tests   []litmusRow `json:"tests"`
	// Interrupted: not all was looked at, and OK is no verdict.
	Interrupted bool `json:"interrupted,omitempty"`
	OK          bool `json:"ok"`

	total int // tests that there are
}

// litmusRow is what became of one test.
type litmusRow struct {
	File       string `json:"file"`
	Name       string `json:"name"`
	Verdict    string `json:"verdict"` // "ok", or what differs
	Strategy   string `json:"strategy"`
	Executions uint64 `json:"executions"`
	Exhaustive bool   `json:"exhaustive"`
	Why        string `json:"why,omitempty"`
	// Interrupted: Verdict is on what was found until then, and OK none.
	Interrupted bool              `json:"interrupted,omitempty"`
	Outcomes    map[string]uint64 `json:"outcomes,omitempty"`
	Permitted   []check.Permitted `json:"permitted,omitempty"` // what became of permitted lines
	OK          bool              `json:"ok"`

	disagrees bool
}

// litmusFiles are the files that --litmus names.
func litmusFiles(path string) ([]string, error) {
	refuse := func(err error) ([]string, error) { return nil, &usageError{Flag: "--litmus", Err: err} }
	st, err := os.Stat(path)
	if err != nil {
		return refuse(fmt.Errorf("%w: name a file or a folder of .litmus files", err))
	}
	if !st.IsDir() {
		return []string{path}, nil
	}
	files, err := filepath.Glob(filepath.Join(path, "*.litmus"))
	if err != nil {
		return refuse(err)
	}
	if len(files) == 0 {
		return refuse(fmt.Errorf("%s holds no .litmus file: name another folder, or a file", path))
	}
	return files, nil
}

// runLitmus runs every test: all executions, unless a number or a seed asks for random ones.
func (c *checker) runLitmus() error {
	files, err := litmusFiles(c.litmus)
	if err != nil {
		return err
	}
	type one struct {
		file string
		test *check.Litmus
	}
	var tests []one
	for _, f := range files {
		text, err := readFor("--litmus", f)
		if err != nil {
			return err
		}
		list, err := check.ParseLitmus(f, text)
		if err != nil {
			return &usageError{Flag: "--litmus", Err: err}
		}
		if len(list) == 0 {
			return usagef("--litmus", f, "there is no test in it: begin one with `test: NAME`")
		}
		for _, t := range list {
			if _, err := t.Program(); err != nil {
				return &usageError{Flag: "--litmus", Err: err}
			}
			tests = append(tests, one{f, t})
		}
	}
	o := check.Options{Seed: c.seed, Executions: c.executions, Strategy: check.Exhaustive}
	if c.given("seed") && !c.exhaustive {
		o.Strategy = check.Random
	}
	rep := litmusReport{Version: reportVersion, Seed: c.seed, Tests: []litmusRow{}, OK: true, total: len(tests)}
	progress := newCheckProgress(c.stderr, len(tests))
	defer progress.close()
	if !c.opt.json {
		fmt.Fprintf(c.stdout, "%-64s %-11s %11s %8s  %s\n", "test", "strategy", "executions", "covered", "verdict")
	}
	for i, t := range tests {
		v, r, err := t.test.Run(c.ctx, o)
		if rep.Interrupted = c.ctx.Err() != nil; rep.Interrupted && (r == nil || r.Executions == 0) {
			break
		}
		if err != nil && !rep.Interrupted {
			return &usageError{Flag: "--litmus", Err: fmt.Errorf("%s:%d: %w", t.file, t.test.Line, err)}
		}
		row := litmusRow{File: t.file, Name: t.test.Name, Verdict: v.String(), Strategy: strategyName(o.Strategy), Executions: r.Executions,
			Exhaustive: r.Exhaustive, Why: r.Why, Outcomes: r.Outcomes, Permitted: v.Permitted, OK: v.OK()}
		if !r.Exhaustive && v.Sound() { // what was not reached may yet be
			row.OK = v.Race == ""
		}
		if v.Unseen() && row.Exhaustive { // the search has come to its end, and the model has more
			row.Exhaustive, row.Why = false, "a permitted outcome was not seen, and the axioms allow it"
		}
		if rep.Interrupted {
			row.Interrupted, row.Exhaustive, row.Why, row.disagrees = true, false, "interrupted", !v.Sound() || v.Race != ""
			if row.OK = false; !row.disagrees {
				row.Verdict, row.Permitted = "ok so far: INTERRUPTED", nil
			}
		} else {
			row.disagrees = !row.OK
		}
		rep.OK = rep.OK && row.OK
		rep.Tests = append(rep.Tests, row)
		progress.hide()
		if !c.opt.json {
			covered := "some"
			if row.Exhaustive {
				covered = "all"
			}
			fmt.Fprintf(c.stdout, "%-64s %-11s %11d %8s  %s\n", row.Name, row.Strategy, row.Executions, covered, row.Verdict+permittedNote(row.Permitted))
		}
		progress.done(i + 1)
		if rep.Interrupted {
			break
		}
	}
	rep.OK = rep.OK && !rep.Interrupted
	progress.close()
	return c.litmusVerdict(&rep)
}

// permittedNote says of permitted lines how they were judged. What the search has shown is no news.
func permittedNote(list []check.Permitted) string {
	note := ""
	for _, p := range list {
		switch p.By {
		case check.ByAxioms:
			note += fmt.Sprintf("; %s: not seen, and the axioms allow it", p.Line)
		case check.Unjudged:
			note += fmt.Sprintf("; %s: NOT JUDGED: not seen, and %s", p.Line, p.Why)
		}
	}
	return note
}

func (c *checker) litmusVerdict(rep *litmusReport) error {
	if c.opt.json {
		if err := writeJSON(c.stdout, rep); err != nil {
			return err
		}
	} else {
		var bad []string
		cut, permitted := 0, map[check.Permitter]uint64{}
		executions := uint64(0)
		for _, t := range rep.Tests {
			executions += t.Executions
			if t.disagrees {
				bad = append(bad, t.Name)
			}
			if !t.Exhaustive {
				cut++
			}
			for _, p := range t.Permitted {
				permitted[p.By]++
			}
		}
		fmt.Fprintln(c.stdout)
		n := uint64(0)
		for _, k := range permitted {
			n += k
		}
		if n > 0 {
			fmt.Fprintf(c.stdout, "%s: %d seen, %d not seen but allowed by the axioms, %d forbidden by them, %d not judged\n", plural(n, "permitted line", "permitted lines"),
				permitted[check.BySearch], permitted[check.ByAxioms], permitted[check.Denied], permitted[check.Unjudged])
		}
		switch {
		case rep.Interrupted:
			fmt.Fprintf(c.stdout, "INTERRUPTED after %s in %d of %s, of which %d disagree: not exhaustive, and no verdict\n", plural(executions, "execution", "executions"),
				len(rep.Tests), plural(uint64(rep.total), "test", "tests"), len(bad))
		case len(bad) > 0:
			fmt.Fprintf(c.stdout, "FAIL: %d of %d tests disagree: %s\n", len(bad), len(rep.Tests), strings.Join(bad, "; "))
		case cut > 0:
			fmt.Fprintf(c.stdout, "PASS: %d tests agree; %d of them not exhaustively\n", len(rep.Tests), cut)
		default:
			fmt.Fprintf(c.stdout, "PASS: %d tests agree, every class of equivalent executions covered\n", len(rep.Tests))
		}
	}
	switch {
	case rep.Interrupted:
		return errInterrupted
	case !rep.OK:
		return errReported
	}
	return nil
}
