package check

import "slices"

// taskState is a task of one execution.
type taskState struct {
	started   bool
	ended     bool
	chosen    bool    // whether it starts late
	late      bool    // a dependent that starts no earlier than it must, although it may
	unstarted int     // blocks
	queue     []int32 // of those, where a limit makes them wait
	resident  int     // blocks
	live      int     // threads
	launched  int     // blocks that let dependents start, or have ended
	done      clocks
	begin     clocks
}

// startTasks starts what may start.
func (x *exec) startTasks() {
	for again := true; again && !x.over; {
		again = false
		for i := range x.tasks {
			if s := &x.tasks[i]; !s.started && x.mayStart(i) {
				x.startTask(i)
				again = true
			}
		}
	}
}

// before are the tasks that must have ended before i starts; early is one that need only have let its dependents start, or -1.
func (c *compiled) before(p *Program, i int) (list []int, early int) {
	early = -1
	k := &p.Tasks[i]
	list = append(list, k.After...)
	prev := -1
	for j := range i {
		o := &p.Tasks[j]
		switch {
		case o.Device == Host:
			list = append(list, j) // the host had finished it when it issued i
		case o.Stream == k.Stream && o.Device == k.Device:
			prev = j
			if !k.Dependent {
				list = append(list, j)
			}
		}
	}
	if k.Dependent && prev >= 0 {
		early = prev
		// A launch that is no dependent waits for all before it, and so do those that depend on it.
		for j := prev; j >= 0; j-- {
			if o := &p.Tasks[j]; o.Stream == k.Stream && o.Device == k.Device && !o.Dependent {
				list = append(list, c.befores[j]...)
				break
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), early
}

func (x *exec) mayStart(i int) bool {
	for _, j := range x.c.befores[i] {
		if !x.tasks[j].ended {
			return false
		}
	}
	e := x.c.early[i]
	if e < 0 || x.tasks[e].ended {
		return true
	}
	if !x.mayStartEarly(i) {
		return false
	}
	s := &x.tasks[i]
	if !s.chosen {
		s.chosen, s.late = true, x.choose.late(x)
	}
	return !s.late
}

// mayStartEarly is whether dependent i, whose launch ahead has not ended, was let start by it.
func (x *exec) mayStartEarly(i int) bool {
	e := x.c.early[i]
	if e < 0 || x.tasks[i].started || slices.ContainsFunc(x.c.befores[i], func(j int) bool { return !x.tasks[j].ended }) {
		return false
	}
	s := &x.tasks[e]
	return s.started && s.unstarted == 0 && s.live > 0 && s.launched >= x.c.blocks(e)
}

// hasten starts the dependents that could have started earlier, when the search has somebody wait for what others do. False: it has
// not, or there are none.
//
// When a dependent starts decides nothing but who waits in vain: its operations can come after those of the launch ahead however
// early it starts, and whoever is to see one of them waits for it. So a start as late as can be shows whether anybody needs an
// earlier one, which nothing promises.
func (x *exec) hasten() bool {
	if !x.searching() {
		return false
	}
	any := false
	for i := range x.tasks {
		if x.mayStartEarly(i) {
			x.tasks[i].late, any = false, true
		}
	}
	x.started = x.started && !any
	return any
}

// searching is whether somebody waits because the search wants it to, and not because it has to.
func (x *exec) searching() bool {
	for _, i := range x.ready {
		t := x.threads[i]
		if t.state == ended {
			continue
		}
		if t.state == waitsWrite || t.forced != nil || slices.ContainsFunc(t.pending, func(p pending) bool { return p.want != noTarget }) {
			return true
		}
	}
	return false
}

func (x *exec) startTask(i int) {
	s := &x.tasks[i]
	s.started = true
	s.begin = x.slab.copy(x.zero)
	for _, j := range x.c.befores[i] {
		s.begin.join(x.tasks[j].done)
	}
	s.done = x.slab.copy(s.begin)
	k := &x.p.Tasks[i]
	if k.Device == Host {
		x.hostStep(i)
		return
	}
	s.unstarted = x.c.blocks(i)
	x.startBlocks(i)
}

// startBlocks starts blocks of task i as far as its limit has room. Which ones come first nothing says.
func (x *exec) startBlocks(i int) {
	s := &x.tasks[i]
	n, most := x.c.blocks(i), x.p.Tasks[i].Resident
	if most > 0 && most < n && s.unstarted == n {
		x.cut("blocks that wait for room start in one order only")
		for b := range n {
			s.queue = append(s.queue, int32(b))
		}
	}
	for s.unstarted > 0 && (most == 0 || s.resident < most) {
		b := n - s.unstarted
		if len(s.queue) > 0 {
			at := x.choose.block(len(s.queue))
			b = int(s.queue[at])
			s.queue = slices.Delete(s.queue, at, at+1)
		}
		s.unstarted--
		s.resident++
		x.startBlock(i, b)
	}
}

func (x *exec) startBlock(i, n int) {
	k := &x.p.Tasks[i]
	s := &x.tasks[i]
	cta := x.c.firstBlock[i] + int32(n)
	b := &x.blocks[cta]
	*b = block{threads: b.threads[:0], live: x.c.perBlock(i)}
	g := k.Grid
	at := [3]uint32{uint32(n) % g[0], uint32(n) / g[0] % g[1], uint32(n) / g[0] / g[1]}
	for lane := range x.c.perBlock(i) {
		index := x.c.firstThread[i] + int32(n*x.c.perBlock(i)+lane)
		t := x.threads[index]
		d := k.Block
		t.m.Reset(at, [3]uint32{uint32(lane) % d[0], uint32(lane) / d[0] % d[1], uint32(lane) / d[0] / d[1]})
		t.begin(x, s.begin)
		b.threads = append(b.threads, index)
		s.live++
		x.ready = append(x.ready, index)
	}
}

// begin makes t new.
func (t *thread) begin(x *exec, c clocks) {
	t.clocks = x.slab.copy(c)
	t.tick()
	t.fences, t.fenced = [5]head{}, [5]bool{}
	t.releases, t.gathered, t.pending = t.releases[:0], t.gathered[:0], t.pending[:0]
	t.state, t.held, t.forced, t.waiting = ready, false, nil, noTarget
	t.writes, t.scs, t.tokens, t.choice = 0, 0, 0, -1
	t.spins = nil
	t.hurried, t.most = false, 0
}

// finish ends task i.
func (x *exec) finish(i int) {
	s := &x.tasks[i]
	s.ended = true
	for _, t := range x.threads {
		if t.state == waitsGrid && x.c.early[t.task] == i {
			t.state = ready
		}
	}
	x.started = false
}

// launched is griddepcontrol.launch_dependents, or the end of a block: what counts is the first of these in each block.
func (x *exec) launched(t *thread) {
	k := &x.blocks[t.cta]
	if k.launched {
		return
	}
	k.launched = true
	s := &x.tasks[t.task]
	if s.launched++; s.launched == x.c.blocks(int(t.task)) {
		x.started = false // a dependent may start
	}
}

// gridWait is griddepcontrol.wait: the launch ahead has ended, and all it did comes before.
func (x *exec) gridWait(t *thread) bool {
	e := x.c.early[t.task]
	if e < 0 {
		return true
	}
	s := &x.tasks[e]
	if !s.ended {
		t.state = waitsGrid
		return false
	}
	t.clocks.join(s.done)
	t.tick()
	return true
}

// hostStep is what the host does itself, at once.
func (x *exec) hostStep(i int) {
	s := &x.tasks[i]
	h := &thread{index: -1, id: x.c.hostID, task: int32(i), device: Host, cta: -1, clocks: s.begin, waiting: noTarget, choice: -1}
	h.tick()
	m := x.hostMemory(h)
	x.p.Tasks[i].Do(m)
	s.done.join(h.clocks)
	s.done[h.id] = h.clocks[h.id]
	s.ended = true
	x.started = false
}

// hostMemory is memory as h sees it, which checks that all it touches is ordered.
func (x *exec) hostMemory(h *thread) *Memory {
	return &Memory{
		bytes: func(i int) []byte {
			b := &x.mem.buffers[x.c.bufferAt[i]]
			out := make([]byte, 0, len(b.cells)*4)
			for k := range b.cells {
				v := x.hostWord(h, b, k, false, 0, 0)
				out = append(out, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
			}
			return out[:b.size]
		},
		write: func(i, off int, data []byte) {
			b := &x.mem.buffers[x.c.bufferAt[i]]
			if off < 0 || off+len(data) > b.size {
				panic("check: a host task writes outside a buffer")
			}
			for k := 0; k < len(data); {
				word, at := (off+k)/4, (off+k)%4
				n := min(4-at, len(data)-k)
				var v, mask uint32
				for i := range n {
					v |= uint32(data[k+i]) << (8 * (at + i))
					mask |= 0xff << (8 * (at + i))
				}
				x.hostWord(h, b, word, true, v, mask)
				k += n
			}
		},
	}
}

// hostWord reads a word, or writes the bytes of v that mask names, for the host.
func (x *exec) hostWord(h *thread, b *buffer, word int, writes bool, v, mask uint32) uint32 {
	c := &b.cells[word]
	x.mem.touch(c)
	a := actor{event: h.now(nil), device: Host, cta: -1}
	x.seen = x.seen[:0]
	for c.loc != nil {
		if x.over || !x.settle(h, c.loc, b, &a, writes) {
			return 0
		}
	}
	e := h.now(nil)
	marks := []mark{c.mark}
	if c.parts != nil {
		marks = c.parts[:]
	}
	for i := range marks {
		if r := marks[i].collide(h.clocks, writes, x.seen...); r != nil && !x.over {
			x.race(h, *r, e, b, 4*word, 4, !sameEvent(*r, marks[i].writer), writes)
		}
	}
	if writes {
		c.parts = nil
		c.write(e)
		c.value = c.value&^mask | v&mask
	} else if c.parts == nil {
		c.read(h.clocks, e)
	} else {
		for i := range c.parts {
			c.parts[i].read(h.clocks, e)
		}
	}
	return c.value
}

// constantRead is memory that was read as if nobody wrote it.
type constantRead struct {
	event
	buffer *buffer
	off, n int
}

const mostConstant = 1 << 10 // before those are dropped that a launch has read before

func (x *exec) dropConstant() {
	type what struct {
		task   int32
		buffer *buffer
		off, n int
	}
	had := map[what]bool{}
	x.constant = slices.DeleteFunc(x.constant, func(r constantRead) bool {
		k := what{r.task, r.buffer, r.off, r.n}
		defer func() { had[k] = true }()
		return had[k]
	})
	x.mostConstant = 2 * len(x.constant)
}

// readsConstant is a ld.global.nc of t: whoever wrote that memory must have done so ahead of the launch.
func (x *exec) readsConstant(t *thread, b *buffer, off, n int) {
	r := constantRead{t.now(t.event.Inst), b, off, n}
	x.constant = append(x.constant, r)
	if len(x.constant) > max(x.mostConstant, mostConstant) {
		x.dropConstant()
	}
	begin := x.tasks[t.task].begin
	for i := off; i < off+n; i++ {
		c := &b.cells[i/4]
		m := &c.mark
		if c.parts != nil {
			m = &c.parts[i%4]
		}
		for w := range m.writers {
			if !begin.has(w.id, w.n) {
				x.constantWritten(w, r)
				return
			}
		}
		for l := c.loc; l != nil; l = l.next {
			if at := b.base + uint64(i); at < l.address || at >= l.address+uint64(l.size) {
				continue
			}
			for _, w := range l.order {
				if !begin.has(w.id, w.n) {
					x.constantWritten(w.event, r)
					return
				}
			}
		}
	}
}

// writesConstant is whether a kernel that reads this memory with ld.global.nc need not have ended ahead of a write of t.
func (x *exec) writesConstant(t *thread, w event, b *buffer, off, n int) bool {
	for _, r := range x.constant {
		if r.buffer != b || off >= r.off+r.n || r.off >= off+n {
			continue
		}
		if s := &x.tasks[r.task]; !s.ended || !t.clocks.all(s.done) {
			x.constantWritten(w, r)
			return true
		}
	}
	return false
}
