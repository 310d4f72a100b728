// Package axiom answers litmus tests from the axioms of the PTX memory model, by listing every candidate execution:
// what each thread may read, which write each read takes, in which order SC fences and writes are. It shares nothing
// with the checking engine but the litmus language, so that each can be held against the other.
//
// What the reference leaves open is decided so:
//
//   - Initial values are writes that precede everything.
//   - Two writes are related in coherence order when they are morally strong, when causality relates them, or through a
//     third; racing writes are not, and each that nothing follows may be the value at the end.
//   - Thin air: dependencies are those of registers: data, addresses, and control into all that follows. An RMW's write
//     depends on its read, whatever the operation. cas writes even when it fails.
//   - The k-th operation of each thread on a barrier belongs to the k-th round; threads that never touch it are not awaited.
//   - A read that races is not torn below the smallest access to its location.
//   - A loop that only waits ends in its first round: failed rounds read, which allows nothing more. Other loops are refused.
//   - Vector elements are separate accesses without an order among them. A .b128 access is one.
package axiom

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/flags/check/litmus"
)

// Answer is what the axioms say of a test.
type Answer struct {
	Outcomes   map[string]bool // values of Test.Observed, as "1 0"
	Race       litmus.Racy     // No, Yes or Mixed
	Executions int             // that the axioms allow
}

// Outcomes is the outcomes that the axioms allow, and whether an allowed execution has a race. The keys are those of
// check.Result.Outcomes.
func Outcomes(t *litmus.Test) (outcomes map[string]bool, racy bool, err error) {
	a, err := Analyze(t)
	if err != nil {
		return nil, false, err
	}
	return a.Outcomes, a.Race != litmus.No, nil
}

// Analyze lists all executions of a test whose loops only wait.
func Analyze(t *litmus.Test) (*Answer, error) { return AnalyzeContext(context.Background(), t) }

// AnalyzeContext is Analyze until ctx ends, which is an error then.
func AnalyzeContext(ctx context.Context, t *litmus.Test) (*Answer, error) {
	s := &search{ctx: ctx, t: t, c: newCells(t), a: &Answer{Outcomes: map[string]bool{}, Race: litmus.No}}
	if err := s.traces(); err != nil {
		return nil, err
	}
	s.chosen = make([]*trace, len(t.Threads))
	s.combine(0)
	return s.a, s.err
}

type search struct {
	ctx     context.Context
	t       *litmus.Test
	c       *cells
	a       *Answer
	lists   [][]trace // by thread
	chosen  []*trace
	budget  int
	work    int // since ctx was looked at
	err     error
	written [][]map[uint64]bool // values that thread and later ones can write, by thread and cell
}

const budget = 20_000_000 // candidates

// traces finds the traces of each thread. The values that a cell can hold grow until nothing new comes, or for as many
// rounds as there are writes: longer chains of values there are not, since nothing comes out of thin air.
func (s *search) traces() error {
	domain := make([][]uint64, len(s.c.init))
	for i, v := range s.c.init {
		domain[i] = []uint64{v}
	}
	rounds := 1
	for _, th := range s.t.Threads {
		for _, in := range th.Code {
			if in.HasAddress() && in.Op != litmus.Load {
				rounds += in.Vec
			}
		}
	}
	for {
		s.lists = s.lists[:0]
		grown := false
		next := make([][]uint64, len(domain))
		for i := range domain {
			next[i] = slices.Clone(domain[i])
		}
		for i := range s.t.Threads {
			r := &runner{t: s.t, c: s.c, th: i, domain: domain}
			list, err := r.all()
			if err != nil {
				return err
			}
			s.lists = append(s.lists, list)
			for k := range list {
				for _, e := range list[k].events {
					for c, v := range e.put {
						if !slices.Contains(next[e.cell+c], v) {
							next[e.cell+c] = append(next[e.cell+c], v)
							grown = true
						}
					}
				}
			}
		}
		if rounds--; rounds < 0 || !grown {
			break
		}
		domain = next
	}
	for i, list := range s.lists {
		s.lists[i] = slices.DeleteFunc(list, func(t trace) bool { return t.stuck })
	}
	s.written = make([][]map[uint64]bool, len(s.lists)+1)
	for i := len(s.lists); i >= 0; i-- {
		s.written[i] = make([]map[uint64]bool, len(domain))
		for c := range domain {
			s.written[i][c] = map[uint64]bool{s.c.init[c]: true}
			if i < len(s.lists) {
				for v := range s.written[i+1][c] {
					s.written[i][c][v] = true
				}
			}
		}
		if i < len(s.lists) {
			for k := range s.lists[i] {
				for _, e := range s.lists[i][k].events {
					for c, v := range e.put {
						s.written[i][e.cell+c][v] = true
					}
				}
			}
		}
	}
	return nil
}

// combine chooses a trace for each thread from i on.
func (s *search) combine(i int) {
	if i == len(s.lists) {
		s.candidates()
		return
	}
	for k := range s.lists[i] {
		if s.interrupted(1) {
			return
		}
		s.chosen[i] = &s.lists[i][k]
		if s.possible(i) {
			s.combine(i + 1)
		}
		if s.err != nil {
			return
		}
	}
}

// interrupted counts work, and looks from time to time whether ctx has ended.
func (s *search) interrupted(work int) bool {
	if s.work += work; s.work >= 1<<10 {
		s.work = 0
		if err := s.ctx.Err(); err != nil {
			s.err = err
		}
	}
	return s.err != nil
}

// possible says whether each value read by threads up to i is written by one of them, or can be by a later one.
func (s *search) possible(i int) bool {
	for _, tr := range s.chosen[:i+1] {
		for k := range tr.events {
			e := &tr.events[k]
		values:
			for c, v := range e.got {
				if s.written[i+1][e.cell+c][v] {
					continue
				}
				for _, other := range s.chosen[:i+1] {
					for j := range other.events {
						w := &other.events[j]
						if at := e.cell + c - w.cell; w != e && w.write && at >= 0 && at < w.cells && w.put[at] == v {
							continue values
						}
					}
				}
				return false
			}
		}
	}
	return true
}

// candidates lists what each read may take, and tries all.
func (s *search) candidates() {
	g, err := newGraph(s)
	if err != nil {
		s.err = err
		return
	}
	g.take(0)
}

// observed is the outcome without its memory.
func (s *search) outcome(final func(cell int) uint64) string {
	var b strings.Builder
	for i, o := range s.t.Observed {
		v := uint64(0)
		if o.Column >= 0 {
			v = s.chosen[o.Column].regs[o.Register]
		} else {
			g := s.c.granule[o.Loc]
			for k := 0; k < o.Size; k += g {
				v |= final(s.c.base[o.Loc]+(o.Off+k)/g) << (8 * k)
			}
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d", v)
	}
	return b.String()
}
