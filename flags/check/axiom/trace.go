package axiom

import (
	"fmt"

	"github.com/fenceline/fenceline/flags/check/litmus"
)

// event is one operation of one thread. A vector access is several, one for each element; an RMW is one.
type event struct {
	thread, instr int
	op            litmus.Op
	read, write   bool
	sem           litmus.Sem
	scope         litmus.Scope
	cell, cells   int      // what is accessed
	got, put      []uint64 // values by cell
	address       uint64   // events of the thread whose values decided that this happens, and where
	value         uint64   // and what is written
	barrier       uint64
	arrive        bool // bar.arrive waits for nobody
}

func (e *event) memory() bool { return e.read || e.write }
func (e *event) rmw() bool    { return e.read && e.write }
func (e *event) strong() bool { return e.sem != litmus.Weak }

func (e *event) acquires() bool {
	if e.op == litmus.Fence {
		return e.sem != litmus.Release
	}
	return e.read && (e.sem == litmus.Acquire || e.sem == litmus.AcqRel)
}

func (e *event) releases() bool {
	if e.op == litmus.Fence {
		return e.sem != litmus.Acquire
	}
	return e.write && (e.sem == litmus.Release || e.sem == litmus.AcqRel)
}

// trace is one way a thread can run.
type trace struct {
	events []event
	regs   map[string]uint64
	stuck  bool // it went round a loop; it counts only for what it wrote before
}

// cells divides locations into the smallest pieces that the test accesses.
type cells struct {
	base, granule []int
	init          []uint64
}

func newCells(t *litmus.Test) *cells {
	c := &cells{}
	for i := range t.Locations {
		l := &t.Locations[i]
		g := l.Size
		for _, th := range t.Threads {
			for _, in := range th.Code {
				if in.HasAddress() && in.Loc == i {
					g = min(g, in.Size)
				}
			}
		}
		c.base, c.granule = append(c.base, len(c.init)), append(c.granule, g)
		for _, v := range l.Init {
			for k := 0; k < l.Size; k += g {
				c.init = append(c.init, v>>(8*k)&mask(g))
			}
		}
	}
	return c
}

func mask(bytes int) uint64 { return ^uint64(0) >> (64 - 8*bytes) }

// runner finds all traces of one thread, when each cell may hold the values of a domain.
type runner struct {
	t      *litmus.Test
	c      *cells
	th     int
	domain [][]uint64
	script []int // choices made so far
	limits []int // how many each had
	at     int
}

const most = 1 << 16 // traces of a thread

func (r *runner) all() ([]trace, error) {
	var list []trace
	for {
		r.at = 0
		tr, err := r.one()
		if err != nil {
			return nil, err
		}
		if list = append(list, tr); len(list) > most {
			return nil, fmt.Errorf("%s: column %d has too many traces", r.t.Name, r.th)
		}
		for len(r.script) > 0 && r.script[len(r.script)-1]+1 == r.limits[len(r.limits)-1] {
			r.script, r.limits = r.script[:len(r.script)-1], r.limits[:len(r.limits)-1]
		}
		if len(r.script) == 0 {
			return list, nil
		}
		r.script[len(r.script)-1]++
	}
}

func (r *runner) choose(n int) int {
	if r.at == len(r.script) {
		r.script, r.limits = append(r.script, 0), append(r.limits, n)
	}
	r.at++
	return r.script[r.at-1]
}

// frame is the state of a thread: registers, and the events whose values went into each.
type frame struct {
	regs   map[string]uint64
	deps   map[string]uint64
	branch uint64 // into the choice of path
}

func (f *frame) arg(a litmus.Arg) (value, deps uint64) {
	if a.Reg == "" {
		return a.Value, 0
	}
	return f.regs[a.Reg], f.deps[a.Reg]
}

func (r *runner) one() (trace, error) {
	th := &r.t.Threads[r.th]
	f := frame{map[string]uint64{}, map[string]uint64{}, 0}
	tr := trace{regs: f.regs}
	for pc := 0; pc < len(th.Code); pc++ {
		in := &th.Code[pc]
		guard := uint64(0)
		if in.Guard != "" {
			guard = f.deps[in.Guard]
			if f.keeps(in) {
				continue
			}
			if (f.regs[in.Guard] != 0) == in.GuardNot {
				// What would have been written still depends on the guard.
				for _, d := range in.Dst {
					f.deps[d] |= guard
					if in.Size == 16 {
						f.deps[litmus.Upper(d)] |= guard
					}
				}
				if in.Op == litmus.Branch {
					f.branch |= guard
				}
				continue
			}
		}
		switch in.Op {
		case litmus.Branch:
			f.branch |= guard
			to := th.Labels[in.Label]
			if to <= pc {
				tr.stuck = true
				return tr, r.awaits(to, pc)
			}
			pc = to - 1
		case litmus.Exit:
			return tr, nil
		case litmus.Alu, litmus.Setp, litmus.Select:
			if in.Size == 16 {
				f.moveWide(in, guard)
				continue
			}
			v, deps := compute(in, &f)
			f.regs[in.Dst[0]], f.deps[in.Dst[0]] = v, deps|guard
		case litmus.Fence:
			tr.events = append(tr.events, event{thread: r.th, instr: pc, op: in.Op, sem: in.Sem, scope: in.Scope})
		case litmus.Barrier:
			if in.Fn == "red" {
				return tr, fmt.Errorf("%s: bar.red is not among the axioms", r.t.Name)
			}
			tr.events = append(tr.events, event{thread: r.th, instr: pc, op: in.Op, barrier: in.Src[0].Value, arrive: in.Fn == "arrive"})
		default:
			if err := r.access(&tr, &f, in, pc, guard|f.branch); err != nil {
				return tr, err
			}
		}
		if len(tr.events) > 60 {
			return tr, fmt.Errorf("%s: column %d is too long", r.t.Name, r.th)
		}
	}
	return tr, nil
}

// awaits says whether the loop from one instruction to another only waits. Then it is enough to look at executions in
// which its first round is the last: a failed round reads, and so can only take away from what the others allow.
func (r *runner) awaits(from, to int) error {
	code := r.t.Threads[r.th].Code
	written := map[string]int{} // registers, and where the loop writes them first
	for i := from; i <= to; i++ {
		for _, d := range code[i].Dst {
			if _, ok := written[d]; !ok {
				written[d] = i
			}
		}
	}
	for i := from; i <= to; i++ {
		for _, reg := range code[i].Reads() {
			if at, ok := written[reg]; ok && at >= i {
				return fmt.Errorf("%s: column %d carries `%s` from one round of a loop into the next; the axioms are for loops that only wait", r.t.Name, r.th, reg)
			}
		}
	}
	for _, in := range code[from:to] {
		switch {
		case in.Op == litmus.Store, in.Op == litmus.Red, in.Op == litmus.Atom && in.Fn != "cas", in.Op == litmus.Barrier, in.Op == litmus.Branch:
			return fmt.Errorf("%s: column %d loops around `%s`; the axioms are for loops that only wait", r.t.Name, r.th, in.Mnemonic)
		}
	}
	return nil
}

func (r *runner) access(tr *trace, f *frame, in *litmus.Instr, pc int, control uint64) error {
	offset, deps := uint64(in.Off), control
	if in.OffReg != "" {
		offset, deps = f.regs[in.OffReg], control|f.deps[in.OffReg]
	}
	l, g := &r.t.Locations[in.Loc], r.c.granule[in.Loc]
	if offset%uint64(in.Size*in.Vec) != 0 || offset+uint64(in.Size*in.Vec) > uint64(l.Bytes()) {
		return fmt.Errorf("%s: line %d: %d bytes at %s+%d", r.t.Name, in.Line, in.Size*in.Vec, l.Name, offset)
	}
	// Elements of one vector are in no order: none depends on another.
	before := len(tr.events)
	for k := range in.Vec {
		e := event{thread: r.th, instr: pc, op: in.Op, sem: in.Sem, scope: in.Scope, address: deps, value: deps,
			cell: r.c.base[in.Loc] + (int(offset)+k*in.Size)/g, cells: in.Size / g}
		e.read, e.write = in.Op != litmus.Store, in.Op != litmus.Load
		var old [2]uint64 // of 16 bytes the halves
		if e.read {
			for c := range e.cells {
				d := r.domain[e.cell+c]
				v := d[r.choose(len(d))]
				e.got = append(e.got, v)
				old[g*c/8] |= v << (8 * (g * c % 8))
			}
		}
		if e.write {
			v, more := written(in, f, k, old[0])
			e.value |= more
			for c := range e.cells {
				e.put = append(e.put, v[g*c/8]>>(8*(g*c%8))&mask(g))
			}
		}
		if e.read && len(in.Dst) > 0 {
			if in.Type[0] == 's' && in.Size < 4 {
				shift := 64 - 8*in.Size
				old[0] = uint64(int64(old[0]<<shift)>>shift) & mask(4)
			}
			f.regs[in.Dst[k]] = old[0]
			if in.Size == 16 {
				f.regs[litmus.Upper(in.Dst[k])] = old[1]
			}
		}
		tr.events = append(tr.events, e)
	}
	if in.Op == litmus.Load || in.Op == litmus.Atom {
		for k, d := range in.Dst {
			f.deps[d] = 1<<(before+k) | control // a guarded load leaves what the guard decided
			if in.Size == 16 {
				f.deps[litmus.Upper(d)] = f.deps[d]
			}
		}
	}
	return nil
}
