package allreduce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/kernels"
	"github.com/fenceline/fenceline/launcher"
)

const (
	maxThreads  = 512 // __launch_bounds__ of the kernels
	dependentSM = 90  // builds for this target and later use dependent launch
)

// Group is all ranks of one process. Its methods may be called from any goroutine, but each rank's calls
// must come in one order, the same on all ranks.
type Group struct {
	rt     *launcher.Runtime
	cfg    Config
	ranks  []*Rank
	policy *policy    // which algorithm each call takes
	direct bool       // some calls take kernels that wait for each other
	apart  bool       // captures have a graph for each rank
	nccl   *ncclRanks // nil where no call takes it
	crew   *crew      // nil where one goroutine queues all ranks
	shares bool       // some ranks share a device
	rooms  [numAlgorithms]rooms

	agree agreement
	meet  *meeting
	queue sync.Mutex // one whole-group call at a time, so that all ranks see the same order

	recording atomic.Pointer[recording] // not nil during a capture

	mu            sync.Mutex // guards the next three
	registered    uint32
	graphs        map[*Graph]struct{}
	released      bool
	registrations atomic.Pointer[[]*Registration]
	modules       []*launcher.Module
	reserved      map[int]int // SMs taken in the ledger of residency, by device
	claimed       []path      // in the ledger of paths

	life    sync.RWMutex // held while statuses are read, and while they are freed
	closed  atomic.Bool
	failure atomic.Pointer[FailedError]
	stop    chan struct{} // closed on failure and by Close
	stopped sync.Once
}

// NewGroup makes a group on rt: finds the algorithms that the devices can do, loads the kernels, and
// allocates the flags, staging and packets of every rank. Everything the group needs is loaded here, so that no later
// call loads anything while a peer waits. Loading and freeing wait for the kernels that run on the device, and keep others from being
// launched there (see launcher.Runtime.Load): where ranks share a device, make and close a group while no call of another is under way,
// or that one may fail for its timeout. Close it before rt.
//
// Direct kernels wait for their peers on the device. Several groups may use one device, as far as there is room for the blocks of all of
// them, which is counted. That all find a place, and that kernels ahead of a rank's call do (see Rank.Stream), is sure for one group: calls of
// several on devices that ranks share should not be under way together.
//
// The error is an *ArgumentError or *NameError for a Config that cannot be used, a *PlanError when no algorithm, or not
// the one asked for, can run, an *NCCLError when NCCL was asked for and does not start, and otherwise the launcher's, such as
// launcher.ErrOutOfMemory. NCCL may take up to a minute to start.
func NewGroup(rt *launcher.Runtime, cfg Config) (*Group, error) {
	if err := cfg.validate(rt); err != nil {
		return nil, err
	}
	m, err := describe(rt, cfg.Machine)
	if err != nil {
		return nil, fmt.Errorf("new group: %w", err)
	}
	if err := checkMeasurement(cfg.Measurement, m); err != nil {
		return nil, fmt.Errorf("new group: %w", err)
	}
	s := &selector{m: m, measured: cfg.Measurement, devices: cfg.Devices, knobs: cfg.Knobs}
	s.allowNCCL = cfg.AllowNCCL && cfg.Table.asks(NCCL, cfg.Ranks) // or nobody needs to look for it
	s.library = func() error { return CheckNCCL(cfg.NCCLLibrary) }
	enablePeers(rt, s)
	p, err := s.policy(cfg.Algorithm)
	if err != nil {
		return nil, err
	}
	if cfg.AllowNCCL && !s.allowNCCL { // what CaptureBy and PlanBy are told of it
		p.refused[NCCL] = "no rule of Config.Table asks for it, and it was not started"
	}
	p.table, p.most, p.push = cfg.Table, cfg.MaxBytes, cfg.PushBytes
	p.bound()
	g, err := assemble(rt, cfg, s, p)
	for below := false; p.forced == Auto; {
		var crowded *PlanError
		switch {
		case errors.Is(err, ErrNCCL) && p.allowed[NCCL]: // it was only one of many
			p = p.withoutNCCL(err)
		case errors.As(err, &crowded) && !below: // no room for blocks that wait for each other: the next rung
			p, below = s.nextRung(*p, crowded.Reason), true
		default:
			return g, err
		}
		g, err = assemble(rt, cfg, s, p)
	}
	return g, err
}

func assemble(rt *launcher.Runtime, cfg Config, s *selector, p *policy) (*Group, error) {
	g := &Group{rt: rt, cfg: cfg, policy: p, agree: agreement{world: cfg.Ranks}, graphs: map[*Graph]struct{}{}, stop: make(chan struct{})}
	for a, limit := range p.limit {
		g.direct = g.direct || limit != 0 && Algorithm(a).Direct()
	}
	g.apart = g.direct || p.forced == NCCL
	g.meet = newMeeting(cfg.Ranks, g.stop)
	g.registrations.Store(&[]*Registration{})
	err := g.claimPaths(s)
	if err == nil {
		err = g.build()
	}
	if err != nil {
		return nil, joined(fmt.Errorf("new group: %w", err), g.release())
	}
	if g.direct && !rt.Info().Emulated { // where one goroutine's calls always give the same schedule
		g.crew = newCrew(g, crewDevices)
	}
	return g, nil
}

// build allocates every rank and loads its kernels.
func (g *Group) build() error {
	on := map[int]*loaded{}
	for r, dev := range g.cfg.Devices {
		l := on[dev]
		if l != nil {
			g.shares = true
		} else {
			l = &loaded{}
			on[dev] = l
			if err := g.loadAll(dev, l); err != nil {
				return err
			}
		}
		rank := &Rank{g: g, id: r, dev: dev}
		g.ranks = append(g.ranks, rank)
		if err := rank.build(l); err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
	}
	for _, r := range g.ranks {
		r.connect()
		if r.gather == nil {
			continue
		}
		if err := r.openLanes(); err != nil {
			return fmt.Errorf("rank %d: %w", r.id, err)
		}
	}
	if err := g.reserve(); err != nil {
		return err
	}
	return g.joinNCCL()
}

// loaded is the modules of one device, by algorithm.
type loaded [numAlgorithms]struct {
	module    *launcher.Module
	dependent bool
}

// loadAll loads the kernels of every algorithm that calls may take. Copy and host have the same.
func (g *Group) loadAll(dev int, l *loaded) error {
	for a, limit := range g.policy.limit {
		switch {
		case limit == 0 || Algorithm(a) == NCCL:
			continue
		case Algorithm(a) == Host && l[Copy].module != nil:
			l[a] = l[Copy]
			continue
		}
		m, build, err := g.load(dev, sources[a].file)
		if err != nil {
			return err
		}
		l[a].module, l[a].dependent = m, build.SM >= dependentSM
	}
	return nil
}

// load loads the best build of a kernel source for a device.
func (g *Group) load(dev int, source string) (*launcher.Module, *kernels.Module, error) {
	d := g.rt.Devices()[dev]
	build, err := kernels.Find(source, d.SM(), g.rt.Info().DriverVersion)
	if err != nil {
		return nil, nil, fmt.Errorf("device %d: %w", dev, err)
	}
	text, err := build.Text()
	if err != nil {
		return nil, nil, err
	}
	if g.cfg.Patch != nil {
		if text, err = g.cfg.Patch(build.File, text); err != nil {
			return nil, nil, fmt.Errorf("patch %s for device %d: %w", build.File, dev, err)
		}
	}
	m, err := g.rt.Load(dev, build.File, text)
	if err != nil {
		return nil, nil, err
	}
	g.modules = append(g.modules, m)
	return m, build, nil
}

// World is the number of ranks.
func (g *Group) World() int { return len(g.ranks) }

// Rank is rank r, 0 ≤ r < World(). With another number, the result's calls are an *ArgumentError, its Device is -1,
// and its Stream nil.
func (g *Group) Rank(r int) *Rank {
	if r < 0 || r >= len(g.ranks) {
		return &Rank{g: g, id: r, dev: -1}
	}
	return g.ranks[r]
}

// Plan is what AllReduce does with count elements of dt, the same on all ranks. The error is an *ArgumentError.
func (g *Group) Plan(count uint64, dt DType) (Plan, error) {
	n, err := bytesOf(-1, count, dt)
	if err != nil {
		return Plan{}, err
	}
	return g.policy.plan(g.policy.table, n, dt, false, g.shape), nil
}

// shape is the grid of a launch of n bytes. What Config fixes wins over what a table prefers.
func (g *Group) shape(a Algorithm, n uint64, want grid) (blocks, threads int) {
	if g.cfg.Threads != 0 {
		want.threads = g.cfg.Threads
	}
	if g.cfg.Blocks != 0 {
		want.blocks = g.cfg.Blocks
	}
	launches := g.waiting(a)
	blocks, threads = shape(a, n, len(g.ranks), want, func(threads int) int { return fits(a, n, len(g.ranks), g.rooms[a][threads/32], launches) })
	if want.blocks == 0 && late(a, n, len(g.ranks)) && launches*blocks > g.rooms[a][threads/32] {
		blocks = heard(a, n, len(g.ranks), blocks) // or the next call would have to wait until this one has ended
	}
	return blocks, threads
}

// AllReduce queues the call on every rank: in[r] and out[r] are rank r's buffers, one per rank, each of at least
// count × dt.Size() bytes; what is beyond is left alone. An output may be its own rank's input (a call in place), and
// apart from that overlaps no buffer of the call. It returns once all is queued, and Sync waits for the result. Calls from
// several goroutines are queued one after another.
//
// Everything is checked before anything is queued: an *ArgumentError leaves the group as it was. Otherwise the error is
// as of Rank.AllReduce.
func (g *Group) AllReduce(in, out []launcher.Buffer, count uint64, dt DType) error {
	if len(in) != len(g.ranks) || len(out) != len(g.ranks) {
		return bad("in, out", "%d and %d buffers for %d ranks", len(in), len(out), len(g.ranks))
	}
	g.queue.Lock()
	defer g.queue.Unlock()
	var ops [flags.MaxRanks]operation
	for r, rank := range g.ranks {
		op, err := rank.check(in[r], out[r], count, dt)
		if err != nil {
			return err
		}
		ops[r] = op
		if op.call.taken != ops[0].call.taken {
			return &ArgumentError{Rank: r, Arg: "capture", Detail: "a capture is under way on the stream of this rank or of rank 0, and not on both: begin one on every rank's"}
		}
	}
	if g.shares { // memory of two devices cannot overlap
		if err := apart(ops[:len(g.ranks)]); err != nil {
			return err
		}
	}
	harmonise(ops[:len(g.ranks)])
	switch a := ops[0].call.algorithm; {
	case a == NCCL:
		return g.enqueueAllNCCL(ops[:len(g.ranks)])
	case a.Direct() && ops[0].bytes() > g.policy.limit[a]:
		return g.enqueuePieces(ops[:len(g.ranks)])
	case a.Direct() && g.crew != nil && g.recording.Load() == nil:
		return g.crew.enqueue(ops[:len(g.ranks)])
	case a.Direct() || count == 0:
		for r, rank := range g.ranks {
			if err := rank.enqueue(&ops[r]); err != nil {
				return err
			}
		}
		return nil
	}
	return g.enqueueAll(ops) // ranks meet on the host: a goroutine each
}

func (g *Group) enqueueAll(ops [flags.MaxRanks]operation) error {
	var errs [flags.MaxRanks]error
	var all sync.WaitGroup
	for r, rank := range g.ranks {
		all.Go(func() { errs[r] = rank.enqueue(&ops[r]) })
	}
	all.Wait()
	return cause(errs[:len(g.ranks)])
}

// cause is what went wrong on some rank, rather than that the group had failed by then on another.
func cause(errs []error) (err error) {
	for _, e := range errs {
		if e != nil && (err == nil || errors.Is(err, ErrFailed) && !errors.Is(e, ErrFailed)) {
			err = e
		}
	}
	return err
}

// apart refuses an output that overlaps another rank's buffer.
func apart(ops []operation) error {
	for r := range ops {
		for p := range ops {
			if p == r {
				continue
			}
			for _, o := range [...]struct {
				name string
				b    launcher.Buffer
			}{{"in", ops[p].in}, {"out", ops[p].out}} {
				if overlap(ops[r].out.Ptr(), ops[r].out.Size(), o.b.Ptr(), o.b.Size()) {
					return &ArgumentError{Rank: r, Arg: "out", Detail: fmt.Sprintf("%d bytes at %#x overlap %s of rank %d at %#x",
						ops[r].out.Size(), ops[r].out.Ptr(), o.name, p, o.b.Ptr())}
				}
			}
		}
	}
	return nil
}

// overlap tells whether n bytes at a and m bytes at b have any in common.
func overlap(a, n, b, m uint64) bool { return a < b+m && b < a+n }

// harmonise uses what only the sight of all ranks' buffers allows: an input that is not registered alike on
// all ranks is staged on all, and where all buffers are equally misaligned the body starts at the first boundary.
func harmonise(ops []operation) {
	first := ops[0].call
	off, aligned := ops[0].in.Ptr()%16, true
	for i := range ops {
		c := &ops[i].call
		if c.registration != first.registration || c.offset != first.offset {
			for j := range ops {
				ops[j].registration, ops[j].call.registration, ops[j].call.offset, ops[j].call.head = nil, 0, 0, 0
			}
			first = ops[0].call
		}
		aligned = aligned && ops[i].in.Ptr()%16 == off && ops[i].out.Ptr()%16 == off
	}
	for i := range ops {
		if aligned {
			ops[i].call.head = headOf(off, first.dtype)
		}
	}
}

func headOf(misalignment uint64, dt DType) uint32 {
	return uint32((16 - misalignment) % 16 / dt.Size())
}

// Each runs f for every rank, each in a goroutine of its own, and returns f's first error once all have ended. The
// ctx that f gets is cancelled when one fails.
func (g *Group) Each(ctx context.Context, f func(ctx context.Context, r *Rank) error) error {
	if f == nil {
		return bad("each", "no function is given")
	}
	eg, ctx := errgroup.WithContext(ctx)
	for _, rank := range g.ranks {
		eg.Go(func() error { return f(ctx, rank) })
	}
	return eg.Wait()
}

// Sync waits for the work of all ranks, and reports the group's failure if there is one: its first cause, a
// *flags.StuckError for a rank that did not come, a *MismatchError, an *AbsentError, an *NCCLError, or the launcher's. It is a
// *launcher.TimeoutError when ctx ended first, with the work still running, and ErrClosed once the group is closed.
func (g *Group) Sync(ctx context.Context) error {
	var eg errgroup.Group
	for _, rank := range g.ranks {
		eg.Go(func() error { return rank.Sync(ctx) })
	}
	err := eg.Wait()
	if f := g.failure.Load(); f != nil {
		return f.Cause
	}
	return err
}

// Err is nil while the group works, and a *FailedError once it has failed.
func (g *Group) Err() error {
	if f := g.failure.Load(); f != nil {
		return f
	}
	return nil
}

// refusal is why no call can be made, nil when one can.
func (g *Group) refusal() error {
	if g.closed.Load() {
		return ErrClosed
	}
	return g.Err()
}

// party is what calls made now are part of.
func (g *Group) party() party {
	if rec := g.recording.Load(); rec != nil {
		return rec
	}
	return g
}

// join compares rank r's next call with the others'. A difference fails the group: some may have launched already.
func (g *Group) join(r *Rank, c call) error {
	seq := r.seq
	r.seq++
	return g.agree.join(r.id, seq, c, g.cfg.Timeout, g.stop)
}

func (g *Group) meeting() *meeting { return g.meet }

// fail records the first failure, and tells all waiting kernels and goroutines to give up.
func (g *Group) fail(cause error) {
	if !g.failure.CompareAndSwap(nil, &FailedError{Cause: cause}) {
		return
	}
	g.halt()
	if g.nccl != nil {
		g.nccl.abort()
	}
	g.life.RLock()
	defer g.life.RUnlock()
	for _, r := range g.ranks {
		if r.status != nil {
			_ = r.status.Store32(flags.AbortOffset, 1) // without it the kernels end by their deadline
		}
	}
}

// halt wakes the goroutines that wait for other ranks, those of a capture too.
func (g *Group) halt() {
	g.stopped.Do(func() { close(g.stop) })
	if rec := g.recording.Load(); rec != nil {
		rec.fail(g.refusal())
	}
}

// diagnose looks at what the kernels of every rank left behind, since the failure of one makes the results of the
// others doubtful. It fails the group with the first record found, and returns the record of rank own, if any.
func (g *Group) diagnose(own int) error {
	g.life.RLock()
	var first, mine error
	for r, rank := range g.ranks {
		if rank.status == nil || rank.status.Ptr() == 0 {
			continue
		}
		if code, err := rank.status.Load32(flags.CodeOffset); err != nil || code == 0 {
			continue
		}
		err := flags.Diagnose(r, rank.status.Bytes())
		if r == own {
			mine = err
		}
		if first == nil || errors.Is(err, flags.ErrTimeout) && !errors.Is(first, flags.ErrTimeout) {
			first = err
		}
	}
	g.life.RUnlock()
	if first != nil {
		g.fail(first)
	}
	return mine
}

// Close refuses new calls, waits for queued work, at most a little longer than Config.Timeout, and frees everything.
// It returns a failure that no Sync has reported, and what could not be freed, each failure once. A capture under way
// fails. After ErrBusy, when the work or the capture did not end in time, it can be called again; closing again does
// nothing. Where ranks share a device, no call of another group should be under way there, as with NewGroup.
func (g *Group) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout+5*time.Second)
	defer cancel()
	if err := g.endCapture(ctx); err != nil {
		return err
	}
	if err := g.callersCapture("close"); err != nil {
		return fmt.Errorf("close: %w: %w", ErrBusy, err)
	}
	g.queue.Lock() // not in the middle of a whole-group call
	defer g.queue.Unlock()
	g.closed.Store(true)
	g.halt()
	g.queue.Unlock()
	err := g.endCapture(ctx) // of a capture that began just now; no other will
	g.queue.Lock()
	if err != nil {
		return err
	}
	for _, r := range g.ranks {
		r.mu.Lock()
		defer r.mu.Unlock()
	}
	g.mu.Lock()
	released := g.released
	g.mu.Unlock()
	if released {
		return nil
	}
	known := g.failure.Load() != nil
	var errs []error
	for _, r := range g.ranks {
		err := g.drain(ctx, r)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, launcher.ErrCapture):
			return fmt.Errorf("close rank %d: %w: %w", r.id, ErrBusy, err)
		case errors.Is(err, launcher.ErrClosed) && !g.gone():
			return fmt.Errorf("close rank %d: %w, as far as can be known: its stream was closed ahead of the group, whose memory is kept until the runtime is closed: %w",
				r.id, ErrBusy, err)
		}
		if err != nil && !known {
			errs = append(errs, err)
		}
	}
	_ = g.diagnose(-1)
	if f := g.failure.Load(); f != nil && !known {
		errs = append(errs, f.Cause)
	}
	return joined(append(errs, g.release())...)
}

// callersCapture refuses what cannot be done while the caller captures on a rank's stream.
func (g *Group) callersCapture(what string) error {
	if g.closed.Load() {
		return nil
	}
	for _, r := range g.ranks {
		if err := r.idleStream(what); err != nil && !errors.Is(err, launcher.ErrClosed) {
			return err
		}
	}
	return nil
}

// gone is whether the runtime was closed ahead of the group.
func (g *Group) gone() bool {
	_, err := g.ranks[0].status.Load32(flags.CodeOffset)
	return errors.Is(err, launcher.ErrClosed)
}

// drain waits for a rank's work. What NCCL does not end by itself is aborted, which tells its kernels at once; to the end comes
// an abort only when the graphs are gone.
func (g *Group) drain(ctx context.Context, r *Rank) error {
	err := r.stream.Sync(ctx)
	if g.nccl == nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	g.nccl.abort()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return r.stream.Sync(ctx)
}

// endCapture ends a capture that is under way, and waits for it.
func (g *Group) endCapture(ctx context.Context) error {
	rec := g.recording.Load()
	if rec == nil {
		return nil
	}
	rec.fail(ErrClosed)
	select {
	case <-rec.over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close: %w: a capture is under way", ErrBusy)
	}
}

// release frees what build made, in reverse.
func (g *Group) release() error {
	g.closed.Store(true)
	g.mu.Lock()
	graphs := g.graphs
	g.graphs, g.released = map[*Graph]struct{}{}, true
	g.mu.Unlock()
	if g.crew != nil {
		g.crew.close()
		g.crew = nil
	}
	var errs []error
	for gr := range graphs {
		errs = append(errs, gr.destroy())
	}
	if g.nccl != nil { // when its graphs are gone, and before its streams are
		if !g.gone() { // a runtime that is closed took the contexts along
			errs = append(errs, g.nccl.release())
		}
	}
	g.life.Lock()
	defer g.life.Unlock()
	for _, r := range g.ranks {
		errs = append(errs, r.release())
	}
	for _, m := range g.modules {
		errs = append(errs, m.Close())
	}
	g.unreserve()
	g.leavePaths()
	return joined(errs...)
}
