package check

import "slices"

// wrong says where memory is not what it must be: the first such byte.
type wrong struct {
	message        string
	buffer, offset int
}

func (w *wrong) Error() string { return w.message }

// told is an operation for the history of a wrong result.
type told struct {
	event
	address uint64
	size    int
	value   value
	weak    bool
	from    event // what it read; of a write, nothing
	newer   *told // a write that was there and that it did not read
}

// trace is kept while an execution with a wrong result runs again: what the thread read that wrote it.
type trace struct {
	writer  event  // of the wrong byte
	address uint64 // of that byte
	all     bool   // keep weak reads of its own device's memory too
	reads   []told
	missed  int  // reads that were dropped
	ahead   int  // of the reads, those ahead of the write
	wrote   told // the write
}

const (
	mostTraced = 4096
	mostHops   = 4  // copies that are followed back to what a kernel wrote
	mostLines  = 11 // of the history of a wrong result
)

func (r *trace) of(t *thread) bool { return t.id == r.writer.id && t.task == r.writer.task }

// traceRead keeps a read of the traced thread, if it is strong or has to do with others.
func (x *exec) traceRead(t *thread, e event, address uint64, size int, v value, weak bool, from event, l *location) {
	r := x.trace
	if !r.of(t) {
		return
	}
	b := x.mem.find(address, size)
	if b == nil { // shared memory
		return
	}
	foreign := b.device != int(t.device) || from.inst != nil && x.p.Tasks[from.task].Device != int(t.device)
	if weak && !foreign && !r.all {
		return
	}
	n := told{event: e, address: address, size: size, value: v, weak: weak, from: from}
	if l != nil && !sameEvent(l.last().event, from) {
		w := l.last()
		n.newer = &told{event: w.event, address: address, size: size, value: w.value}
	}
	if k := len(r.reads); k > r.ahead {
		o := &r.reads[k-1]
		same := o.inst == e.inst && sameEvent(o.from, from) && o.from.inst == from.inst
		if same && o.address == address && o.size == size { // a poll that sees the same again
			*o = n
			return
		}
		if same && weak && o.weak && o.n == e.n && o.address+uint64(o.size) == address { // the next word of a vector
			if o.size+size <= 16 {
				for i := range size {
					o.value.put(o.size+i, v.byte(i))
				}
			}
			o.size += size
			return
		}
	}
	if len(r.reads) == mostTraced {
		r.reads = slices.Delete(r.reads, 0, mostTraced/2)
		r.missed += mostTraced / 2
		r.ahead = max(0, r.ahead-mostTraced/2)
	}
	r.reads = append(r.reads, n)
}

// traceWrite notes that the traced thread writes what turns out to be wrong.
func (x *exec) traceWrite(t *thread, e event, address uint64, size int, v value) {
	r := x.trace
	if r.of(t) && e.n == r.writer.n && e.inst == r.writer.inst && r.address >= address && r.address-address < uint64(size) {
		r.wrote, r.ahead = told{event: e, address: address, size: size, value: v}, len(r.reads)
	}
}

// writerOf is whose write a byte holds.
func (x *exec) writerOf(b *buffer, off int) event {
	c := &b.cells[off/4]
	for l := c.loc; l != nil; l = l.next {
		if at := b.base + uint64(off) - l.address; at < uint64(l.size) {
			return l.last().event
		}
	}
	if c.parts != nil {
		return c.parts[off%4].writer
	}
	return c.writer
}

// wrongResult is the finding that memory is not what it must be in the end.
func (x *exec) wrongResult(w *wrong) Finding {
	f := Finding{Kind: Stale, Message: w.message, wrong: w}
	b := &x.mem.buffers[x.c.bufferAt[w.buffer]]
	f.writer = x.writerOf(b, w.offset)
	if f.writer.id < 0 {
		f.Missing = "a write: it is what it was at the start"
		return f
	}
	f.B = x.describe(f.writer, true)
	f.B.at(b, w.offset, 1)
	return f
}

// operation puts what was traced into words.
func (x *exec) operation(o *told, writes bool) *Access {
	a := x.describe(o.event, writes)
	a.is(o.value, true)
	if b := x.mem.find(o.address, o.size); b != nil {
		a.at(b, int(o.address-b.base), o.size)
	}
	return a
}

// explain runs the execution of a wrong result again, for the write of it and what its thread read ahead of that. Of copies
// it goes back to what was copied.
func (s *search) explain(f *Finding) {
	x := s.x
	if f.wrong == nil || f.writer.inst == nil || x.p.Racy {
		return
	}
	choose, ops, evicted, why, all := x.choose, x.ops, x.evicted, x.why, x.all
	defer func() {
		x.choose, x.ops, x.evicted, x.why, x.all, x.trace = choose, ops, evicted, why, all, nil
	}()
	token := f.Token
	r := &trace{writer: f.writer, address: x.c.bases[f.wrong.buffer] + uint64(f.wrong.offset)}
	for range mostHops {
		copies := x.p.Tasks[r.writer.task].Kernel == copyKernel()
		r.all = copies
		x.trace = r
		again := search{x: x, o: Options{Findings: 1}, r: &Result{Outcomes: map[string]uint64{}}}
		if err := again.replay(token); err != nil || len(again.r.Findings) != 1 || again.r.Findings[0].Message != f.Message || r.wrote.inst == nil {
			return // it ended early, or is none that runs twice alike
		}
		f.B = x.operation(&r.wrote, true)
		if copies && r.ahead > 0 && r.reads[r.ahead-1].from.inst != nil {
			o := &r.reads[r.ahead-1]
			r = &trace{writer: o.from, address: o.address + (r.address - r.wrote.address)}
			continue
		}
		f.led, f.Traced = f.History, true
		f.History, f.Left = x.readsOf(r)
		return
	}
}

// readsOf are the reads that explain most: those that missed a newer write, and then the latest.
func (x *exec) readsOf(r *trace) (list []Access, left int) {
	room := mostLines
	chosen := make([]bool, r.ahead)
	for _, stale := range []bool{true, false} {
		for i := r.ahead - 1; i >= 0; i-- {
			lines := 2
			if r.reads[i].newer != nil {
				lines = 3
			}
			if (r.reads[i].newer != nil) == stale && lines <= room {
				chosen[i] = true
				room -= lines
			}
		}
	}
	left = r.missed
	for i := range chosen {
		if !chosen[i] {
			left++
			continue
		}
		o := &r.reads[i]
		a := x.operation(o, false)
		a.ReadFrom = x.operation(&told{event: o.from, address: o.address, size: o.size, value: o.value}, true)
		if o.newer != nil {
			a.Newer = x.operation(o.newer, true)
		}
		list = append(list, *a)
	}
	return list, left
}
