package ptx

import (
	"fmt"
	"math"
	"time"
)

// Block is one running thread block. It is used by one goroutine at a time.
type Block struct {
	launch *Launch
	k      *Kernel
	id     [3]uint32
	sm     uint32
	warps  []warp
	mem    *arena
	shared []byte // static, then dynamic
	dyn    int    // where the dynamic part starts
	bars   [16]barrier
	segs   [segCount]segEntry
	recent int // segment found last
	victim int // segment to drop next
	gen    uint64

	steps   uint64 // warp instructions
	threads uint64 // thread instructions
	spin    *op    // what was polled last, for deadlock reports
	spinner *warp
	turn    int // round-robin start when there is no Quantum.Rand
	fault   *Fault
}

// arena is the memory of a block's registers, kept for the next block of the kernel.
type arena struct {
	r32    [][32]uint32
	r64    [][32]uint64
	pr     []uint32
	local  []byte
	shared []byte
}

const maxThreads = 1024 // per block, on every device

// NewBlock makes the block id of a launch ready to run. It fails when the launch does not fit the kernel.
func NewBlock(l *Launch, id [3]uint32) (*Block, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	k := l.Kernel
	if l.Memory == nil {
		return nil, fmt.Errorf("launch %s: no memory", k.Sig.Name)
	}
	for i := range id {
		if id[i] >= l.Grid[i] {
			return nil, fmt.Errorf("block (%d,%d,%d) is outside the grid (%d,%d,%d)", id[0], id[1], id[2], l.Grid[0], l.Grid[1], l.Grid[2])
		}
	}
	b := &Block{launch: l, k: k, id: id, dyn: k.dynamicAt()}
	if l.SM != nil {
		b.sm = l.SM(id)
	}
	threads := int(l.Block[0] * l.Block[1] * l.Block[2])
	b.warps = make([]warp, (threads+31)/32)
	b.carve()
	b.gen = l.Memory.Generation()
	for i := range b.warps {
		w := &b.warps[i]
		w.b, w.id, w.ops = b, i, k.ops
		w.exist = ^uint32(0)
		if left := threads - 32*i; left < 32 {
			w.exist = 1<<left - 1
		}
		w.live, w.ghost = w.exist, ^w.exist
		w.frags = append(w.fragSpace[:0], frag{mask: w.exist})
		w.cur = -1
		b.fillConstants(w)
	}
	for i := range b.bars {
		b.bars[i].arrived = nil
	}
	return b, nil
}

func (l *Launch) validate() error {
	k := l.Kernel
	if k == nil {
		return fmt.Errorf("launch without a kernel")
	}
	threads := uint64(1)
	for i := range 3 {
		if l.Grid[i] == 0 || l.Block[i] == 0 || l.Block[i] > maxThreads {
			return fmt.Errorf("launch %s: grid %v of blocks %v", k.Sig.Name, l.Grid, l.Block)
		}
		threads *= uint64(l.Block[i])
	}
	limit := uint64(maxThreads)
	if k.Sig.MaxThreads > 0 {
		limit = min(limit, uint64(k.Sig.MaxThreads))
	}
	switch {
	case threads > limit:
		return fmt.Errorf("launch %s: %d threads a block, at most %d", k.Sig.Name, threads, limit)
	case len(l.Params) != k.Sig.ParamBytes:
		return fmt.Errorf("launch %s: %d bytes of parameters, needs %d", k.Sig.Name, len(l.Params), k.Sig.ParamBytes)
	case len(l.Globals) < k.globals:
		return fmt.Errorf("launch %s: %d addresses of module variables, needs %d", k.Sig.Name, len(l.Globals), k.globals)
	case l.Shared < 0 || l.Shared > maxShared:
		return fmt.Errorf("launch %s: %d bytes of dynamic shared memory", k.Sig.Name, l.Shared)
	}
	return nil
}

// carve takes an arena from the kernel's pool and gives every warp its part.
func (b *Block) carve() {
	k, n := b.k, len(b.warps)
	// One register of each kind is always there, so that absent operands can point somewhere.
	n32 := int(k.n[k32]) + len(k.consts[k32]) + 1
	n64 := int(k.n[k64]) + len(k.consts[k64]) + 1
	np := int(k.n[kPred]) + len(k.consts[kPred]) + 1
	shared := b.dyn + b.launch.Shared
	a, _ := k.pool.Get().(*arena)
	if a == nil {
		a = &arena{}
	}
	a.r32, a.r64 = zeroed(a.r32, n*n32), zeroed(a.r64, n*n64)
	a.pr, a.local, a.shared = zeroed(a.pr, n*np), zeroed(a.local, n*32*k.Local), zeroed(a.shared, shared)
	b.mem, b.shared = a, a.shared
	for i := range b.warps {
		w := &b.warps[i]
		w.r32, w.r64 = a.r32[i*n32:(i+1)*n32], a.r64[i*n64:(i+1)*n64]
		w.pr, w.local = a.pr[i*np:(i+1)*np], a.local[i*32*k.Local:(i+1)*32*k.Local]
	}
}

// zeroed returns n zero elements, in s when it is large enough.
func zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// fillConstants writes the kernel's constants behind the warp's registers.
func (b *Block) fillConstants(w *warp) {
	k := b.k
	for i, c := range k.consts[k32] {
		v := uint32(b.launch.constant(c))
		for lane := range 32 {
			w.r32[int(k.n[k32])+i][lane] = v
		}
	}
	for i, c := range k.consts[k64] {
		v := b.launch.constant(c)
		for lane := range 32 {
			w.r64[int(k.n[k64])+i][lane] = v
		}
	}
	for i, c := range k.consts[kPred] {
		w.pr[int(k.n[kPred])+i] = -uint32(c.val & 1)
	}
}

// constant is the value of one of the kernel's constants in this launch.
func (l *Launch) constant(c constant) uint64 {
	v := c.val
	if c.global >= 0 {
		v += l.Globals[c.global]
	}
	if c.dyn {
		v += uint64(l.Kernel.dynamicAt())
	}
	return v
}

// Counts is the number of warp instructions issued so far, and of active threads summed over them.
func (b *Block) Counts() (warpInsts, threadInsts uint64) { return b.steps, b.threads }

func (b *Block) now() uint64 { return b.launch.now() }

func (l *Launch) now() uint64 {
	if l.Clock != nil {
		return l.Clock()
	}
	return uint64(time.Now().UnixNano())
}

// maxSlice is the most instructions a warp runs before another gets its turn.
const maxSlice = 128

// Run executes at most q.Warps warp instructions. It returns Ready early when every warp that can
// run is polling memory that others must write. The error is always a *Fault; after one the block stays faulted.
func (b *Block) Run(q Quantum) (State, error) {
	if b.fault != nil {
		return Done, b.fault
	}
	if g := b.launch.Memory.Generation(); g != b.gen {
		b.gen = g
		b.segs = [segCount]segEntry{}
	}
	polls := 0
	for left := q.Warps; ; {
		w, runnable, state := b.choose(q)
		if w == nil {
			return b.idle(state)
		}
		if left <= 0 || polls > runnable {
			return Ready, nil
		}
		slice := min(left, maxSlice)
		if q.Rand != nil {
			slice = min(left, 1+q.Rand.IntN(maxSlice))
		}
		if limit := b.launch.StepLimit; limit > 0 {
			if b.steps >= limit {
				return b.failed(b.stuck(w))
			}
			slice = int(min(uint64(slice), limit-b.steps))
		}
		n, polled, f := w.run(slice)
		if f != nil {
			return b.failed(f)
		}
		left -= n
		if polled {
			polls++
		} else {
			polls = 0
		}
	}
}

// choose picks a warp that can run. Without one, state says what the block is: Done, Sleeping, Stalled, or
// Ready for a block in which nothing will ever move.
func (b *Block) choose(q Quantum) (w *warp, runnable int, state State) {
	n := len(b.warps)
	start := b.turn
	if q.Rand != nil && n > 1 {
		start = q.Rand.IntN(n)
	}
	state = Done
	for i := range n {
		c := &b.warps[(start+i)%n]
		if c.live == 0 {
			continue
		}
		ready, sleeping, stalled := c.ready()
		switch {
		case ready:
			runnable++
			if w == nil {
				w = c
				b.turn = (start + i + 1) % n
			}
		case sleeping:
			state = Sleeping
		case stalled && state != Sleeping:
			state = Stalled
		case state == Done:
			state = Ready
		}
	}
	return w, runnable, state
}

// idle says what to do when no warp can run.
func (b *Block) idle(state State) (State, error) {
	switch state {
	case Done:
		if b.mem != nil {
			b.k.pool.Put(b.mem)
			b.mem, b.warps, b.shared = nil, nil, nil
		}
		return Done, nil
	case Sleeping, Stalled:
		return state, nil
	}
	for i := range b.warps {
		w := &b.warps[i]
		for _, f := range w.frags {
			if f.state != fragReady {
				fault := w.fault(Deadlock, f.mask, f.at, 0, 0, fmt.Errorf("every thread that is left waits at a barrier that others never reach"))
				return b.failed(fault)
			}
		}
	}
	panic("ptx: block neither runs nor waits")
}

func (b *Block) failed(f *Fault) (State, error) {
	b.fault = f
	return Done, f
}

// stuck reports that the step limit is used up, at what was polled last.
func (b *Block) stuck(w *warp) *Fault {
	at, mask := w.next()
	if b.spin != nil {
		at, mask = b.spin, b.spinner.live
	}
	f := w.fault(Deadlock, mask, at, 0, 0, fmt.Errorf("%d warp instructions and no end", b.steps))
	return f
}

const noLimit = math.MaxInt32
