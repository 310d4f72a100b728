package ptx

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// lowerFile turns a parsed file into a Module.
func lowerFile(f *file, name, src string, keep bool) (m *Module, err error) {
	defer catch(&err)
	sum := fnv.New64a()
	sum.Write([]byte(src))
	m = &Module{Info: f.info, Sum: sum.Sum64(), kernels: map[string]*Kernel{}}
	lo := &lowering{name: name, text: src, file: f, keep: keep, funcs: map[string]*function{}, root: newScope(nil)}
	for _, v := range f.vars {
		lo.moduleVar(m, v)
	}
	for _, fn := range f.funcs {
		if prev := lo.funcs[fn.name]; prev == nil || !prev.hasBody {
			lo.funcs[fn.name] = fn
		}
	}
	for _, fn := range f.funcs {
		if fn.entry && fn.hasBody {
			m.kernels[fn.name] = lo.kernel(fn, &m.Info.Entries[fn.sig])
		}
	}
	// A .func that no kernel calls is checked all the same.
	for _, fn := range f.funcs {
		if !fn.entry && fn.hasBody && !lo.used[fn.name] {
			lo.kernel(fn, &Signature{Name: fn.name})
		}
	}
	return m, nil
}

// lowering holds what the kernels of a file share.
type lowering struct {
	name   string
	text   string
	file   *file
	funcs  map[string]*function
	used   map[string]bool
	root   *scope
	keep   bool // every register has its own place, for ParseObserved
	shared int  // bytes of module-scope .shared variables, which have one place in every kernel
}

type symKind uint8

const (
	symReg symKind = iota
	symRange
	symVar
	symLabel
	symTargets
)

// symbol is what a name stands for.
type symbol struct {
	kind    symKind
	typ     typ
	reg     int32 // register, or the first of a range
	count   int32
	space   space
	off     int64 // of a variable, in its space
	size    int   // of a variable
	global  int32 // index in Module.Globals
	dynamic bool  // the extern shared array
	formal  bool  // .param variable of a .func or of a call: local memory under another name
	label   int32
	names   []string
}

type scope struct {
	parent *scope
	names  map[string]symbol
}

func newScope(parent *scope) *scope { return &scope{parent: parent, names: map[string]symbol{}} }

// lookup finds a name here or further out; name12 may belong to a range name<n>.
func (s *scope) lookup(name string) (symbol, bool) {
	stem := strings.TrimRight(name, "0123456789")
	for ; s != nil; s = s.parent {
		if y, ok := s.names[name]; ok && y.kind != symRange {
			return y, true
		}
		// The stem of a range may itself end in digits: try every split that leaves a sane index.
		for cut := max(len(stem), len(name)-7); cut < len(name); cut++ {
			y, ok := s.names[rangeKey(name[:cut])]
			if !ok || name[cut] == '0' && len(name)-cut > 1 {
				continue
			}
			if i, err := strconv.Atoi(name[cut:]); err == nil && int32(i) < y.count {
				y.kind, y.reg = symReg, y.reg+int32(i)*y.typ.registers()
				return y, true
			}
		}
	}
	return symbol{}, false
}

// rangeKey keeps ranges apart from plain names: no identifier holds a '<'.
func rangeKey(stem string) string { return stem + "<" }

// moduleVar gives a module-scope variable its place.
func (lo *lowering) moduleVar(m *Module, v *variable) {
	if _, dup := lo.root.names[v.name]; dup {
		lo.failAt(v.line, v.pos, "`%s` is declared twice", v.name)
	}
	y := symbol{kind: symVar, typ: v.typ, space: v.space, size: v.size, global: -1}
	switch {
	case v.extern:
		y.dynamic = true
	case v.space == spShared:
		lo.shared = alignUp(lo.shared, v.align)
		y.off = int64(lo.shared)
		if lo.shared += v.size; lo.shared > maxShared {
			lo.failAt(v.line, v.pos, "more than %d bytes of shared memory", maxShared)
		}
	default:
		y.global = int32(len(m.Globals))
		m.Globals = append(m.Globals, Global{Name: v.name, Size: v.size, Align: v.align, Init: v.init, Const: v.space == spConst})
	}
	lo.root.names[v.name] = y
}

func alignUp(n, align int) int { return (n + align - 1) / align * align }

func (lo *lowering) failAt(line, pos int, format string, args ...any) {
	panic(&Error{File: lo.name, Line: line, Text: lineText(lo.text, pos), Msg: message(format, args)})
}

// constant is a register that holds one value in all lanes.
type constant struct {
	val    uint64
	global int32 // add the address of this global; -1 for none
	dyn    bool  // add the start of dynamic shared memory
}

// builder lowers one kernel.
type builder struct {
	*lowering
	k      *Kernel
	ops    []op
	scope  *scope
	n      [4]int32 // virtual registers of each kind
	consts [4][]constant
	known  [4]map[constant]int32
	labels []int32 // op index of each label, -1 when not placed
	tables [][]int32
	flow   []flowBlock // after layout
	locals int
	calls  []*function // being inlined, outermost first
	inline int         // calls so far
	ret    int32       // label that ret goes to, -1 in the kernel itself
	carry  int32       // the carry flag, a predicate
	dyn    bool        // uses dynamic shared memory

	lastStmt *stmt
	cur      *stmt
	in       *inst
	mods     []string // modifiers of the current instruction not yet understood
}

func (lo *lowering) kernel(fn *function, sig *Signature) *Kernel {
	if lo.used == nil {
		lo.used = map[string]bool{}
	}
	b := &builder{lowering: lo, k: &Kernel{Sig: sig, file: lo.name}, scope: newScope(lo.root), ret: -1}
	for i := range b.known {
		b.known[i] = map[constant]int32{}
	}
	b.k.StaticShared = lo.shared
	b.carry = b.newReg(kPred)
	for _, v := range fn.params {
		y := symbol{kind: symVar, typ: v.typ, space: spParam, off: int64(v.pos), size: v.size, global: -1}
		if !fn.entry {
			y = b.formal(v)
		}
		b.define(v.name, y, v.line, v.pos)
	}
	for _, v := range fn.rets {
		b.define(v.name, b.formal(v), v.line, v.pos)
	}
	b.body(fn.body)
	b.cur = &stmt{line: fn.line, pos: fn.pos, end: fn.pos}
	if n := len(fn.body); n > 0 {
		b.cur = &fn.body[n-1]
	}
	b.in, b.mods = &inst{}, nil
	b.emit(op{code: opExit})
	layout(b)
	allocate(b)
	b.finish()
	return b.k
}

// finish moves what was built into the kernel.
func (b *builder) finish() {
	b.k.ops = b.ops
	b.k.tables = b.tables
	b.k.Local = alignUp(b.locals, 8)
	b.k.dynamic = b.dyn
	if b.keep {
		b.k.names = b.scope
	}
	vectors := 0
	for k := range b.k.n {
		vectors += int(b.k.n[k]) + len(b.consts[k])
	}
	if vectors > maxVectors {
		b.fail("`%s` needs %d registers and constants at once, at most %d are supported", b.k.Sig.Name, vectors, maxVectors)
	}
	for _, c := range b.consts[k64] {
		b.k.globals = max(b.k.globals, int(c.global)+1)
	}
}

func (b *builder) fail(format string, args ...any) {
	b.failAt(b.cur.line, b.cur.pos, format, args...)
}

func (b *builder) newReg(k kind) int32 {
	b.n[k]++
	if b.n[k] > 4*maxRegisters {
		b.fail("more than %d registers", 4*maxRegisters)
	}
	return b.n[k] - 1
}

func (b *builder) define(name string, y symbol, line, pos int) {
	if _, dup := b.scope.names[name]; dup {
		b.failAt(line, pos, "`%s` is declared twice in one scope", name)
	}
	b.scope.names[name] = y
}

// formal places a parameter or return value of a .func in a register or in local memory.
func (b *builder) formal(v *variable) symbol {
	if v.space == spReg {
		return symbol{kind: symReg, typ: v.typ, reg: b.newReg(v.typ.kind())}
	}
	return b.localVar(v)
}

func (b *builder) localVar(v *variable) symbol {
	b.locals = alignUp(b.locals, v.align)
	y := symbol{kind: symVar, typ: v.typ, space: spLocal, off: int64(b.locals), size: v.size, global: -1, formal: v.space == spParam}
	if b.locals += v.size; b.locals > maxLocal {
		b.failAt(v.line, v.pos, "more than %d bytes of local memory", maxLocal)
	}
	return y
}

const (
	maxVectors = 1 << 16   // registers and constants of one kernel
	maxLocal   = 512 << 10 // bytes per thread, as on hardware
	maxShared  = 1 << 20   // bytes per block: beyond every device
)

// body lowers the statements of one scope: first the declarations and labels that are used before
// they appear, then the code.
func (b *builder) body(list []stmt) {
	for i := range list {
		if s := &list[i]; s.kind == stLabel {
			b.define(s.label, symbol{kind: symLabel, label: b.newLabel()}, s.line, s.pos)
		} else if s.kind == stTargets {
			b.define(s.label, symbol{kind: symTargets, names: s.names}, s.line, s.pos)
		}
	}
	for i := range list {
		s := &list[i]
		b.cur = s
		switch s.kind {
		case stReg:
			for _, d := range s.regs {
				b.declare(d)
			}
		case stVar:
			b.variable(s.v)
		case stLabel:
			b.labels[b.scope.names[s.label].label] = int32(len(b.ops))
		case stBlock:
			b.scope = newScope(b.scope)
			b.body(s.body)
			b.scope = b.scope.parent
		case stInst:
			b.instruction(s)
		}
	}
}

func (b *builder) newLabel() int32 {
	b.labels = append(b.labels, -1)
	return int32(len(b.labels) - 1)
}

func (b *builder) declare(d regDecl) {
	if d.typ == tB128 {
		b.require(70, 83, "a .b128 register")
	}
	k := d.typ.kind()
	y := symbol{kind: symReg, typ: d.typ, reg: b.n[k], count: int32(d.count)}
	if d.count < 0 {
		b.n[k] += d.typ.registers() - 1
		b.newReg(k)
		b.define(d.name, y, b.cur.line, b.cur.pos)
		return
	}
	y.kind = symRange
	if d.count > 0 {
		b.n[k] += int32(d.count)*d.typ.registers() - 1
		b.newReg(k)
	}
	b.define(rangeKey(d.name), y, b.cur.line, b.cur.pos)
}

// variable places a .shared, .local or .param variable of a body.
func (b *builder) variable(v *variable) {
	var y symbol
	switch v.space {
	case spShared:
		b.k.StaticShared = alignUp(b.k.StaticShared, v.align)
		y = symbol{kind: symVar, typ: v.typ, space: spShared, off: int64(b.k.StaticShared), size: v.size, global: -1}
		if b.k.StaticShared += v.size; b.k.StaticShared > maxShared {
			b.fail("more than %d bytes of shared memory", maxShared)
		}
	case spLocal, spParam:
		y = b.localVar(v)
	default:
		b.fail(".%v variables belong to module scope", v.space)
	}
	b.define(v.name, y, v.line, v.pos)
}

// constReg returns a register that holds c in every lane.
func (b *builder) constReg(k kind, c constant) int32 {
	if id, ok := b.known[k][c]; ok {
		return id
	}
	id := constBase + int32(len(b.consts[k]))
	b.consts[k] = append(b.consts[k], c)
	b.known[k][c] = id
	return id
}

func (b *builder) value(k kind, v uint64) int32 { return b.constReg(k, constant{val: v, global: -1}) }

// emit appends an operation under the current instruction's guard and returns it.
func (b *builder) emit(o op) *op {
	if len(b.ops) >= maxOps {
		b.fail("kernel `%s` has more than %d operations", b.k.Sig.Name, maxOps)
	}
	o.guard = noReg
	if b.in != nil && b.in.guard != "" {
		o.guard, o.gneg = b.guard(), b.in.guardNot
	}
	o.stmt = b.stmt()
	b.ops = append(b.ops, o)
	return &b.ops[len(b.ops)-1]
}

// stmt is the index of the current statement in the kernel's table.
func (b *builder) stmt() int32 {
	n := len(b.k.stmts)
	if n == 0 || b.k.stmts[n-1].line != b.cur.line || b.lastStmt != b.cur {
		b.k.stmts = append(b.k.stmts, stmtPos{b.cur.line, excerpt(b.text, b.cur.pos, b.cur.end)})
		b.lastStmt = b.cur
		n++
	}
	return int32(n - 1)
}

func (b *builder) guard() int32 {
	y, ok := b.scope.lookup(b.in.guard)
	if !ok || y.kind != symReg {
		b.fail("unknown predicate `%s`", b.in.guard)
	}
	if y.typ != tPred {
		b.fail("`%s` is no predicate", b.in.guard)
	}
	return y.reg
}

// instruction lowers one instruction and insists that every modifier was understood.
func (b *builder) instruction(s *stmt) {
	b.in = s.inst
	b.mods = append(b.mods[:0], s.inst.mods...)
	fn, ok := instructions[s.inst.name]
	if !ok {
		if why, ok := refused[s.inst.name]; ok {
			b.fail("`%s` is not supported: %s", s.inst.name, why)
		}
		b.fail("unknown instruction `%s`", s.inst.name)
	}
	fn(b)
	if len(b.mods) > 0 {
		b.fail("unknown modifier `.%s` of `%s`", b.mods[0], s.inst.name)
	}
}
