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
	"github.com/fenceline/fenceline/topo"
)

const (
	maxThreads  = 512 // __launch_bounds__ of the kernels
	dependentSM = 90  // builds for this target and later use dependent launch
)

// Group is all ranks of one process. Its methods may be called from any goroutine, but each rank's calls
// must come in one order, the same on all ranks.
type Group struct {
	rt        *launcher.Runtime
	cfg       Config
	ranks     []*Rank
	algorithm Algorithm
	reason    string
	fit       map[int]int // blocks per rank that can be resident, by threads per block

	agree agreement
	meet  *meeting

	mu            sync.Mutex // guards what follows
	registrations atomic.Pointer[[]*Registration]
	registered    uint32
	graphs        map[*Graph]struct{}
	modules       []*launcher.Module
	capturing     atomic.Bool
	closed        atomic.Bool
	failure       atomic.Pointer[FailedError]
	failed        chan struct{} // closed with failure
}

// NewGroup makes a group on rt: chooses the algorithm from what the devices can do, loads the kernels, and
// allocates the flags and staging of every rank. Everything the group needs is loaded here, so that no later
// call loads anything while a peer waits. Close it before rt.
func NewGroup(rt *launcher.Runtime, cfg Config) (*Group, error) {
	if err := cfg.validate(rt); err != nil {
		return nil, err
	}
	m, err := topo.FromDriver(rt.Driver())
	if err != nil {
		return nil, fmt.Errorf("new group: %w", err)
	}
	g := &Group{rt: rt, cfg: cfg, agree: agreement{world: cfg.Ranks}, meet: newMeeting(cfg.Ranks),
		graphs: map[*Graph]struct{}{}, failed: make(chan struct{})}
	g.registrations.Store(&[]*Registration{})
	enablePeers(rt, m, cfg.Devices)
	if g.algorithm, g.reason, err = Choose(m, cfg.Devices, cfg.Algorithm); err != nil {
		return nil, err
	}
	if err := g.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("new group: %w", err), g.release())
	}
	return g, nil
}

// enablePeers opens every claimed pair. One that cannot be opened after all counts as having no access: a
// claim is not a promise.
func enablePeers(rt *launcher.Runtime, m *topo.Machine, devices []int) {
	for _, i := range devices {
		for _, j := range devices {
			if i == j || m.Pairs[i][j].Access != topo.Yes {
				continue
			}
			if err := rt.EnablePeer(i, j); err != nil {
				m.Pairs[i][j].Access = topo.No
				m.Note("device %d claims access to device %d, which could not be enabled: %v", i, j, err)
			}
		}
	}
}

// build allocates every rank and loads its kernels.
func (g *Group) build() error {
	type loaded struct {
		pull, reduce *launcher.Module
		dependent    bool
	}
	on := map[int]loaded{}
	for r, dev := range g.cfg.Devices {
		mods, ok := on[dev]
		if !ok {
			var build *kernels.Module
			var err error
			if mods.pull, build, err = g.load(dev, "oneshot_pull"); err != nil {
				return err
			}
			if mods.reduce, _, err = g.load(dev, "reduce_local"); err != nil {
				return err
			}
			mods.dependent = build.SM >= dependentSM
			on[dev] = mods
		}
		rank := &Rank{g: g, id: r, dev: dev, dependent: mods.dependent}
		g.ranks = append(g.ranks, rank)
		if err := rank.build(mods.pull, mods.reduce); err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
	}
	for _, r := range g.ranks {
		if err := r.connect(); err != nil {
			return fmt.Errorf("rank %d: %w", r.id, err)
		}
	}
	return g.measureFit()
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
	m, err := g.rt.Load(dev, build.File, text)
	if err != nil {
		return nil, nil, err
	}
	g.modules = append(g.modules, m)
	return m, build, nil
}

// measureFit finds how many blocks each rank may launch: a kernel's blocks wait for their peers', so all of
// them, of every rank on a device, must be resident together. With dependent launch the next call's blocks
// can be there as well.
func (g *Group) measureFit() error {
	g.fit = map[int]int{}
	sharing := map[int]int{}
	for _, r := range g.ranks {
		sharing[r.dev]++
	}
	for threads := 32; threads <= maxThreads; threads += 32 {
		fit := flags.MaxBlocks
		for _, r := range g.ranks {
			generations := 1
			if r.dependent {
				generations = 2
			}
			for _, k := range r.pull {
				perSM, err := k.MaxActiveBlocks(threads, 0)
				if err != nil {
					return err
				}
				fit = min(fit, perSM*g.rt.Devices()[r.dev].SMs/(sharing[r.dev]*generations))
			}
		}
		g.fit[threads] = fit
	}
	threads := maxThreads
	if g.cfg.Threads != 0 {
		threads = g.cfg.Threads
	}
	if need := max(1, g.cfg.Blocks); g.algorithm == OneshotPull && g.fit[threads] < need {
		return &PlanError{Algorithm: g.algorithm, Remedy: "use fewer ranks per device, fewer blocks, or copy",
			Reason: fmt.Sprintf("%d block(s) of %d threads per rank are wanted and %d can be resident together", need, threads, g.fit[threads])}
	}
	return nil
}

// World is the number of ranks.
func (g *Group) World() int { return len(g.ranks) }

// Rank is rank r, 0 ≤ r < World().
func (g *Group) Rank(r int) *Rank { return g.ranks[r] }

// Plan is what AllReduce does with count elements of dt.
func (g *Group) Plan(count uint64, dt DType) (Plan, error) {
	n, err := bytesOf(-1, count, dt)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Algorithm: g.algorithm, Reason: g.reason, Pieces: max(1, (n+g.cfg.MaxBytes-1)/g.cfg.MaxBytes)}
	p.Blocks, p.Threads = g.shape(min(n, g.cfg.MaxBytes))
	return p, nil
}

// shape is the grid for a piece of n bytes.
func (g *Group) shape(n uint64) (blocks, threads int) {
	blocks, threads = shape(n, len(g.ranks), g.fitting)
	if g.cfg.Threads != 0 {
		threads = g.cfg.Threads
		blocks = min(blocksFor(max(1, (n+15)/16), threads), g.fit[threads])
	}
	if g.cfg.Blocks != 0 {
		blocks = min(g.cfg.Blocks, g.fit[threads])
	}
	return blocks, threads
}

func (g *Group) fitting(threads int) int { return g.fit[threads] }

// AllReduce queues the call on every rank: in[r] and out[r] are rank r's buffers. Everything is checked
// before anything is queued.
func (g *Group) AllReduce(in, out []launcher.Buffer, count uint64, dt DType) error {
	if len(in) != len(g.ranks) || len(out) != len(g.ranks) {
		return bad("in, out", "%d and %d buffers for %d ranks", len(in), len(out), len(g.ranks))
	}
	var ops [flags.MaxRanks]operation
	for r, rank := range g.ranks {
		op, err := rank.check(in[r], out[r], count, dt)
		if err != nil {
			return err
		}
		ops[r] = op
	}
	harmonise(ops[:len(g.ranks)])
	if g.algorithm == OneshotPull {
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
	var eg errgroup.Group
	for r, rank := range g.ranks {
		eg.Go(func() error { return rank.enqueue(&ops[r]) })
	}
	return eg.Wait()
}

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

// Each runs f for every rank, each in a goroutine of its own, and returns the first error. ctx is cancelled
// for the others when one fails.
func (g *Group) Each(ctx context.Context, f func(ctx context.Context, r *Rank) error) error {
	eg, ctx := errgroup.WithContext(ctx)
	for _, rank := range g.ranks {
		eg.Go(func() error { return f(ctx, rank) })
	}
	return eg.Wait()
}

// Sync waits for the work of all ranks, and reports the group's failure if there is one: its first cause.
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

// fail records the first failure, and tells all waiting kernels and goroutines to give up.
func (g *Group) fail(cause error) {
	if !g.failure.CompareAndSwap(nil, &FailedError{Cause: cause}) {
		return
	}
	close(g.failed)
	for _, r := range g.ranks {
		if r.status != nil {
			_ = r.status.Store32(flags.AbortOffset, 1) // without it the kernels end by their deadline
		}
	}
}

// Close waits for queued work, at most a little longer than Config.Timeout, and frees everything. Its
// error lists what could not be freed.
func (g *Group) Close() error {
	if g.closed.Swap(true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout+5*time.Second)
	defer cancel()
	for _, r := range g.ranks {
		if r.stream == nil {
			continue
		}
		err := r.stream.Sync(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("close rank %d: %w: %w", r.id, ErrBusy, err)
		}
	}
	return g.release()
}

// release frees what build made, in reverse.
func (g *Group) release() error {
	g.closed.Store(true)
	var errs []error
	g.mu.Lock()
	graphs := g.graphs
	g.graphs = map[*Graph]struct{}{}
	g.mu.Unlock()
	for gr := range graphs {
		errs = append(errs, gr.destroy())
	}
	for _, r := range g.ranks {
		errs = append(errs, r.release())
	}
	for _, m := range g.modules {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
