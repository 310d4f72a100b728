package check

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/internal/ptx"
)

// compiled is a program laid out: addresses, and who has which clock.
type compiled struct {
	bases       []uint64 // of buffers
	bufferAt    []int    // of each buffer, its index in memory.buffers
	befores     [][]int  // of tasks
	early       []int
	firstThread []int32 // of each task, in exec.threads
	firstBlock  []int32
	clockID     []int32 // of each task's first thread
	hostID      int32
	width       int
	nThreads    int
	nBlocks     int
	tasks       []Task
}

func (c *compiled) blocks(i int) int {
	g := c.tasks[i].Grid
	return int(g[0]) * int(g[1]) * int(g[2])
}

func (c *compiled) perBlock(i int) int {
	b := c.tasks[i].Block
	return int(b[0]) * int(b[1]) * int(b[2])
}

func (c *compiled) threads(i int) int { return c.blocks(i) * c.perBlock(i) }

// Limits of a program: threads of one launch, and numbers in the clocks of all threads, of which each has one for every other.
const (
	mostThreads = 1 << 16
	mostClocks  = 1 << 29
)

// compile checks p and lays it out.
func compile(p *Program) (*compiled, error) {
	c := &compiled{tasks: p.Tasks}
	next := map[int]uint64{}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Device < Host || b.Device >= p.Devices {
			return nil, fmt.Errorf("buffer %s: device %d: there are %d", b.Name, b.Device, p.Devices)
		}
		if b.Size <= 0 || b.Size > 1<<30 || b.Init != nil && len(b.Init) != b.Size {
			return nil, fmt.Errorf("buffer %s: %d bytes, %d of them given", b.Name, b.Size, len(b.Init))
		}
		align := uint64(max(b.Align, 1))
		if b.Align == 0 {
			align = 256
		}
		at := next[b.Device]
		if at == 0 {
			at = uint64(b.Device+2) << deviceShift
		}
		at = (at + align - 1) / align * align
		c.bases = append(c.bases, at)
		next[b.Device] = at + uint64(b.Size) + guardGap
	}
	clockOf := map[[2]int]int32{} // of a stream's threads
	overlap := map[[2]int]bool{}
	for i := range p.Tasks {
		if k := &p.Tasks[i]; k.Dependent {
			overlap[[2]int{k.Stream, k.Device}] = true
		}
	}
	width := map[[2]int]int{}
	for i := range p.Tasks {
		k := &p.Tasks[i]
		for _, j := range k.After {
			if j < 0 || j >= i {
				return nil, fmt.Errorf("task %d waits for task %d: only earlier ones can be waited for", i, j)
			}
		}
		if k.Device == Host {
			if k.Do == nil {
				return nil, fmt.Errorf("task %d: a task of the host without Do", i)
			}
			continue
		}
		if k.Device < 0 || k.Device >= p.Devices || k.Kernel == nil {
			return nil, fmt.Errorf("task %d: device %d of %d, or no kernel", i, k.Device, p.Devices)
		}
		if n := c.threads(i); n <= 0 || n > mostThreads || c.perBlock(i) > 1024 {
			return nil, fmt.Errorf("task %d: %d threads in blocks of %d", i, n, c.perBlock(i))
		}
		s := [2]int{k.Stream, k.Device}
		if overlap[s] {
			width[s] += c.threads(i)
		} else {
			width[s] = max(width[s], c.threads(i))
		}
	}
	at := int32(0)
	for i := range p.Tasks { // in a fixed order
		s := [2]int{p.Tasks[i].Stream, p.Tasks[i].Device}
		if _, ok := clockOf[s]; !ok && width[s] > 0 {
			clockOf[s] = at
			at += int32(width[s])
		}
	}
	c.hostID = at
	c.width = int(at) + 1
	for i := range p.Tasks {
		k := &p.Tasks[i]
		b, e := c.before(p, i)
		c.befores, c.early = append(c.befores, b), append(c.early, e)
		c.firstThread = append(c.firstThread, int32(c.nThreads))
		c.firstBlock = append(c.firstBlock, int32(c.nBlocks))
		s := [2]int{k.Stream, k.Device}
		c.clockID = append(c.clockID, clockOf[s])
		if k.Device == Host {
			continue
		}
		if overlap[s] {
			clockOf[s] += int32(c.threads(i))
		}
		c.nThreads += c.threads(i)
		c.nBlocks += c.blocks(i)
		if n := c.nThreads * c.width; n > mostClocks {
			return nil, fmt.Errorf("%d threads, %d of them at once, need %d GB of memory to tell what comes before what: launch fewer", c.nThreads, c.width-1, n>>28)
		}
	}
	return c, nil
}

// exec runs executions of one program, one after the other.
type exec struct {
	p         *Program
	c         *compiled
	choose    chooser
	limit     uint64
	maxWrites int

	mem     memory
	shared  []buffer // of blocks
	threads []*thread
	blocks  []block
	tasks   []taskState
	ready   []int32
	started bool // no task can start until something changes
	slab    slab
	zero    clocks
	scs     []scFence
	recent  *buffer
	guess   *ptx.Thread

	allLocs      []*location // all there are, for reuse
	usedLocs     int
	allWrites    []*write
	used         int
	latest       *write
	spinners     []int32
	seen         []seen // of histories that end as another begins
	others       bool   // the loop just looked at loads from elsewhere too
	constant     []constantRead
	mostConstant int

	picked []pick
	locs   []*location
	spots  []int32

	fast      bool // clocks leap
	clock     uint64
	covered   map[*ptx.Inst]bool // nil: not asked for
	targets   bool               // somebody waits for a certain write
	over      bool
	pruned    bool
	ctx       context.Context
	looked    uint64 // steps and instructions since ctx was looked at
	all       uint64 // steps of all executions
	raced     bool
	why       string             // not exhaustive
	patience  map[*ptx.Inst]bool // of loads in loops: whether they poll until something changes
	needed    map[*ptx.Inst]bool // of loads: what they read is needed ahead of the next write
	found     []Finding
	log       []logged
	trace     *trace // nil: nothing is traced
	steps     uint64
	decisions int // of the search, in this execution
	writes    uint64
	ops       uint64
	evicted   uint64
}

// newExec readies p.
func newExec(ctx context.Context, p *Program, o *Options) (*exec, error) {
	c, err := compile(p)
	if err != nil {
		return nil, err
	}
	x := &exec{ctx: ctx, p: p, c: c, limit: o.Steps, maxWrites: o.MaxWrites, slab: slab{width: c.width}, zero: make(clocks, c.width),
		patience: map[*ptx.Inst]bool{}, needed: map[*ptx.Inst]bool{}}
	if p.GiveUp {
		x.cut("polls give up when nothing else can go on, and only then")
	}
	if x.limit == 0 {
		x.limit = 10_000_000
	}
	if x.maxWrites == 0 {
		x.maxWrites = 64
	}
	x.tasks = make([]taskState, len(p.Tasks))
	x.blocks = make([]block, c.nBlocks)
	x.shared = make([]buffer, c.nBlocks)
	for i := range p.Buffers {
		b := &p.Buffers[i]
		x.mem.buffers = append(x.mem.buffers, newBuffer(b.Name, c.bases[i], b.Size, b.Device, b.Init))
	}
	order := make([]int, len(p.Buffers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(int64(c.bases[a]) - int64(c.bases[b])) })
	sorted := make([]buffer, len(order))
	c.bufferAt = make([]int, len(order))
	for at, i := range order {
		sorted[at] = x.mem.buffers[i]
		c.bufferAt[i] = at
	}
	x.mem.buffers = sorted
	address := func(i int) uint64 { return c.bases[i] }
	for i := range p.Tasks {
		k := &p.Tasks[i]
		if k.Device == Host {
			continue
		}
		l := &ptx.Launch{Kernel: k.Kernel, Grid: k.Grid, Block: k.Block, Shared: k.Shared, Clock: x.now}
		if k.Params != nil {
			l.Params = k.Params(address)
		}
		for _, g := range k.Globals {
			l.Globals = append(l.Globals, c.bases[g])
		}
		for n := range c.threads(i) {
			t := &thread{index: int32(len(x.threads)), id: c.clockID[i] + int32(n), task: int32(i), block: int32(n / c.perBlock(i)),
				lane: int32(n % c.perBlock(i)), device: int32(k.Device), waiting: noTarget}
			t.cta = c.firstBlock[i] + t.block
			if t.m, err = ptx.NewThread(l, [3]uint32{}, [3]uint32{}); err != nil {
				return nil, fmt.Errorf("task %d (%s): %w", i, k.Name, err)
			}
			t.state = ended
			x.threads = append(x.threads, t)
		}
		for n := range c.blocks(i) {
			x.shared[int(c.firstBlock[i])+n] = newBuffer("shared", 0, k.Kernel.StaticShared+k.Shared, k.Device, nil)
		}
	}
	return x, nil
}

func newBuffer(name string, base uint64, size, device int, init []byte) buffer {
	words := (size + 3) / 4
	b := buffer{name: name, base: base, size: size, device: device, cells: make([]cell, words), init: make([]uint32, words)}
	for i := range b.cells {
		b.cells[i].writer = unwritten
	}
	for i, v := range init {
		b.init[i/4] |= uint32(v) << (8 * (i % 4))
	}
	for i := range b.cells {
		b.cells[i].value = b.init[i]
	}
	return b
}

// reset goes back to the start.
func (x *exec) reset() {
	x.mem.reset()
	for i := range x.shared {
		b := &x.shared[i]
		for k := range b.cells {
			b.cells[k] = cell{value: litter(i, k), mark: mark{writer: unwritten}}
		}
	}
	x.slab.reset()
	x.scs, x.ready, x.spinners, x.constant, x.log, x.found = x.scs[:0], x.ready[:0], x.spinners[:0], x.constant[:0], x.log[:0], nil
	clear(x.tasks)
	for i := range x.blocks {
		x.blocks[i].live = 0
	}
	x.usedLocs, x.used, x.latest, x.recent = 0, 0, nil, nil
	x.over, x.pruned, x.raced, x.started = false, false, false, false
	x.fast, x.clock, x.targets = false, 0, false
	x.steps, x.writes, x.decisions, x.mostConstant = 0, 0, 0, 0
}

func (x *exec) newLocation() *location {
	if x.usedLocs == len(x.allLocs) {
		x.allLocs = append(x.allLocs, new(location))
	}
	l := x.allLocs[x.usedLocs]
	x.usedLocs++
	l.order, l.waiters, l.seen, l.next = l.order[:0], l.waiters[:0], l.seen[:0], nil
	return l
}

const writesKept = 1 << 17 // for the next execution

func (x *exec) newWrite() *write {
	if x.used == writesKept { // what else a long one needs lives until it is forgotten
		return new(write)
	}
	if x.used == len(x.allWrites) {
		x.allWrites = append(x.allWrites, new(write))
	}
	w := x.allWrites[x.used]
	x.used++
	*w = write{readers: w.readers[:0]}
	return w
}

// run is one execution.
func (x *exec) run() {
	x.reset()
	x.choose.begin(x)
	defer func() { x.all += x.steps }()
	for !x.over && !x.halted(1) {
		if !x.started {
			x.started = true
			x.startTasks()
			continue
		}
		t := x.choose.thread(x)
		if t == nil && x.p.GiveUp && x.hurry() {
			continue
		}
		if t == nil && x.hasten() {
			continue
		}
		if t == nil {
			if !x.allEnded() {
				x.stuck()
			} else {
				x.finalStep()
			}
			return
		}
		x.advance(t)
	}
}

// A systematic search that has made so many choices in one execution stops there, ahead of filling memory with them.
const mostDecisions = 1 << 21

// A thread that performs so many instructions by itself between two events does not end.
const mostAlone = 10_000_000

// next runs t to its next event.
func (x *exec) next(t *thread) (*ptx.Event, error) {
	before := t.m.Steps()
	t.m.Allow(mostAlone)
	ev, err := t.m.Next()
	x.looked += t.m.Steps() - before
	return ev, err
}

// halted counts n steps, and looks from time to time whether ctx has ended. The execution then is over, and counts for nothing.
func (x *exec) halted(n uint64) bool {
	if x.looked += n; x.looked < 1<<14 {
		return false
	}
	x.looked = 0
	if x.ctx.Err() == nil {
		return false
	}
	x.prune()
	x.found = nil
	return true
}

func (x *exec) allEnded() bool {
	for i := range x.tasks {
		if !x.tasks[i].ended {
			return false
		}
	}
	return true
}

// hurry has those that poll in vain take what there is, round after round, until they give up. False: nobody does.
func (x *exec) hurry() bool {
	any := false
	for _, i := range x.ready {
		if t := x.threads[i]; t.state == waitsValue && !t.hurried {
			t.state, t.hurried, any = ready, true, true
		}
	}
	if any {
		x.fast = true
	}
	return any
}

// now is the clock that kernels read: it stands still, and leaps when they are to give up.
func (x *exec) now() uint64 {
	if x.fast {
		x.clock += 1 << 40
	}
	return x.clock
}

// finalStep has the host look at the end.
func (x *exec) finalStep() {
	if x.p.Final == nil {
		return
	}
	h := x.hostAtEnd()
	if err := x.p.Final(x.hostMemory(h)); err != nil && !x.over {
		f := Finding{Kind: Stale, Message: err.Error()}
		if w := (*wrong)(nil); errors.As(err, &w) {
			f = x.wrongResult(w)
		}
		x.report(nil, f)
	}
}

func (x *exec) hostAtEnd() *thread {
	h := &thread{index: -1, id: x.c.hostID, task: -1, device: Host, cta: -1, clocks: x.slab.copy(x.zero), waiting: noTarget, choice: -1}
	for i := range x.tasks {
		h.clocks.join(x.tasks[i].done)
	}
	h.tick()
	return h
}

// outcome is what Program.Observe sees at the end.
func (x *exec) outcome() string {
	var out []byte
	for i := range x.p.Observe {
		o := &x.p.Observe[i]
		var v uint64
		if o.Task < 0 {
			b := &x.mem.buffers[x.c.bufferAt[o.Buffer]]
			for k := range o.Size {
				v |= uint64(x.finalByte(b, o.Offset+k)) << (8 * k)
			}
		} else {
			t := x.threads[int(x.c.firstThread[o.Task])+o.Block*x.c.perBlock(o.Task)+o.Thread]
			v, _ = t.m.Register(o.Register)
		}
		if i > 0 {
			out = append(out, ' ')
		}
		out = fmt.Appendf(out, "%d", v)
	}
	return string(out)
}

func (x *exec) finalByte(b *buffer, off int) byte {
	c := &b.cells[off/4]
	for l := c.loc; l != nil; l = l.next {
		if at := b.base + uint64(off) - l.address; at < uint64(l.size) {
			return l.last().value.byte(int(at))
		}
	}
	return byte(c.value >> (8 * (off % 4)))
}
