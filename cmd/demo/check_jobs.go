package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/flags/check"
	samples "github.com/fenceline/fenceline/flags/check/examples"
	"github.com/fenceline/fenceline/internal/plainfile"
	"github.com/fenceline/fenceline/internal/ptx"
	"github.com/fenceline/fenceline/kernels"
)

// checkJob is one program to check.
type checkJob struct {
	name    string
	program *check.Program
	fault   bool // something must be found
}

// checkSource is what a program is made of.
type checkSource struct {
	name, ptxFile, specFile string
	ptx, spec               []byte
	entry                   string   // that is launched instead of the one that the spec names
	entries                 []string // that the gate weakens
	set                     map[string]string
	lines                   func(string, int) (string, int, bool)
	calls                   func(string, int) []string
}

// job builds the program.
func (s *checkSource) job(module *ptx.Module) (*checkJob, error) {
	spec, err := check.ParseSpec(s.specFile, string(s.spec))
	if err == nil && s.entry != "" {
		spec, err = spec.Launching(s.entry)
	}
	if err != nil {
		return nil, err
	}
	p, err := spec.Program(module, s.set)
	if err != nil {
		return nil, err
	}
	p.Lines, p.Calls = s.lines, s.calls
	p.Stronger = spec.Fixer(s.ptxFile, s.ptx, s.set)
	return &checkJob{name: s.name, program: p}, nil
}

// ownJobs is the user's kernel.
func (c *checker) ownJobs() ([]*checkJob, error) {
	set, err := parseSet(c.set)
	if err != nil {
		return nil, err
	}
	s := checkSource{name: filepath.Base(c.spec), ptxFile: c.ptx, specFile: c.spec, entry: c.entry, set: set}
	for _, v := range c.set {
		s.name += " " + v
	}
	if s.ptx, err = readFor("--ptx", c.ptx); err != nil {
		return nil, err
	}
	if s.spec, err = readFor("--spec", c.spec); err != nil {
		return nil, err
	}
	module, err := ptx.Parse(c.ptx, s.ptx)
	if err != nil {
		return nil, &usageError{Flag: "--ptx", Err: notUnderstood(err)}
	}
	s.lines, s.calls = check.LinesOf(c.ptx, s.ptx)
	spec, err := check.ParseSpec(s.specFile, string(s.spec))
	if err == nil && c.entry != "" {
		if _, ok := module.Kernel(c.entry); !ok {
			return nil, usagef("--entry", c.entry, "%s has no kernel of this name: use %s", c.ptx, strings.Join(entriesOf(module), " or "))
		}
		if _, err := spec.Launching(c.entry); err != nil {
			return nil, &usageError{Flag: "--entry", Value: c.entry, Err: err}
		}
	}
	if err != nil {
		return nil, &usageError{Flag: "--spec", Err: err}
	}
	job, err := s.job(module)
	var wrong *check.SpecError
	if errors.As(err, &wrong) {
		return nil, &usageError{Flag: "--spec", Err: err}
	}
	if err != nil {
		return nil, err
	}
	return []*checkJob{job}, nil
}

// notUnderstood says what to do about PTX that was refused.
func notUnderstood(err error) error {
	const what = "%w: PTX that is not understood is not checked"
	var e *ptx.Error
	if errors.As(err, &e) && (strings.Contains(e.Msg, "not supported") || strings.Contains(e.Msg, "unknown instruction") || strings.Contains(e.Msg, "unknown modifier")) {
		return fmt.Errorf(what+": leave the instruction out of a copy of the kernel and check that, or check the part without it", err)
	}
	return fmt.Errorf(what+": give PTX as compilers write it", err)
}

func entriesOf(m *ptx.Module) []string {
	var names []string
	for i := range m.Info.Entries {
		names = append(names, m.Info.Entries[i].Name)
	}
	return names
}

// mostText is far more than a file for a flag takes, such as the PTX of a kernel.
const mostText = 64 << 20

func readFor(flag, path string) ([]byte, error) {
	text, err := plainfile.Read(path, mostText)
	switch {
	case errors.As(err, new(*plainfile.Error)): // which ends with the remedy
		return nil, &usageError{Flag: flag, Err: err}
	case err != nil:
		return nil, &usageError{Flag: flag, Err: fmt.Errorf("%w: name a file that can be read", err)}
	}
	return text, nil
}

// shippedSource is what a case of the shipped kernels is made of.
func shippedSource(k *kernels.Case) (*checkSource, error) {
	mod, err := k.Module()
	if err != nil {
		return nil, err
	}
	s := &checkSource{name: k.Name(), ptxFile: mod.File, specFile: k.Spec + ".spec", set: k.Params(), lines: kernels.Lines, calls: callsInKernel}
	if s.ptx, err = mod.Text(); err != nil {
		return nil, err
	}
	for i := range mod.Entries {
		s.entries = append(s.entries, mod.Entries[i].Name)
	}
	s.spec, err = k.SpecText()
	return s, err
}

const callMark = " › " // between a call and what it calls

// calledFrom are the calls that led to a line, the outermost first, up to the kernel's own source.
func calledFrom(calls []string) string {
	text := ""
	for _, c := range calls {
		text = c + callMark + text
		if strings.Contains(c, ".cu:") {
			break
		}
	}
	return text
}

// callsInKernel are kernels.Calls up to the kernel's own source.
func callsInKernel(file string, line int) []string {
	calls := kernels.Calls(file, line)
	if i := slices.IndexFunc(calls, func(c string) bool { return strings.Contains(c, ".cu:") }); i >= 0 {
		calls = calls[:i+1]
	}
	return calls
}

// chosen are the cases that --only names.
func (c *checker) chosen(all []kernels.Case) ([]kernels.Case, error) {
	var list []kernels.Case
	for _, k := range all {
		if strings.Contains(k.Name(), c.only) {
			list = append(list, k)
		}
	}
	if len(list) == 0 {
		return nil, usagef("--only", c.only, "no case has this in its name, such as %q", all[0].Name())
	}
	return list, nil
}

func (c *checker) shippedJobs() ([]*checkJob, error) {
	cases, err := c.chosen(kernels.Cases())
	if err != nil {
		return nil, err
	}
	for i := range cases { // a replay's case may be named in full
		if c.replay != "" && cases[i].Name() == c.only {
			cases = cases[i : i+1]
			break
		}
	}
	var jobs []*checkJob
	for i := range cases {
		if c.ctx.Err() != nil {
			return nil, errInterrupted
		}
		s, err := shippedSource(&cases[i])
		if err != nil {
			return nil, err
		}
		module, err := c.parseOnce(s.ptxFile, s.ptx)
		if err != nil {
			return nil, err
		}
		job, err := s.job(module)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// parseOnce parses a shipped module, which several cases run.
func (c *checker) parseOnce(file string, text []byte) (m *ptx.Module, err error) {
	if m = c.parsed[file]; m != nil {
		return m, nil
	}
	if m, err = ptx.Parse(file, text); err == nil {
		c.parsed[file] = m
	}
	return m, err
}

// runFaults shows that the faults among the examples are found, and nothing in the others.
func (c *checker) runFaults() error {
	var jobs []*checkJob
	for _, e := range samples.Examples() {
		s := checkSource{name: e.Name + ": " + e.About}
		var err error
		if s.ptxFile, s.ptx, err = e.PTX(); err != nil {
			return err
		}
		if s.specFile, s.spec, err = e.Spec(); err != nil {
			return err
		}
		module, err := ptx.Parse(s.ptxFile, s.ptx)
		if err != nil {
			return err
		}
		s.lines, s.calls = check.LinesOf(s.ptxFile, s.ptx)
		job, err := s.job(module)
		if err != nil {
			return err
		}
		job.fault = e.Fault
		jobs = append(jobs, job)
	}
	return c.runJobs(jobs)
}

// search runs one job's searches until one finds something. When ctx ends, the row has what was done until then.
func (c *checker) search(ctx context.Context, j *checkJob, progress func(uint64)) (row checkRow, err error) {
	row = checkRow{Name: j.name, Unasserted: j.program.Unasserted, FaultExpected: j.fault, Findings: []checkFinding{}}
	start := time.Now()
	for _, o := range c.strategies() {
		before := row.Executions
		o.Progress = func(n uint64) { progress(before + n) }
		r, err := check.Check(ctx, j.program, o)
		if err != nil && r != nil && c.ctx.Err() != nil {
			row.Interrupted = true
			row.add(o.Strategy, r)
			row.Why = "interrupted"
			return row, err
		}
		if err != nil && c.replay != "" && ctx.Err() == nil {
			err = &usageError{Flag: "--replay", Err: err}
		} else if err != nil && c.ptx != "" && ctx.Err() == nil {
			err = &usageError{Flag: "--spec", Err: err}
		}
		if err != nil {
			return row, err
		}
		row.add(o.Strategy, r)
		if c.replay != "" {
			row.Strategies = []string{"replay"}
		}
		if len(r.Findings) > 0 {
			break
		}
	}
	row.MS = float64(time.Since(start)) / float64(time.Millisecond)
	return row, nil
}

// runJobs checks all jobs, as many at a time as there are processors, and prints them in their order. When c.ctx ends, those that
// were begun are printed, as far as they came.
func (c *checker) runJobs(jobs []*checkJob) error {
	rep := &checkReport{Version: reportVersion, Seed: c.seed, Cases: []checkRow{}}
	out := c.newCheckOutput(rep, len(jobs))
	defer out.close()
	rows := make([]checkRow, len(jobs))
	ready := make([]chan struct{}, len(jobs))
	for i := range ready {
		ready[i] = make(chan struct{})
	}
	g, ctx := errgroup.WithContext(c.ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	failed := make(chan error, 1)
	go func() {
		for i := range jobs {
			g.Go(func() (err error) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if rows[i], err = c.search(ctx, jobs[i], out.executions); err == nil {
					close(ready[i])
				}
				return err
			})
		}
		failed <- g.Wait()
	}()
	for i := range jobs {
		select {
		case <-ready[i]:
		case err := <-failed:
			failed <- err
			if err != nil && c.ctx.Err() == nil {
				return err
			}
		case <-c.ctx.Done():
		}
		if c.ctx.Err() != nil {
			break
		}
		<-ready[i] // or all are
		out.row(&rows[i])
	}
	if c.ctx.Err() == nil {
		return out.finish()
	}
	<-failed // all have ended
	for i := len(rep.Cases); i < len(rows); i++ {
		if rows[i].Executions > 0 {
			out.row(&rows[i])
		}
	}
	return out.interrupted(len(jobs))
}
