package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/internal/nccl"
	"github.com/fenceline/fenceline/launcher"
)

// ncclOnEmulator lets --compare run on emulated devices, with a library that is a fake. It is for tests of this command.
var ncclOnEmulator bool

// ncclStart is how long NCCL may take to get ready: for each rank, a CUDA context and the connections.
var ncclStart = 90 * time.Second

// noMulticast keeps NCCL from making multicast objects, which not every machine bears. NCCL reads it when it starts. What it
// returns undoes it.
func noMulticast() func() {
	const name = "NCCL_NVLS_ENABLE"
	was, set := os.LookupEnv(name)
	_ = os.Setenv(name, "0") // fails for bad names only
	return func() {
		if set {
			_ = os.Setenv(name, was)
		} else {
			_ = os.Unsetenv(name)
		}
	}
}

// loadNCCL loads what --compare asks for.
func (r *benchRun) loadNCCL() (err error) {
	if !r.set.compare {
		return nil
	}
	if r.rep.Backend.Emulated && !ncclOnEmulator {
		return usagef("--compare", compareNCCL, "NCCL needs GPUs, and these devices are emulated: leave it out")
	}
	if r.nccl, err = nccl.Open(r.set.library); err != nil {
		return fmt.Errorf("--compare nccl: %w (--nccl PATH), or leave --compare out", err)
	}
	r.rep.NCCL = r.nccl.Version()
	return nil
}

// addNCCL puts NCCL beside the contenders: in this process where each rank has a device of its own, and otherwise, since NCCL
// refuses two ranks on a device of what it takes for one host, in a process and on a host name for each rank.
func (r *benchRun) addNCCL(ctx context.Context, f *field, w *worldReport) error {
	const multicast = "; NCCL_NVLS_ENABLE=0"
	version := fmt.Sprintf("NCCL %d.%d.%d", r.rep.NCCL/10000, r.rep.NCCL/100%100, r.rep.NCCL%100)
	if w.Shared {
		kids, err := r.startNCCL(ctx, w)
		if err != nil {
			return err
		}
		f.others = append(f.others, kids.end)
		f.contenders = append(f.contenders, kids)
		r.rep.note("%d ranks: %s in a process for each rank, each with its own NCCL_HOSTID, so over its socket transport: not what it does on one GPU per rank%s", w.Ranks, version, multicast)
		return nil
	}
	var clique *nccl.Clique
	err := bounded(ctx, ncclStart, "ncclCommInitAll", func() (err error) {
		clique, err = r.nccl.InitAll(w.Devices)
		return err
	})
	if err != nil {
		return fmt.Errorf("%d ranks: %w", w.Ranks, err)
	}
	c := &ncclContender{clique: clique}
	c.groupContender = groupContender{label: compareNCCL, rt: r.rt, g: f.groups[0], emulated: r.rep.Backend.Emulated, timeout: r.set.timeout, lengths: r.lengths, clock: f.clocks[f.groups[0]], prepare: c.take}
	f.others = append(f.others, c.end)
	f.contenders = append(f.contenders, c)
	r.rep.note("%d ranks: %s in one process%s", w.Ranks, version, multicast)
	return nil
}

// ncclContender is NCCL on the streams of a group of ours, in captures of the same kind.
type ncclContender struct {
	groupContender
	clique *nccl.Clique
	ctx    context.Context
	stuck  bool // a call never returned
}

func (c *ncclContender) plan(row) (*allreduce.Plan, error) { return nil, nil }

// open makes a call ahead of any capture: NCCL connects its ranks in the first.
func (c *ncclContender) open(ctx context.Context, w row, seed uint64) error {
	c.ctx = ctx
	if err := c.groupContender.open(ctx, w, seed); err != nil {
		return err
	}
	in, out, err := c.b.bodies()
	if err != nil {
		return err
	}
	return c.b.call(ctx, in, out)
}

// take makes a bench's calls NCCL's, with payloads whose sums are exact in any order.
func (c *ncclContender) take(b *bench) {
	b.fill = wholeNumbers
	b.queue = func(in, out []launcher.Buffer) error {
		calls := make([]nccl.Call, len(in))
		for r := range in {
			calls[r] = nccl.Call{Send: uintptr(in[r].Ptr()), Recv: uintptr(out[r].Ptr()), Stream: c.g.Rank(r).Stream().Handle()}
		}
		if c.stuck {
			return fmt.Errorf("ncclAllReduce: an earlier call has not returned")
		}
		err := bounded(c.ctx, c.timeout, "ncclAllReduce", func() error { return c.clique.AllReduce(calls, b.row.count, ncclType(b.row.dtype), c.timeout) })
		_, c.stuck = err.(*overdueError)
		return err
	}
}

func (c *ncclContender) check(ctx context.Context, seed uint64, inPlace bool) (verdict, error) {
	v, err := c.groupContender.check(ctx, seed, inPlace)
	if err == nil {
		err = c.clique.Err()
	}
	return v, err
}

// end takes the communicators down. Work that fails is aborted, and calls that never return are left.
func (c *ncclContender) end() error {
	if c.stuck {
		return nil
	}
	end := c.clique.Close
	if c.clique.Err() != nil {
		end = c.clique.Abort
	}
	return bounded(context.Background(), ncclStart, "ncclCommDestroy", end)
}

func ncclType(dt allreduce.DType) nccl.DType {
	switch dt {
	case allreduce.F16:
		return nccl.F16
	case allreduce.BF16:
		return nccl.BF16
	}
	return nccl.F32
}

// wholeNumbers fills payloads with numbers from -8 to 8: sums of 16 of them are exact in every type, in any order, so that a
// library with another order of summing can be compared bit by bit.
func wholeNumbers(dt allreduce.DType, rng *rand.Rand, in [][]byte) {
	for r := range in {
		for at := uint64(0); at < uint64(len(in[r])); at += dt.Size() {
			dt.Store(in[r][at:], float32(int(rng.Uint32()%17)-8))
		}
	}
}

// overdueError is a call of a library that did not return.
type overdueError struct {
	What  string
	After time.Duration
}

func (e *overdueError) Error() string {
	return fmt.Sprintf("%s did not return within %v: see what NCCL_DEBUG=INFO prints, or leave --compare out", e.What, e.After)
}

// bounded runs f, and gives up waiting after a time, or when ctx ends; f then goes on by itself.
func bounded(ctx context.Context, limit time.Duration, what string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	case <-ctx.Done():
		select {
		case err := <-done:
			return err
		case <-time.After(time.Second): // it may be about to
		}
	}
	return &overdueError{what, limit}
}

// ncclWant is the payloads of all ranks and their sum, for a process that has only one of them.
func ncclWant(dt allreduce.DType, seed uint64, w row, world int) (in [][]byte, want []byte, err error) {
	in = make([][]byte, world)
	for r := range in {
		in[r] = make([]byte, w.bytes())
	}
	wholeNumbers(dt, payloadsOf(seed, w), in)
	want = make([]byte, w.bytes())
	return in, want, allreduce.Reference(dt, want, in...)
}

// wrongIn counts elements that differ, and names the first.
func wrongIn(dt allreduce.DType, got, want []byte) (wrong uint64, first string) {
	for at := uint64(0); at < uint64(len(want)); at += dt.Size() {
		if dt.Size() == 4 && binary.LittleEndian.Uint32(got[at:]) == binary.LittleEndian.Uint32(want[at:]) ||
			dt.Size() == 2 && binary.LittleEndian.Uint16(got[at:]) == binary.LittleEndian.Uint16(want[at:]) {
			continue
		}
		if wrong++; wrong == 1 {
			first = fmt.Sprintf("element %d is %s, the reference has %s", at/dt.Size(), show(dt, got[at:at+dt.Size()]), show(dt, want[at:at+dt.Size()]))
		}
	}
	return wrong, first
}
