package ptx

import (
	"errors"
	"fmt"
	"math"
)

// Thread is one thread of a kernel, stepped by a caller that owns all memory and all synchronisation. Next runs the
// thread by itself as far as what concerns it alone: arithmetic, branches, parameters, local memory. Everything else is
// an Event, which the caller answers. A thread is used by one goroutine at a time.
//
// What differs from a Block: a kernel with activemask is refused, since lanes are not in step; local memory is not zero at
// the start, since nothing says that it is; %clock counts the thread's own instructions; Launch.StepLimit bounds these;
// hints (prefetch, applypriority) are no events.
type Thread struct {
	prog   *program
	launch *Launch
	block  [3]uint32
	thread [3]uint32
	index  uint32 // linear in the block
	exist  uint32 // lanes of its warp
	sm     uint32
	shared uint64 // bytes of the block's shared memory

	state  threadState
	pc     int32
	steps  uint64
	limit  uint64
	regs   []uint64 // registers, then constants; predicates are 0 or 1
	local  []byte
	defers []deferred
	ev     Event
	fault  *Fault
}

type threadState uint8

const (
	runs     threadState = iota
	reported             // ev, which needs no answer
	asked                // ev, which needs one
	exited
	faulted
)

// deferred is a register that waits for its value.
type deferred struct {
	reg   int32
	from  int32 // the load or atomic, by index of its op
	part  int32 // of a value of 16 bytes: which half
	token uint64
}

// NewThread makes a thread ready to run at the kernel's entry. The launch needs neither Memory nor SM. It fails when
// the launch does not fit the kernel, and with an *Error for a kernel that depends on which lanes are in step.
func NewThread(l *Launch, block, thread [3]uint32) (*Thread, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	for i := range block {
		if block[i] >= l.Grid[i] || thread[i] >= l.Block[i] {
			return nil, fmt.Errorf("thread %v of block %v is outside the grid %v of blocks %v", thread, block, l.Grid, l.Block)
		}
	}
	k := l.Kernel
	p := k.forThreads()
	if p.no != nil {
		return nil, p.no
	}
	t := &Thread{prog: p, launch: l, shared: uint64(k.dynamicAt() + l.Shared), limit: l.StepLimit,
		regs: make([]uint64, p.size), local: make([]byte, k.Local)}
	if t.limit == 0 {
		t.limit = math.MaxUint64
	}
	p.fill(l, t.regs)
	litter(t.local)
	t.place(block, thread)
	return t, nil
}

// Reset takes the thread back to the entry, as another thread of the launch, which must be one that exists.
func (t *Thread) Reset(block, thread [3]uint32) {
	clear(t.regs[:t.prog.regs])
	litter(t.local)
	t.state, t.pc, t.steps, t.defers, t.ev, t.fault = runs, 0, 0, t.defers[:0], Event{}, nil
	t.place(block, thread)
}

// litter is what memory holds that nobody has written.
func litter(p []byte) {
	for i := range p {
		p[i] = byte(0xb5 + 41*i)
	}
}

func (t *Thread) place(block, thread [3]uint32) {
	shape := t.launch.Block
	t.block, t.thread = block, thread
	t.index = thread[0] + shape[0]*(thread[1]+shape[1]*thread[2])
	t.exist = fullMask
	if left := shape[0]*shape[1]*shape[2] - t.index&^31; left < 32 {
		t.exist = 1<<left - 1
	}
	t.sm = 0
	if t.launch.SM != nil {
		t.sm = t.launch.SM(block)
	}
}

// Copy makes t the same as from, current event and deferred values included. t may be the zero Thread; its storage is
// used again, so nothing is allocated when both are of one launch and t has been copied to before.
func (t *Thread) Copy(from *Thread) {
	if t == from {
		return
	}
	regs, local, defers := t.regs, t.local, t.defers
	n := from.prog.regs // the constants are there already
	if t.launch != from.launch {
		n = from.prog.size
		regs, local = resized(regs, n), resized(local, len(from.local))
	}
	*t = *from
	copy(regs, from.regs[:n])
	copy(local, from.local)
	t.regs, t.local, t.defers = regs, local, append(defers[:0], from.defers...)
}

func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// ID says which thread of the launch this is.
func (t *Thread) ID() (block, thread [3]uint32) { return t.block, t.thread }

// Lane is the thread's place in its warp, Warp the warp's in the block. Exist are the lanes that the warp has.
func (t *Thread) Lane() uint32  { return t.index % 32 }
func (t *Thread) Warp() uint32  { return t.index / 32 }
func (t *Thread) Exist() uint32 { return t.exist }

// Steps is the number of instructions executed so far.
func (t *Thread) Steps() uint64 { return t.steps }

// At is the instruction that the thread is at: that of the event not yet answered, or the next one to run.
func (t *Thread) At() *Inst { return &t.prog.insts[t.pc] }

// Event is what Next returned last, nil when that has been answered or the thread has not run.
func (t *Thread) Event() *Event {
	if t.state == runs && t.ev.Kind != Use || t.state == faulted {
		return nil
	}
	return &t.ev
}

// Register is the value of a register by its PTX name, in a kernel from ParseObserved. Registers declared in inner
// scopes and in functions have no name here. It is not ok when there is no such register, when it is one of 128 bits, or when its
// value is deferred.
func (t *Thread) Register(name string) (value uint64, ok bool) {
	r, ok := t.named(name)
	if !ok || t.token(r) != 0 {
		return 0, false
	}
	return t.regs[r], true
}

// RegisterToken is the token of a register whose value is deferred, else 0. The name is as for Register.
func (t *Thread) RegisterToken(name string) uint64 {
	r, ok := t.named(name)
	if !ok {
		return 0
	}
	return t.token(r)
}

func (t *Thread) named(name string) (int32, bool) {
	k := t.launch.Kernel
	if k.names == nil {
		return 0, false
	}
	y, ok := k.names.lookup(name)
	if !ok || y.kind != symReg || y.typ == tB128 {
		return 0, false
	}
	return t.prog.register(k, y.reg, y.typ.kind()), true
}

// Pending appends the tokens that registers still wait for, each once, in the order of their loads.
func (t *Thread) Pending(to []uint64) []uint64 {
	n := len(to)
next:
	for i := range t.defers {
		for _, seen := range to[n:] {
			if seen == t.defers[i].token {
				continue next
			}
		}
		to = append(to, t.defers[i].token)
	}
	return to
}

// Allow lets the thread execute n more instructions, whatever Launch.StepLimit says. Then Next fails with a Deadlock.
func (t *Thread) Allow(n uint64) { t.limit = t.steps + n }

// Next runs the thread to its next event. An event that needs an answer and has none is returned again. After Exit
// there is only Exit. The error is always a *Fault, and stays.
func (t *Thread) Next() (*Event, error) {
	switch t.state {
	case reported:
		t.pc++
		t.state = runs
	case asked, exited:
		return &t.ev, nil
	case faulted:
		return nil, t.fault
	}
	ops, regs := t.prog.ops, t.regs
	pc := t.pc
	for {
		o := &ops[pc]
		if t.steps >= t.limit {
			return t.fail(pc, Deadlock, 0, 0, fmt.Errorf("%d instructions and no end", t.steps))
		}
		if len(t.defers) != 0 {
			if token := t.blocked(o); token != 0 {
				t.pc = pc
				t.ev = Event{Kind: Use, Inst: &t.prog.insts[pc], Token: token}
				return &t.ev, nil
			}
		}
		t.steps++
		if o.guard >= 0 && (regs[o.guard] == 0) != o.gneg {
			pc++
			continue
		}
		if o.code < opFirstMem {
			if o.code == opNop && o.sub != nopHint {
				return t.report(pc, reported, Event{})
			}
			t.alu(o)
			if len(t.defers) != 0 {
				t.overwrite(o)
			}
			pc++
			continue
		}
		switch o.code {
		case opJump:
			t.steps-- // put in by the layout
			pc = o.target
		case opBranch:
			pc = o.target
		case opBranchIndex:
			table, i := t.launch.Kernel.tables[o.target], uint32(regs[o.a])
			if int64(i) >= int64(len(table)) {
				return t.fail(pc, Trap, 0, 0, errors.New("brx.idx index is outside its list of targets"))
			}
			pc = table[i]
		case opExit:
			return t.report(pc, exited, Event{Kind: Exit})
		case opTrap:
			return t.fail(pc, Trap, 0, 0, errors.New("the kernel executed trap"))
		case opLoadParam:
			t.loadPrivate(o, t.launch.Params[o.imm:])
			pc++
		case opLoad, opStore, opAtomic:
			t.pc = pc
			ev, err := t.access(o)
			if ev != nil || err != nil {
				return ev, err
			}
			pc++
		case opBarrier:
			return t.barrier(pc, o)
		case opSleep:
			return t.report(pc, reported, Event{Values: [4]uint64{min(regs[o.a], 1000000)}})
		default:
			return t.report(pc, asked, Event{Mask: uint32(regs[o.b])})
		}
	}
}

// report makes ev the event at pc.
func (t *Thread) report(pc int32, s threadState, ev Event) (*Event, error) {
	t.pc, t.state, t.ev = pc, s, ev
	t.ev.Inst = &t.prog.insts[pc]
	if ev.Kind == 0 {
		t.ev.Kind = t.ev.Inst.Kind
	}
	return &t.ev, nil
}

func (t *Thread) fail(pc int32, kind FaultKind, addr uint64, size int, err error) (*Event, error) {
	k := t.launch.Kernel
	at := k.stmts[t.prog.ops[pc].stmt]
	t.pc, t.state = pc, faulted
	t.fault = &Fault{Kind: kind, Block: t.block, Thread: t.thread, File: k.file, Line: at.line, Text: at.text,
		Addr: addr, Size: size, Err: err}
	return nil, t.fault
}

func (t *Thread) barrier(pc int32, o *op) (*Event, error) {
	ev := Event{Barrier: uint32(t.regs[o.a])}
	if ev.Barrier > 15 {
		return t.fail(pc, Trap, 0, 0, fmt.Errorf("barrier %d: there are 16", ev.Barrier))
	}
	if o.kb != kNone {
		if ev.Threads = uint32(t.regs[o.b]); ev.Threads == 0 || ev.Threads%32 != 0 {
			return t.fail(pc, Trap, 0, 0, fmt.Errorf("barrier for %d threads: the count is a multiple of 32", ev.Threads))
		}
	}
	if o.kc == kNone {
		return t.report(pc, reported, ev)
	}
	ev.Pred = t.regs[o.c] != 0
	return t.report(pc, asked, ev)
}
