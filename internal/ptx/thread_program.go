package ptx

import "strings"

// program is a kernel for threads: the same operations over one register file, which holds the registers of all
// kinds and then the constants of all kinds.
type program struct {
	ops   []op
	insts []Inst // one per op
	list  []*Inst
	first [4]int32 // where the registers of a kind begin
	fixed [4]int32 // and where its constants
	regs  int      // registers, without the constants
	size  int      // of the file
	no    *Error   // why threads cannot run it
}

// Insts lists the instructions that give rise to events, in the order of the lowered code. Those of local memory
// and of parameters are not among them.
func (k *Kernel) Insts() []*Inst { return k.forThreads().list }

func (k *Kernel) forThreads() *program {
	k.threaded.Do(func() { k.program = newProgram(k) })
	return k.program
}

func newProgram(k *Kernel) *program {
	p := &program{ops: make([]op, len(k.ops)), insts: make([]Inst, len(k.ops))}
	at := int32(1) // absent operands point at 0
	for _, kd := range []kind{k32, k64, kPred} {
		p.first[kd] = at
		at += k.n[kd]
	}
	p.regs = int(at)
	for _, kd := range []kind{k32, k64, kPred} {
		p.fixed[kd] = at
		at += int32(len(k.consts[kd]))
	}
	p.size = int(at)
	loops := cycles(k)
	copy(p.ops, k.ops)
	for i := range p.ops {
		o := &p.ops[i]
		o.each(func(r *int32, kd kind, _ bool) { *r = p.register(k, *r, kd) })
		p.insts[i] = describe(k, o)
		p.insts[i].Loop = loops[i]
		if p.insts[i].Kind != 0 {
			p.list = append(p.list, &p.insts[i])
		}
		if o.code == opActive && p.no == nil {
			p.no = &Error{File: k.file, Line: p.insts[i].Line, Text: p.insts[i].Text,
				Msg: "`activemask` is not supported here: which lanes are in step is chance; pass masks to where they are needed"}
		}
	}
	return p
}

// register is the place of a kernel's register or constant in the file.
func (p *program) register(k *Kernel, r int32, kd kind) int32 {
	if r < k.n[kd] {
		return p.first[kd] + r
	}
	return p.fixed[kd] + r - k.n[kd]
}

// fill writes a launch's constants behind the registers.
func (p *program) fill(l *Launch, file []uint64) {
	for _, kd := range []kind{k32, k64, kPred} {
		for i, c := range l.Kernel.consts[kd] {
			v := l.constant(c)
			switch kd {
			case k32:
				v &= 0xffffffff
			case kPred:
				v &= 1
			}
			file[int(p.fixed[kd])+i] = v
		}
	}
}

var atomNames = func() (names [atomXor + 1]string) {
	for name, sub := range atomOps {
		names[sub] = name
	}
	return names
}()

// describe makes the Inst of an operation.
func describe(k *Kernel, o *op) Inst {
	at := k.stmts[o.stmt]
	in := Inst{File: k.file, Line: at.line, Text: at.text}
	switch o.code {
	case opLoad, opStore, opAtomic:
		in.Sem, in.Scope, in.Space = Sem(o.sem), Scope(o.scope), Space(o.space)
		in.Size, in.Elements = int(o.size), max(int(o.nv), 1)
		if o.whole {
			in.Size, in.Elements = 16, 1
		}
		in.NonCoherent = o.nc
		if o.space == spLocal || o.space == spParam {
			return in
		}
		switch o.code {
		case opLoad:
			in.Kind = Load
		case opStore:
			in.Kind = Store
		default:
			in.Kind, in.Red, in.Atomic = Atomic, o.kd == kNone, atomNames[o.sub]
		}
	case opNop:
		switch o.sub {
		case nopFence:
			in.Kind, in.Sem, in.Scope = Fence, Sem(o.sem), Scope(o.scope)
		case nopGridWait:
			in.Kind = GridWait
		case nopGridLaunch:
			in.Kind = GridLaunch
		}
	case opBarrier:
		in.Kind, in.Barrier, in.Aligned = Barrier, BarrierKind(o.sub)+1, o.imm != 0
	case opSleep:
		in.Kind = Sleep
	case opWarpSync, opShuffle, opVote, opMatch, opReduce, opElect:
		in.Kind, in.Code = Collective, Code(o.code-opWarpSync)+CodeWarpSync
		in.Operation = operation(in.Text)
	}
	return in
}

// operation is the opcode of an instruction and its modifiers, without the guard.
func operation(text string) string {
	for _, word := range strings.Fields(text) {
		if word[0] != '@' {
			return word
		}
	}
	return text
}

// cycles tells which operations lie on a cycle: the strongly connected components of more than one operation, by
// Tarjan's algorithm, and those that jump to themselves.
func cycles(k *Kernel) []bool {
	n := len(k.ops)
	on := make([]bool, n)
	number, low := make([]int32, n), make([]int32, n) // visit number, 0 unvisited; done is noLimit
	edge := make([]int32, n)
	var stack, path []int32
	count := int32(0)
	visit := func(v int32) {
		count++
		number[v], low[v] = count, count
		stack, path = append(stack, v), append(path, v)
	}
	visit(0)
	for len(path) > 0 {
		v := path[len(path)-1]
		if s, ok := k.successor(v, edge[v]); ok {
			edge[v]++
			switch {
			case s == v:
				on[v] = true
			case number[s] == 0:
				visit(s)
			default:
				low[v] = min(low[v], number[s])
			}
			continue
		}
		path = path[:len(path)-1]
		if len(path) > 0 {
			u := path[len(path)-1]
			low[u] = min(low[u], low[v])
		}
		if low[v] != number[v] {
			continue
		}
		alone := stack[len(stack)-1] == v
		for {
			u := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			number[u] = noLimit
			on[u] = on[u] || !alone
			if u == v {
				break
			}
		}
	}
	return on
}

// successor is the i-th operation that may follow v.
func (k *Kernel) successor(v, i int32) (int32, bool) {
	o := &k.ops[v]
	falls := o.guard != noReg
	switch o.code {
	case opJump:
		return o.target, i == 0
	case opBranch:
		if i == 0 {
			return o.target, true
		}
		i--
	case opBranchIndex:
		table := k.tables[o.target]
		if int(i) < len(table) {
			return table[i], true
		}
		i -= int32(len(table))
	case opExit, opTrap:
	default:
		falls = true
	}
	return v + 1, falls && i == 0
}
