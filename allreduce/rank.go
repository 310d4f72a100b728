package allreduce

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/launcher"
)

// Rank is one member of a group: its memory on its device, and the stream its calls run on.
type Rank struct {
	g      *Group
	id     int
	dev    int
	stream *launcher.Stream

	scratch scratch // of the direct kernels
	status  *launcher.HostBuffer
	kits    [numAlgorithms]*kit // of the algorithms that calls may take
	gather  *gather             // copy and host only

	mu   sync.Mutex // one call at a time
	seq  uint64
	last launched // by the call before, and nothing where the stream may have gone another way since
}

// kit is what one rank launches for one algorithm.
type kit struct {
	kernels   [numDTypes]*launcher.Kernel
	args      [numDTypes]*launcher.Args
	dependent bool                                            // its build is made for dependent launch
	packed    [max(twoshotBytes, pushBytes, reduceBytes)]byte // arguments of the launch being made; the constant part stays
}

// launched is a kernel on a rank's stream, its grid, and whether all its peers' blocks are there when it lets the next one in.
type launched struct {
	kernel          *launcher.Kernel
	blocks, threads int
	heard           bool
}

// launch queues the kernel for n bytes with the arguments that are packed.
func (k *kit) launch(r *Rank, a Algorithm, dt DType, n uint64, want grid) error {
	if err := k.args[dt].SetBytes(0, k.packed[:sources[a].bytes]); err != nil {
		return err
	}
	blocks, threads := r.g.shape(a, n, want)
	cfg := launcher.Linear(uint32(blocks), uint32(threads))
	behind := r.behind(launched{k.kernels[dt], blocks, threads, heardAll(a, n, len(r.g.ranks), blocks)}, r.g.rooms[a][threads/32])
	cfg.Dependent = k.dependent && behind && !(r.g.shares && len(r.g.cfg.Streams) != 0) // where nobody knows what lies between
	return k.kernels[dt].Launch(r.stream, cfg, k.args[dt])
}

// behind is whether a launch's blocks may be there before the one ahead has ended: see Group.reserve.
func (r *Rank) behind(now launched, room int) bool {
	before := r.last
	r.last = now
	return before.kernel == now.kernel && before.threads == now.threads && (before.heard || before.blocks+now.blocks <= room)
}

// operation is a checked call of one rank.
type operation struct {
	in, out      launcher.Buffer // exactly count elements
	call         call
	grid         grid          // that a table prefers
	registration *Registration // not nil: peers read the input directly
}

// bytes is the message's size.
func (op *operation) bytes() uint64 { return op.call.count * op.call.dtype.Size() }

// ID is the rank's number.
func (r *Rank) ID() int { return r.id }

// Device is the ordinal of the rank's device, as launcher.Runtime.Alloc takes it.
func (r *Rank) Device() int { return r.dev }

// Stream is where the rank's calls run. Work queued on it before a call may write the input, and work queued
// after may read the output and overwrite the input. A kernel launched on it with LaunchConfig.Dependent that holds
// griddepcontrol.wait must execute it: a call behind it relies on everything before it having ended. Where ranks share a device
// it may wait there for a call that another rank has yet to start, in the place of the next call: it must have no more blocks than
// the call ahead of it, and none that takes more of an SM. Any other kernel finds an SM that is free of the group's waiting calls; one that
// needs several at a time, as a cooperative launch may, need not find them. Calls are captured with Group.Capture. The stream belongs to the
// group, which closes it and does not know of a capture that is begun on it; unless it is the caller's own, from Config.Streams.
func (r *Rank) Stream() *launcher.Stream { return r.stream }

// AllReduce queues this rank's part of a call: out becomes the sum of all ranks' in, count elements of dt
// each. in and out are memory of the rank's device, of at least count × dt.Size() bytes, aligned to an element, and
// either the same (a call in place) or apart; out is apart from the other ranks' buffers too, which only Group.AllReduce
// can check. Every rank must make the same calls in the same order.
//
// It returns once the work is queued: at once for direct kernels, unless this rank is 256 calls ahead of another; copy and
// host wait, up to Config.Timeout, until the other ranks have come, and nccl does while it still connects. So with those every
// rank needs a goroutine of its own (Group.Each), while one goroutine can use Group.AllReduce. A stream takes about a thousand launches ahead; the next one
// waits until some have run. So that holds for direct calls too, once they are that far ahead of what has run.
//
// The error is an *ArgumentError, which leaves the group as it was; a *MismatchError, an *AbsentError, an *NCCLError or the
// launcher's, with which the group has failed; a *FailedError when it had before; or ErrClosed.
//
// After a failure, on whichever rank, outputs are undefined. A registered input, and any buffer of a call by copy or host,
// must not be overwritten or freed before every rank's Sync has returned.
func (r *Rank) AllReduce(in, out launcher.Buffer, count uint64, dt DType) error {
	op, err := r.check(in, out, count, dt)
	if err != nil {
		return err
	}
	return r.enqueue(&op)
}

// exists refuses what Group.Rank gives for a number that is no rank's.
func (r *Rank) exists() error {
	if r.stream == nil {
		return bad("rank", "there is no rank %d: use 0 to %d", r.id, len(r.g.ranks)-1)
	}
	return nil
}

// bytesOf is the size of count elements.
func bytesOf(rank int, count uint64, dt DType) (uint64, error) {
	if !dt.valid() {
		return 0, &ArgumentError{Rank: rank, Arg: "dtype", Detail: fmt.Sprintf("%d is none of %v", uint8(dt), dtypeNames)}
	}
	hi, n := bits.Mul64(count, dt.Size())
	if hi != 0 || n > 1<<62 {
		return 0, &ArgumentError{Rank: rank, Arg: "count", Detail: fmt.Sprintf("%d elements of %v do not fit in an address space", count, dt)}
	}
	return n, nil
}

// check refuses what cannot be queued, and finds how the call is to be done. It changes nothing.
func (r *Rank) check(in, out launcher.Buffer, count uint64, dt DType) (op operation, err error) {
	if err := r.exists(); err != nil {
		return op, err
	}
	if err := r.g.refusal(); err != nil {
		return op, err
	}
	n, err := bytesOf(r.id, count, dt)
	if err != nil {
		return op, err
	}
	op.call = call{count: count, dtype: dt}
	if count == 0 {
		return op, nil
	}
	if op.in, err = r.checkBuffer("in", in, n, dt); err != nil {
		return op, err
	}
	if op.out, err = r.checkBuffer("out", out, n, dt); err != nil {
		return op, err
	}
	if a, b := op.in.Ptr(), op.out.Ptr(); a != b && overlap(a, n, b, n) {
		return op, &ArgumentError{Rank: r.id, Arg: "out", Detail: fmt.Sprintf("%d bytes at %#x overlap in at %#x: use the same buffer or separate ones", n, b, a)}
	}
	if op.call.taken, err = r.capturing(); err != nil {
		return op, err
	}
	op.call.algorithm, op.grid = r.g.choose(n, dt, op.call.taken)
	if a := op.call.algorithm; op.call.taken && !a.Direct() {
		return op, &ArgumentError{Rank: r.id, Arg: "capture",
			Detail: fmt.Sprintf("calls by %v are not taken in by a capture that was begun on the rank's stream: end it, and use Group.Capture", a)}
	}
	if op.call.algorithm.pulls() {
		r.g.findRegistration(r.id, &op, n)
	}
	return op, nil
}

// capturing is whether the caller has begun a capture on the rank's stream, if that is the caller's. Of one of its own a group
// knows what is done to it. The error is an *ArgumentError, of a stream that is of no use now; any other meets what is done to the stream next.
func (r *Rank) capturing() (bool, error) {
	if len(r.g.cfg.Streams) == 0 || r.g.recording.Load() != nil {
		return false, nil
	}
	taken, err := r.stream.Capturing()
	switch {
	case errors.Is(err, launcher.ErrCapture):
		return false, &ArgumentError{Rank: r.id, Arg: "capture", Detail: "the capture on the rank's stream is void: end it, and begin again", Err: err}
	case errors.Is(err, launcher.ErrClosed):
		return false, &ArgumentError{Rank: r.id, Arg: "streams", Detail: "the rank's stream was closed ahead of the group: make a new group", Err: err}
	}
	return taken && err == nil, nil
}

// idleStream refuses what cannot be done while the caller captures on the rank's stream.
func (r *Rank) idleStream(what string) error {
	taken, err := r.capturing()
	if err == nil && taken {
		err = &ArgumentError{Rank: r.id, Arg: what, Detail: "a capture is under way on the rank's stream, and nothing runs: end it first"}
	}
	return err
}

// checkBuffer gives the first n bytes of b if a kernel of this rank may use them.
func (r *Rank) checkBuffer(arg string, b launcher.Buffer, n uint64, dt DType) (launcher.Buffer, error) {
	refuse := func(err error, format string, args ...any) (launcher.Buffer, error) {
		return launcher.Buffer{}, &ArgumentError{Rank: r.id, Arg: arg, Detail: fmt.Sprintf(format, args...), Err: err}
	}
	if err := b.Check(); err != nil {
		return refuse(err, "not usable memory")
	}
	switch {
	case !r.g.rt.Owns(b):
		return refuse(nil, "memory of another runtime: use buffers of the runtime that the group was made on")
	case b.Device() != r.dev:
		return refuse(nil, "memory of device %d, the rank is on device %d", b.Device(), r.dev)
	case b.Size() < n:
		return refuse(nil, "%d bytes, the call needs %d", b.Size(), n)
	case b.Ptr()%dt.Size() != 0:
		return refuse(nil, "address %#x is not aligned to an element of %v (%d bytes)", b.Ptr(), dt, dt.Size())
	}
	s, err := b.Slice(0, n)
	if err != nil {
		return refuse(err, "cannot be used")
	}
	return s, nil
}

// enqueue puts a checked call on the rank's stream.
func (r *Rank) enqueue(op *operation) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.g.party()
	if err := r.enter(p, op); err != nil || op.call.count == 0 {
		return err
	}
	var err error
	switch a := op.call.algorithm; {
	case a.Direct():
		err = r.enqueueDirect(op)
	case a == NCCL:
		err = r.enqueueNCCL(p, op)
	default:
		err = r.enqueueGather(p, op)
	}
	if err != nil {
		p.fail(err)
		return err
	}
	return p.refusal()
}

// enter agrees on the call with the other ranks.
func (r *Rank) enter(p party, op *operation) error {
	if err := p.refusal(); err != nil {
		return err
	}
	if err := p.join(r, op.call); err != nil {
		p.fail(err)
		return err
	}
	return p.refusal() // stopped while this rank waited
}

// together agrees on a call for all ranks, and has it queued on all of them at once.
func (g *Group) together(ops []operation, queue func(p party) error) error {
	for _, r := range g.ranks {
		r.mu.Lock()
	}
	defer func() {
		for _, r := range g.ranks {
			r.mu.Unlock()
		}
	}()
	p := g.party()
	for i, r := range g.ranks {
		if err := r.enter(p, &ops[i]); err != nil {
			return err
		}
	}
	if err := queue(p); err != nil {
		p.fail(err)
		return err
	}
	return p.refusal()
}

// Sync waits for the rank's queued work. It returns the wait's failure (a *launcher.TimeoutError when ctx ended
// first, with the work still running), what went wrong on this rank (a *flags.StuckError naming the peer, an *NCCLError), the
// group's failure (a *FailedError), or ErrClosed; and an *ArgumentError during a capture. Of calls in graphs that the caller captured and
// launches, nothing else reports a failure.
func (r *Rank) Sync(ctx context.Context) error {
	if err := r.exists(); err != nil {
		return err
	}
	g := r.g
	if g.closed.Load() {
		return ErrClosed
	}
	if g.recording.Load() != nil {
		return bad("sync", "a capture is under way and nothing runs: wait after Graph.Launch")
	}
	if err := g.Err(); err == nil { // or what is to be said is that
		if err := r.idleStream("sync"); err != nil {
			return err
		}
	}
	if err := r.await(ctx); err != nil {
		var late *launcher.TimeoutError
		switch {
		case g.closed.Load():
			return ErrClosed
		case errors.Is(err, launcher.ErrCapture) && len(g.cfg.Streams) != 0: // it was begun just now, and is void
			return &ArgumentError{Rank: r.id, Arg: "sync", Detail: "a capture was begun on the rank's stream during the wait, and is void: end it, and wait ahead of captures", Err: err}
		case !errors.As(err, &late):
			g.fail(err)
		}
		return err
	}
	if err := g.diagnose(r.id); errors.Is(err, flags.ErrTimeout) {
		return err
	}
	if g.nccl != nil && g.failure.Load() == nil {
		if err := g.nccl.RankErr(r.id); err != nil {
			err = &NCCLError{Rank: r.id, Err: err}
			g.fail(err)
			return err
		}
	}
	return g.Err()
}

// await waits for the rank's stream, and looks after NCCL meanwhile.
func (r *Rank) await(ctx context.Context) error {
	if r.g.nccl != nil {
		defer r.watchNCCL().stop()
	}
	return r.stream.Sync(ctx)
}

// build allocates the rank's memory and prepares its kernels.
func (r *Rank) build(l *loaded) (err error) {
	rt, limit := r.g.rt, &r.g.policy.limit
	if given := r.g.cfg.Streams; len(given) != 0 {
		r.stream = given[r.id]
	} else if r.stream, err = rt.NewStream(r.dev); err != nil {
		return err
	}
	if r.status, err = rt.AllocHost(flags.StatusBytes); err != nil {
		return err
	}
	clear(r.status.Bytes())
	for a := range r.kits {
		if limit[a] == 0 || Algorithm(a) == NCCL {
			continue
		}
		k := &kit{dependent: l[a].dependent && Algorithm(a).Direct()}
		r.kits[a] = k
		for _, dt := range DTypes() {
			if k.kernels[dt], err = l[a].module.Kernel(sources[a].entry + dt.String()); err != nil {
				return err
			}
			if k.args[dt], err = k.kernels[dt].Pack(make([]byte, sources[a].bytes)); err != nil {
				return err
			}
		}
	}
	if limit[Copy] != 0 || limit[Host] != 0 {
		if err := r.buildGather(); err != nil {
			return err
		}
	}
	if r.g.direct {
		return r.buildDirect()
	}
	return nil
}

// release frees the rank's memory. Freeing twice is harmless.
func (r *Rank) release() error {
	errs := []error{r.scratch.release()}
	if r.gather != nil {
		errs = append(errs, r.gather.release())
	}
	if r.status != nil {
		errs = append(errs, r.status.Free())
	}
	if r.stream != nil && len(r.g.cfg.Streams) == 0 {
		errs = append(errs, r.stream.Close())
	}
	return joined(errs...)
}
