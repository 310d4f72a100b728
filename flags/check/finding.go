package check

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/internal/ptx"
)

// logged is a strong operation of the execution, for the history of a finding.
type logged struct {
	event
	cta    int32
	at     *location
	value  value
	writes bool
}

const mostLogged = 4096

func (x *exec) note(t *thread, in *ptx.Inst, l *location, w *write, writes bool) {
	if len(x.log) == mostLogged {
		copy(x.log, x.log[mostLogged/2:])
		x.log = x.log[:mostLogged/2]
	}
	x.log = append(x.log, logged{t.now(in), t.cta, l, w.value, writes})
	switch {
	case x.trace == nil:
	case writes:
		x.traceWrite(t, w.event, l.address, l.size, w.value)
	default:
		x.traceRead(t, t.now(in), l.address, l.size, w.value, in.Sem == ptx.Weak, w.event, l)
	}
}

// access describes what an event was.
func (x *exec) describe(e event, writes bool) *Access {
	a := &Access{Device: Host, Write: writes}
	if e.inst == nil {
		if e.id < 0 {
			a.Text = "initial value"
		}
		return a
	}
	k := &x.p.Tasks[e.task]
	n := int(e.id - x.c.clockID[e.task])
	a.Device, a.Task = k.Device, x.taskName(int(e.task))
	split := func(n int, d [3]uint32) [3]uint32 {
		return [3]uint32{uint32(n) % d[0], uint32(n) / d[0] % d[1], uint32(n) / d[0] / d[1]}
	}
	a.Block, a.Thread = split(n/x.c.perBlock(int(e.task)), k.Grid), split(n%x.c.perBlock(int(e.task)), k.Block)
	x.instruction(a, e.inst)
	return a
}

// taskName is what a launch is called in reports.
func (x *exec) taskName(i int) string {
	if k := &x.p.Tasks[i]; k.Name == "" {
		return k.Kernel.Sig.Name
	}
	return x.p.Tasks[i].Name
}

func (x *exec) instruction(a *Access, in *ptx.Inst) {
	a.File, a.Line, a.Text = in.File, in.Line, in.Text
	a.Strong = in.Sem != ptx.Weak
	if a.Strong {
		a.Scope = scopeOf(in).String()
	}
	x.sourced(a)
}

// sourced adds where a's line of PTX came from.
func (x *exec) sourced(a *Access) {
	if x.p.Lines == nil {
		return
	}
	if s, n, ok := x.p.Lines(a.File, a.Line); ok {
		a.Source, a.SourceLine = s, n
		if x.p.Calls != nil {
			a.Calls = x.p.Calls(a.File, a.Line)
		}
	}
}

func (a *Access) at(b *buffer, off, size int) {
	a.Buffer, a.Offset, a.Size = b.name, off, size
}

// is gives a its value.
func (a *Access) is(v value, known bool) {
	if a.Known = known; known {
		a.Value, a.High = v.low, v.high
	}
}

// held is what a write put into memory that only weak accesses use, if that is all of what is there.
func (b *buffer) held(w event, off, size int) (v value, ok bool) {
	if w.inst != nil && size > w.inst.Size { // it wrote a part
		return v, false
	}
	for i := range size {
		c := &b.cells[(off+i)/4]
		m := &c.mark
		if c.parts != nil {
			m = &c.parts[(off+i)%4]
		}
		if c.loc != nil || len(m.also) > 0 || !sameEvent(m.writer, w) || m.writer.inst != w.inst {
			return value{}, false
		}
		v.put(i, byte(c.value>>(8*((off+i)%4))))
	}
	return v, true
}

// wrote is what a write gave the location, or its memory before that was one.
func (l *location) wrote(w event, b *buffer) (v value, ok bool) {
	if i := slices.IndexFunc(l.order, func(o *write) bool { return sameEvent(o.event, w) }); i >= 0 {
		o := l.order[i]
		return o.value, o.clocks != nil // without, it may stand for several
	}
	return b.held(w, int(l.address-b.base), l.size)
}

// stores is what the store that t is at writes to size bytes at address, all of one element.
func (t *thread) stores(address uint64, size int) (v value, ok bool) {
	ev := &t.event
	if ev.Kind != ptx.Store || address < ev.Addr {
		return v, false
	}
	in := ev.Inst
	at := int(address - ev.Addr)
	if at/in.Size >= in.Elements || at%in.Size+size > in.Size {
		return v, false
	}
	word := min(in.Size, 8) // bytes of one of Values
	for i := range size {
		v.put(i, byte(ev.Values[(at+i)/word]>>(8*((at+i)%word))))
	}
	return v, true
}

// report ends the execution with a finding.
func (x *exec) report(t *thread, f Finding) {
	if f.B == nil && t != nil {
		f.B = x.describe(t.now(t.event.Inst), false)
	}
	told := x.conversation()
	for i := max(0, len(told)-mostHistory); i < len(told); i++ {
		e := &told[i]
		a := x.describe(e.event, e.writes)
		a.is(e.value, true)
		if b := x.mem.find(e.at.address, e.at.size); b != nil {
			a.at(b, int(e.at.address-b.base), e.at.size)
		}
		f.History = append(f.History, *a)
	}
	x.found = append(x.found, f)
	x.over = true
}

const mostHistory = 24

// conversation are the strong operations at locations that more than one block uses: what a thread block says to itself
// explains nothing.
func (x *exec) conversation() []logged {
	first := map[*location]int32{}
	several := map[*location]bool{}
	for i := range x.log {
		e := &x.log[i]
		if c, ok := first[e.at]; !ok {
			first[e.at] = e.cta
		} else if c != e.cta {
			several[e.at] = true
		}
	}
	var out []logged
	for i := range x.log {
		if several[x.log[i].at] {
			out = append(out, x.log[i])
		}
	}
	return out
}

// race is one between plain accesses: first came before second in this execution, and nothing orders them.
func (x *exec) race(t *thread, first, second event, b *buffer, off, size int, firstReads, secondWrites bool) {
	f := Finding{Kind: Race, A: x.describe(first, !firstReads), B: x.describe(second, secondWrites)}
	f.A.at(b, off, size)
	f.B.at(b, off, size)
	if f.A.Write {
		f.A.is(b.held(first, off, size))
	}
	if f.B.Write {
		f.B.is(t.stores(b.base+uint64(off), size))
	}
	x.raced = true
	x.blame(&f)
	x.report(nil, f)
}

// raceAt is one at a location with a history.
func (x *exec) raceAt(t *thread, first, second event, l *location, firstReads, secondWrites, bothStrong bool) {
	x.raced = true
	if x.p.Racy && len(x.found) > 0 {
		return
	}
	f := Finding{Kind: Race, A: x.describe(first, !firstReads), B: x.describe(second, secondWrites)}
	if b := x.mem.find(l.address, l.size); b != nil {
		f.A.at(b, int(l.address-b.base), l.size)
		f.B.at(b, int(l.address-b.base), l.size)
		if f.A.Write {
			f.A.is(l.wrote(first, b))
		}
		if f.B.Write {
			f.B.is(t.stores(l.address, l.size))
		}
	}
	x.blame(&f)
	if bothStrong {
		f.Missing = fmt.Sprintf("a scope of both that includes the other: they are .%s and .%s, on devices %d and %d", f.A.Scope, f.B.Scope, f.A.Device, f.B.Device)
	}
	x.report(nil, f)
	if x.p.Racy {
		x.over = false
	}
}

// blame puts a race into words.
func (x *exec) blame(f *Finding) {
	verb := func(a *Access) string {
		if a.Write {
			return "writes"
		}
		return "reads"
	}
	who := func(a *Access) string {
		if a.Device == Host {
			return "the host"
		}
		return fmt.Sprintf("device %d", a.Device)
	}
	f.Message = fmt.Sprintf("%s %s what %s %s, and nothing orders the two", who(f.A), verb(f.A), who(f.B), verb(f.B))
	switch {
	case f.A.Device != f.B.Device:
		f.Missing = "a release at .sys after the first and an acquire at .sys, of what was released, before the second"
	case f.A.Block != f.B.Block || f.A.Task != f.B.Task:
		f.Missing = "a release at .gpu or .sys after the first and an acquire before the second"
	default:
		f.Missing = "a barrier of the block between the two, or a release and an acquire"
	}
}

// mixed is a race between accesses that overlap in part.
func (x *exec) mixed(first, second event, l *location, firstReads, secondWrites bool) {
	f := Finding{Kind: MixedSize, A: x.describe(first, !firstReads), B: x.describe(second, secondWrites)}
	if b := x.mem.find(l.address, l.size); b != nil {
		f.A.at(b, int(l.address-b.base), l.size)
		if f.A.Write {
			f.A.is(l.wrote(first, b))
		}
	}
	x.blame(&f)
	f.Message += "; they overlap in part, so the model promises nothing of either"
	x.raced = true
	x.report(nil, f)
}

// torn is an atomic whose scope leaves out another that it comes between.
func (x *exec) torn(w *write, a *actor, l *location) {
	f := Finding{Kind: Torn, A: x.describe(w.event, true), B: x.describe(a.event, true),
		Message: "an atomic operation can come between another's read and write: the scope of one does not include the other",
		Missing: "a scope that includes both"}
	if b := x.mem.find(l.address, l.size); b != nil {
		f.A.at(b, int(l.address-b.base), l.size)
		f.A.is(w.value, true)
	}
	x.report(nil, f)
}

func (x *exec) wild(t *thread) {
	ev := &t.event
	x.report(t, Finding{Kind: Faulted, Message: fmt.Sprintf("no buffer holds %d bytes at %#x", ev.Inst.Size*ev.Inst.Elements, ev.Addr)})
}

func (x *exec) misaligned(t *thread) {
	x.report(t, Finding{Kind: Faulted, Message: fmt.Sprintf("%#x is no multiple of %d", t.event.Addr, t.event.Inst.Size)})
}

func (x *exec) fault(t *thread, err error) {
	f := Finding{Kind: Faulted, Message: err.Error(), B: &Access{Device: int(t.device)}}
	var p *ptx.Fault
	if errors.As(err, &p) {
		f.B = &Access{Task: x.p.Tasks[t.task].Name, Device: int(t.device), Block: p.Block, Thread: p.Thread, File: p.File, Line: p.Line, Text: p.Text}
		x.sourced(f.B)
		if p.Kind == ptx.Deadlock {
			f.Kind, f.Message = Endless, fmt.Sprintf("a kernel that never ends, or one that runs more than %d instructions with no access to shared or global memory among them: if it ends, check it with shorter loops", uint64(mostAlone))
		}
	}
	x.report(t, f)
}

func (x *exec) endless(t *thread) {
	x.report(t, Finding{Kind: Endless, Message: fmt.Sprintf("a kernel that never ends, or one that needs more than %d steps: if it ends, check it with shorter loops or smaller buffers", x.limit)})
}

func (x *exec) undecided(t *thread) {
	x.report(t, Finding{Kind: Endless, Message: fmt.Sprintf("a kernel that never ends, or one that makes more than %d choices in one execution: check smaller sizes systematically, or this one at random", mostDecisions)})
}

func (x *exec) constantWritten(w event, r constantRead) {
	f := Finding{Kind: ReadOnly, A: x.describe(w, true), B: x.describe(r.event, false),
		Message: "ld.global.nc reads memory that is written while the kernel runs: such loads are outside the memory model"}
	f.A.at(r.buffer, r.off, r.n)
	f.B.at(r.buffer, r.off, r.n)
	x.report(nil, f)
}

// stuck is the end of an execution in which nobody can go on.
func (x *exec) stuck() {
	if x.searching() {
		x.prune() // the search waited for a write that does not come this way
		return
	}
	f := Finding{Kind: Stuck, Message: "threads wait for what never comes"}
	for i := range x.tasks {
		if x.mayStartEarly(i) {
			f.Message += fmt.Sprintf("; %s on device %d depends on the launch ahead, and may start as late as at that one's end", x.taskName(i), x.p.Tasks[i].Device)
			f.Missing = "nothing that a launch waits for may be left to the launch that depends on it"
			break
		}
	}
	var polls []Access
	for _, i := range x.ready {
		t := x.threads[i]
		if t.state == ended {
			continue
		}
		list := x.waitsAt(t.index)
		for _, l := range list {
			if len(polls) < mostWaiting {
				polls = append(polls, *x.poll(t, l))
			}
		}
		if len(list) == 0 && len(f.Waiting) < mostWaiting {
			f.Waiting = append(f.Waiting, *x.describe(t.now(t.event.Inst), false))
		}
	}
	f.Waiting = append(polls, f.Waiting...)
	f.Waiting = f.Waiting[:min(len(f.Waiting), mostWaiting)]
	x.report(nil, f)
}

const (
	mostWaiting = 64
	mostPolled  = 2 // writes that are told of what a thread polls
)

// poll is t as it polls l in vain.
func (x *exec) poll(t *thread, l *location) *Access {
	a := x.describe(t.now(t.event.Inst), false)
	a.is(l.last().value, true)
	b := x.mem.find(l.address, l.size)
	if b == nil {
		b = x.buffer(t, t.event.Space, t.event.Addr, l.size)
	}
	if b != nil {
		a.at(b, int(l.address-b.base), l.size)
	}
	for i := len(l.order) - 1; i >= 0; i-- {
		w := l.order[i]
		switch {
		case w.id < 0:
		case len(a.Writes) == mostPolled:
			a.Earlier++
		default:
			v := x.describe(w.event, true)
			v.is(w.value, true)
			v.Size = l.size
			a.Writes = append(a.Writes, *v)
		}
	}
	slices.Reverse(a.Writes)
	return a
}

// waitsAt are the locations that a thread waits at for another value.
func (x *exec) waitsAt(i int32) []*location {
	var list []*location
	for _, l := range x.allLocs[:x.usedLocs] {
		if slices.Contains(l.waiters, i) {
			list = append(list, l)
		}
	}
	return list
}

// prune ends an execution that the model does not allow.
func (x *exec) prune() { x.over, x.pruned = true, true }

// cut says that the search leaves something out.
func (x *exec) cut(why string) {
	if x.why == "" {
		x.why = why
	}
}
