// Package nccltest stands in for NCCL on emulated devices, so that what is built on NCCL can be tested without it.
package nccltest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/nccl"
)

// Mark is what a captured call writes into its output when the graph runs, byte by byte, instead of a sum.
const Mark = 0x5a

// Fake is a library. It sums when all ranks' calls have come, from the last rank to the first, so that its bits are not those of
// a sum in rank order. Set its fields before it is used.
type Fake struct {
	Driver  gpu.Driver
	Sum     func(dt nccl.DType, out []byte, in ...[]byte) error
	LoadErr error  // of Load
	JoinErr error  // of Join
	CallErr error  // of a call of 13 elements
	OnAbort func() // during Abort

	Capturing atomic.Bool // the streams of calls capture

	mu     sync.Mutex
	counts Counts
	broken map[int]error
}

// Counts is how often the fake was called.
type Counts struct {
	Joins, Groups, Calls, Captured, Closes, Aborts int
	Members                                        []nccl.Member // of the last Join
}

// Load is for nccl.StandIn.
func (f *Fake) Load(string) (nccl.Loaded, error) {
	if f.LoadErr != nil {
		return nil, f.LoadErr
	}
	return f, nil
}

// Counts is what has happened so far.
func (f *Fake) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// Break makes RankErr of a rank say so.
func (f *Fake) Break(rank int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken == nil {
		f.broken = map[int]error{}
	}
	f.broken[rank] = err
}

func (f *Fake) count(change func(c *Counts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.counts)
}

// Version is none that NCCL has.
func (f *Fake) Version() int { return 20000 }

// Join makes communicators unless JoinErr stands against it.
func (f *Fake) Join(members []nccl.Member, _ time.Duration) (nccl.Ranks, error) {
	f.count(func(c *Counts) { c.Joins, c.Members = c.Joins+1, slices.Clone(members) })
	if f.JoinErr != nil {
		return nil, f.JoinErr
	}
	r := &ranks{f: f, members: slices.Clone(members), calls: make([]*nccl.Call, len(members)), gone: make(chan struct{})}
	r.round = newRound()
	return r, nil
}

// round is one call of all ranks.
type round struct {
	done chan struct{}
	err  error
}

func newRound() *round { return &round{done: make(chan struct{})} }

type ranks struct {
	f       *Fake
	members []nccl.Member
	mu      sync.Mutex
	calls   []*nccl.Call // of the round
	round   *round
	gone    chan struct{}
	ended   bool
}

var errGone = &nccl.Error{Op: "ncclAllReduce", Kind: nccl.ErrClosed}

// captured makes a call on a stream that captures, as far as it gets. It is whether it did.
func (r *ranks) captured(rank int, k nccl.Call, count uint64, dt nccl.DType) (bool, error) {
	if !r.f.Capturing.Load() {
		return false, nil
	}
	r.f.count(func(c *Counts) { c.Captured++ })
	return true, r.f.Driver.Memset(r.members[rank].Device, gpu.Stream(k.Stream), gpu.Ptr(k.Recv), Mark, count*sizeOf(dt))
}

func (r *ranks) AllReduce(calls []nccl.Call, count uint64, dt nccl.DType, limit time.Duration) error {
	if len(calls) != len(r.members) {
		return fmt.Errorf("%d calls for %d ranks", len(calls), len(r.members))
	}
	r.f.count(func(c *Counts) { c.Groups++ })
	if count == 13 && r.f.CallErr != nil {
		return r.f.CallErr
	}
	if r.f.Capturing.Load() {
		for rank, k := range calls {
			if _, err := r.captured(rank, k, count, dt); err != nil {
				return err
			}
		}
		return nil
	}
	return r.sum(calls, count, dt, limit)
}

func (r *ranks) AllReduceRank(rank int, k nccl.Call, count uint64, dt nccl.DType, limit time.Duration) error {
	r.f.count(func(c *Counts) { c.Calls++ })
	if count == 13 && r.f.CallErr != nil {
		return r.f.CallErr
	}
	if is, err := r.captured(rank, k, count, dt); is {
		return err
	}
	r.mu.Lock()
	mine := r.round
	r.calls[rank] = &k
	var all []nccl.Call
	for _, c := range r.calls {
		if c != nil {
			all = append(all, *c)
		}
	}
	if len(all) == len(r.members) {
		clear(r.calls)
		r.round = newRound()
		r.mu.Unlock()
		mine.err = r.sum(all, count, dt, limit)
		close(mine.done)
		return mine.err
	}
	r.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-r.gone:
		return errGone
	case <-time.After(limit):
		return &nccl.Error{Op: "ncclAllReduce", Kind: nccl.ErrTimeout, Text: limit.String()}
	}
}

// sum waits for what is on the streams, and then does the call at once.
func (r *ranks) sum(calls []nccl.Call, count uint64, dt nccl.DType, limit time.Duration) error {
	d, in := r.f.Driver, make([][]byte, len(calls))
	for rank, k := range calls {
		dev, s := r.members[rank].Device, gpu.Stream(k.Stream)
		for end := time.Now().Add(limit); ; {
			done, err := d.StreamWait(dev, s, time.Millisecond)
			if err != nil {
				return err
			}
			if done {
				break
			}
			if time.Now().After(end) {
				return &nccl.Error{Op: "ncclAllReduce", Kind: nccl.ErrTimeout, Text: limit.String()}
			}
		}
		in[rank] = make([]byte, count*sizeOf(dt))
		if err := d.CopyOut(dev, s, in[rank], gpu.Ptr(k.Send)); err != nil {
			return err
		}
	}
	slices.Reverse(in)
	out := make([]byte, count*sizeOf(dt))
	if err := r.f.Sum(dt, out, in...); err != nil {
		return err
	}
	for rank, k := range calls {
		if err := d.CopyIn(r.members[rank].Device, gpu.Stream(k.Stream), gpu.Ptr(k.Recv), out); err != nil {
			return err
		}
	}
	return nil
}

func sizeOf(dt nccl.DType) uint64 {
	if dt == nccl.F32 {
		return 4
	}
	return 2
}

func (r *ranks) RankErr(rank int) error {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	return r.f.broken[rank]
}

func (r *ranks) end(change func(c *Counts)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.ended = true
	close(r.gone)
	r.f.count(change)
	return true
}

func (r *ranks) Close() error {
	r.end(func(c *Counts) { c.Closes++ })
	return nil
}

func (r *ranks) Abort() error {
	if r.end(func(c *Counts) { c.Aborts++ }) && r.f.OnAbort != nil {
		r.f.OnAbort()
	}
	return nil
}
