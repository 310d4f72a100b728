// Package litmus reads litmus tests: a few threads in columns of PTX, and what the memory model says of them. It knows
// the language alone; it does not run anything.
//
// A file holds tests one after the other. Each has a name, a reason, locations, columns and expectations:
//
//	test: MP release acquire, sys, two devices
//	why: the acquire reads the release, so all before the one is visible after the other
//	x = 0 @1; y = 0
//	d0.b0.t0                  | d1.b0.t0
//	st.weak.u32 [x], 1        | ld.acquire.sys.u32 r0, [y]
//	st.release.sys.u32 [y], 1 | ld.weak.u32 r1, [x]
//	forbidden: r0 = 1 & r1 = 0
//	allowed: r0 = 1 & r1 = 1
//	race: yes
//
// Blank lines and everything behind # mean nothing.
//
// Locations: `x = 0` is 4 bytes, `x.u64 = 0` is 8; u8, u16, u32 and u64 are known. `a[4] = 1, 2, 3, 4` has elements; one
// value stands for all. `@1` places a location on device 1, `@host` in the host's memory; without it, on device 0.
//
// Columns: the line after the locations says where each thread runs: device, block, thread of the block (to barriers, a warp of its own). Below, each
// line has one instruction per column; a cell may be empty. Registers need no declaration and start as zero: r0, r1, …
// have 32 bits, rd0, … 64, q0, … 128, h0, … 16, and p0, … are predicates. An address is [x], [x+4] or [x+r0]: a location, and a
// register or a constant in bytes. `again: …` is a label.
//
// Instructions, with PTX's own meaning:
//
//	ld  .weak .volatile, or .relaxed .acquire with .cta .gpu .sys; .v2 .v4; types of 1 to 8 bytes, and .b128
//	st  .weak .volatile, or .relaxed .release with a scope; .v2 .v4; the value is a register or a constant, of .b128 a register
//	atom .relaxed .acquire .release .acq_rel (relaxed when absent), .cta .gpu .sys (gpu when absent),
//	     .add .exch .cas .min .max .inc .dec .and .or .xor
//	red  the same without .exch, .cas, .acquire and .acq_rel
//	fence .sc .acq_rel .acquire .release (acq_rel when absent) with a scope; membar .cta .gl .sys
//	bar.sync a{, n}; bar.arrive a, n; bar.red.popc.u32 r, a, p
//	mov add sub mul.lo xor and or shl shr min max, setp.eq .ne .lt .le .gt .ge, selp, cvt.u64.u32, cvt.u32.u64
//	mov.b128 q, {rd, rd} or {r, r, r, r}, with constants among them; mov.b128 {rd, rd} or {r, r, r, r}, q; mov.b128 q, q
//	bra label, exit; @p0 and @!p0 before any instruction
//
// Expectations: `forbidden:` no execution ends so; `allowed:` some execution does; `always:` every execution does;
// `permitted:` the model allows it, and no machine need ever do it; where the checker does not, the axioms judge it. Each
// may come several times. A condition joins parts by &: `r0 = 1`, `1:r0 = 1` where two columns (counted from 0) use r0, and
// `[x] = 2` for memory at the end. `race:` is yes when some execution has a race, no when none has, and `mixed size` when
// there is one between accesses that overlap in part, of which the model says nothing more.
package litmus

import (
	"fmt"
	"slices"
)

// Host is the device number of the host's memory.
const Host = -1

// Test is one litmus test.
type Test struct {
	File      string
	Line      int
	Name, Why string
	Locations []Location
	Threads   []Thread
	Expect    []Expectation
	Race      Racy
	Observed  []Observed // what the expectations look at, in the order of their first mention
}

// Racy is what a test says of races.
type Racy int

// The answers to race:.
const (
	Unsaid Racy = iota
	No
	Yes
	Mixed // between accesses that overlap in part
)

func (r Racy) String() string { return [...]string{"unsaid", "no", "yes", "mixed size"}[r] }

// Location is named memory.
type Location struct {
	Name   string
	Size   int      // bytes of one element
	Init   []uint64 // by element
	Device int
}

// Bytes is the size of the whole.
func (l *Location) Bytes() int { return l.Size * len(l.Init) }

// Thread is a column.
type Thread struct {
	Device, Block, Thread int
	Code                  []Instr
	Registers             []string // in order of first mention
	Labels                map[string]int
}

// Op is what an instruction does.
type Op int

// The operations.
const (
	Load Op = iota
	Store
	Atom
	Red
	Fence
	Barrier
	Alu    // Fn: mov, add, …
	Setp   // Fn: eq, ne, …
	Select // selp
	Branch
	Exit
)

// Sem is an operation's strength.
type Sem int

// The strengths. A weak access has no scope; a volatile one is Relaxed at Sys.
const (
	Weak Sem = iota
	Relaxed
	Acquire
	Release
	AcqRel
	SC
)

// Scope is the set of threads an operation is strong towards.
type Scope int

// The scopes, each within the next.
const (
	NoScope Scope = iota
	CTA
	GPU
	Sys
)

func (s Scope) String() string { return [...]string{"", "cta", "gpu", "sys"}[s] }

// Arg is a register, or a constant if Reg is "".
type Arg struct {
	Reg   string
	Value uint64
}

// Instr is one instruction.
type Instr struct {
	Line, Column int
	Mnemonic     string // "ld.acquire.sys.u32"
	Guard        string // a predicate, or ""
	GuardNot     bool
	Op           Op
	Fn           string // of Alu, Setp, Atom and Red: "add"; of Barrier: "sync", "arrive", "red"; of mov.b128: "pack", "unpack", "mov"
	Sem          Sem
	Scope        Scope
	Type         string // "u32"
	Size         int    // bytes of one element
	Vec          int    // elements; of mov.b128, the parts in braces
	Dst          []string
	Src          []Arg // in the order of PTX, without the address; of Barrier: the barrier, and the count if there is one
	Loc          int   // index in Locations, with an address
	Off          int
	OffReg       string
	Label        string // of Branch
}

// Upper names the upper half of a register of 128 bits, where the halves are kept apart; the register's own name is the lower's.
func Upper(q string) string { return q + "^" }

// HasAddress says whether Loc, Off and OffReg mean something.
func (i *Instr) HasAddress() bool { return i.Op <= Red }

// Reads are the registers that the instruction reads: its operands, its address, its guard.
func (i *Instr) Reads() []string {
	list := []string{i.Guard, i.OffReg}
	for _, a := range i.Src {
		list = append(list, a.Reg)
	}
	return slices.DeleteFunc(list, func(r string) bool { return r == "" })
}

// Mode is what an expectation says.
type Mode int

// The modes.
const (
	Forbidden Mode = iota
	Allowed
	Always
	Permitted
)

func (m Mode) String() string { return [...]string{"forbidden", "allowed", "always", "permitted"}[m] }

// Expectation is one line of forbidden, allowed, always or permitted.
type Expectation struct {
	Mode Mode
	Text string
	Line int
	Want []Want // all of them
}

// Want compares one observed value.
type Want struct {
	Index int // in Observed
	Value uint64
}

// Observed is a register of a column, or memory if Column < 0.
type Observed struct {
	Column   int
	Register string
	Loc, Off int
	Size     int
}

// NameOf is how conditions write it.
func (t *Test) NameOf(o Observed) string {
	if o.Column >= 0 {
		return fmt.Sprintf("%d:%s", o.Column, o.Register)
	}
	if o.Off != 0 {
		return fmt.Sprintf("[%s+%d]", t.Locations[o.Loc].Name, o.Off)
	}
	return "[" + t.Locations[o.Loc].Name + "]"
}

// Holds says whether an outcome, given as the observed values, meets the condition.
func (e *Expectation) Holds(values []uint64) bool {
	for _, w := range e.Want {
		if values[w.Index] != w.Value {
			return false
		}
	}
	return true
}

// Loops says whether some column branches backwards.
func (t *Test) Loops() bool {
	for _, th := range t.Threads {
		for i, in := range th.Code {
			if in.Op == Branch && th.Labels[in.Label] <= i {
				return true
			}
		}
	}
	return false
}

// Error is what is wrong in a file, and where.
type Error struct {
	File         string
	Line, Column int
	Msg          string
	Remedy       string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s: %s", e.File, e.Line, e.Column, e.Msg, e.Remedy)
}
