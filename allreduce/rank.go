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

	pad     launcher.Buffer // written by peers
	control launcher.Buffer
	stage   launcher.Buffer // two halves, read by peers
	status  *launcher.HostBuffer

	pull       [numDTypes]*launcher.Kernel
	pullArgs   [numDTypes]*launcher.Args
	dependent  bool
	reduce     [numDTypes]*launcher.Kernel
	reduceArgs [numDTypes]*launcher.Args
	gather     *gather // copy and host only

	mu     sync.Mutex // one call at a time
	seq    uint64
	packed [max(pullBytes, reduceBytes)]byte // arguments of the launch being made; the constant part stays
}

// operation is a checked call of one rank.
type operation struct {
	in, out      launcher.Buffer // exactly count elements
	call         call
	registration *Registration // not nil: peers read the input in place
}

// ID is the rank's number.
func (r *Rank) ID() int { return r.id }

// Device is the ordinal of the rank's device.
func (r *Rank) Device() int { return r.dev }

// Stream is where the rank's calls run. Work queued on it before a call may write the input, and work queued
// after may read the output and overwrite the input. A kernel launched on it with LaunchConfig.Dependent must
// execute griddepcontrol.wait: a call behind it relies on everything before it having ended.
func (r *Rank) Stream() *launcher.Stream { return r.stream }

// AllReduce queues this rank's part of a call: out becomes the sum of all ranks' in, count elements of dt
// each. in and out are memory of the rank's device, aligned to an element, and either the same or apart. It
// returns once the work is queued: at once for oneshot-pull; copy and host wait, up to Config.Timeout, until
// the other ranks have come. Every rank must make the same calls in the same order.
func (r *Rank) AllReduce(in, out launcher.Buffer, count uint64, dt DType) error {
	op, err := r.check(in, out, count, dt)
	if err != nil {
		return err
	}
	return r.enqueue(&op)
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
	if r.g.closed.Load() {
		return op, ErrClosed
	}
	if f := r.g.failure.Load(); f != nil {
		return op, f
	}
	n, err := bytesOf(r.id, count, dt)
	if err != nil {
		return op, err
	}
	op.call = call{count: count, dtype: dt, capture: r.g.capturing.Load()}
	if count == 0 {
		return op, nil
	}
	if op.in, err = r.checkBuffer("in", in, n, dt); err != nil {
		return op, err
	}
	if op.out, err = r.checkBuffer("out", out, n, dt); err != nil {
		return op, err
	}
	if a, b := op.in.Ptr(), op.out.Ptr(); a != b && a < b+n && b < a+n {
		return op, &ArgumentError{Rank: r.id, Arg: "out", Detail: fmt.Sprintf("%d bytes at %#x overlap in at %#x: use the same buffer or separate ones", n, b, a)}
	}
	if r.g.algorithm == OneshotPull {
		r.g.findRegistration(r.id, &op, n)
	}
	return op, nil
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
	g := r.g
	if f := g.failure.Load(); f != nil {
		return f
	}
	seq := r.seq
	r.seq++
	err := g.agree.join(r.id, seq, op.call, g.cfg.Timeout, g.failed)
	if err == nil && op.call.count != 0 {
		if g.algorithm == OneshotPull {
			err = r.enqueuePull(op)
		} else {
			err = r.enqueueGather(op)
		}
	}
	if err != nil {
		g.fail(err)
		return err
	}
	if f := g.failure.Load(); f != nil {
		return f
	}
	return nil
}

// Sync waits for the rank's queued work. It returns the wait's failure (a launcher.TimeoutError when ctx ended
// first, with the work still running), what went wrong on this rank (a *flags.StuckError naming the peer), or
// the group's failure.
func (r *Rank) Sync(ctx context.Context) error {
	if r.g.closed.Load() {
		return ErrClosed
	}
	if err := r.stream.Sync(ctx); err != nil {
		var late *launcher.TimeoutError
		if !errors.As(err, &late) {
			r.g.fail(err)
		}
		return err
	}
	if err := flags.Diagnose(r.id, r.status.Bytes()); err != nil {
		r.g.fail(err)
		if errors.Is(err, flags.ErrTimeout) {
			return err
		}
	}
	return r.g.Err()
}

// build allocates the rank's memory and prepares its kernels.
func (r *Rank) build(pull, reduce *launcher.Module) (err error) {
	rt := r.g.rt
	if r.stream, err = rt.NewStream(r.dev); err != nil {
		return err
	}
	if r.status, err = rt.AllocHost(flags.StatusBytes); err != nil {
		return err
	}
	clear(r.status.Bytes())
	for _, dt := range DTypes() {
		if r.pull[dt], r.pullArgs[dt], err = prepare(pull, "allreduce_oneshot_pull_"+dt.String(), pullBytes); err != nil {
			return err
		}
		if r.reduce[dt], r.reduceArgs[dt], err = prepare(reduce, "reduce_local_"+dt.String(), reduceBytes); err != nil {
			return err
		}
	}
	if r.g.algorithm == OneshotPull {
		return r.buildPull()
	}
	return r.buildGather()
}

func prepare(m *launcher.Module, entry string, bytes int) (*launcher.Kernel, *launcher.Args, error) {
	k, err := m.Kernel(entry)
	if err != nil {
		return nil, nil, err
	}
	a, err := k.Pack(make([]byte, bytes))
	return k, a, err
}

// connect fills in what needs every rank's memory to be there.
func (r *Rank) connect() error {
	if r.g.algorithm == OneshotPull {
		r.connectPull()
	}
	return nil
}

// release frees the rank's memory.
func (r *Rank) release() error {
	var errs []error
	for _, b := range []launcher.Buffer{r.pad, r.control, r.stage} {
		if b.Ptr() != 0 {
			errs = append(errs, b.Free())
		}
	}
	if r.gather != nil {
		errs = append(errs, r.gather.release())
	}
	if r.status != nil {
		errs = append(errs, r.status.Free())
	}
	if r.stream != nil {
		errs = append(errs, r.stream.Close())
	}
	return errors.Join(errs...)
}
