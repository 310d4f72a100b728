package allreduce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/internal/nccl"
	"github.com/fenceline/fenceline/launcher"
)

const (
	// ncclStart is how long NCCL may take to join the ranks and to connect them; it looks at the whole machine for that.
	ncclStart = time.Minute
	// ncclEnd is how long its end is waited for.
	ncclEnd = 15 * time.Second
	// ncclConnect is the largest message of the calls that connect; each rank needs that much memory for them.
	ncclConnect = 64 << 20
	// ncclLook is how often a rank that waits looks after NCCL, whose kernels wait for their peers without a bound.
	ncclLook = 20 * time.Millisecond
)

// ncclRanks is NCCL in a group. Its kernels have no deadline, so the host has: a rank that waits in Sync looks whether NCCL
// has failed, and whether other ranks stay away. A group that fails aborts the communicators, which ends their kernels.
type ncclRanks struct {
	nccl.Ranks
	calls [flags.MaxRanks]nccl.Call     // of a whole-group call; guarded by Group.queue
	made  [flags.MaxRanks]atomic.Uint64 // calls of each rank, captured ones not counted
	once  sync.Once
	ended chan struct{}
	err   error // of the end
}

// joinNCCL makes the communicators, and connects them with a small call and a large one, so that no later one has to where that can
// be helped: NCCL connects what an algorithm of its own needs in the first call that takes it.
func (g *Group) joinNCCL() error {
	if g.policy.limit[NCCL] == 0 {
		return nil
	}
	lib, err := nccl.Load(g.cfg.NCCLLibrary)
	if err != nil {
		return &NCCLError{Rank: -1, Err: err}
	}
	members := make([]nccl.Member, len(g.ranks))
	for r, rank := range g.ranks {
		members[r] = nccl.Member{Device: rank.dev, Stream: rank.stream.Handle()}
	}
	ranks, err := lib.Join(members, ncclStart)
	if err != nil {
		return &NCCLError{Rank: -1, Err: err}
	}
	g.nccl = &ncclRanks{Ranks: ranks, ended: make(chan struct{})}
	for _, n := range []uint64{16, min(g.cfg.MaxBytes, ncclConnect)} {
		if err := g.connectNCCL(n / F32.Size()); err != nil {
			return &NCCLError{Rank: -1, Err: fmt.Errorf("first call of %d bytes: %w", n, err)}
		}
	}
	return nil
}

func (g *Group) connectNCCL(count uint64) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), ncclStart)
	defer cancel()
	calls, streams := make([]nccl.Call, len(g.ranks)), make([]*launcher.Stream, len(g.ranks)) // the ranks' own may be busy, if they are the caller's
	for r, rank := range g.ranks {
		b, aerr := g.rt.Alloc(rank.dev, count*F32.Size())
		if aerr != nil {
			return aerr
		}
		defer func() { err = joined(err, b.Free()) }()
		if streams[r], err = g.rt.NewStream(rank.dev); err != nil {
			return err
		}
		defer func() { err = joined(err, streams[r].Close()) }()
		if err = streams[r].Memset(b, 0); err != nil {
			return err
		}
		calls[r] = ncclCall(streams[r], b, b)
	}
	err = g.nccl.AllReduce(calls, count, nccl.F32, ncclStart)
	for r, s := range streams {
		if err == nil {
			err = s.Sync(ctx)
		}
		if err == nil {
			err = g.nccl.RankErr(r)
		}
	}
	if err != nil {
		g.nccl.abort()
		g.nccl.wait(ncclEnd) // its kernels could still use what is freed now
	}
	return err
}

func ncclCall(s *launcher.Stream, in, out launcher.Buffer) nccl.Call {
	return nccl.Call{Send: uintptr(in.Ptr()), Recv: uintptr(out.Ptr()), Stream: s.Handle()}
}

var ncclTypes = [numDTypes]nccl.DType{F32: nccl.F32, F16: nccl.F16, BF16: nccl.BF16}

// enqueueNCCL queues one rank's part in one C call. It allocates nothing.
func (r *Rank) enqueueNCCL(p party, op *operation) error {
	g := r.g
	if p == party(g) {
		g.nccl.made[r.id].Add(1)
	}
	err := g.nccl.AllReduceRank(r.id, ncclCall(r.stream, op.in, op.out), op.call.count, ncclTypes[op.call.dtype], g.cfg.Timeout)
	return g.ncclFailed(p, r.id, err)
}

// enqueueAllNCCL queues a call on all ranks as one group of NCCL's, in one C call.
func (g *Group) enqueueAllNCCL(ops []operation) error {
	return g.together(ops, func(p party) error {
		for i, r := range g.ranks {
			if p == party(g) {
				g.nccl.made[i].Add(1)
			}
			g.nccl.calls[i] = ncclCall(r.stream, ops[i].in, ops[i].out)
		}
		err := g.nccl.AllReduce(g.nccl.calls[:len(g.ranks)], ops[0].call.count, ncclTypes[ops[0].call.dtype], g.cfg.Timeout)
		return g.ncclFailed(p, -1, err)
	})
}

// ncclFailed is what the error of a call means.
func (g *Group) ncclFailed(p party, rank int, err error) error {
	if err == nil {
		return nil
	}
	if refusal := p.refusal(); refusal != nil { // it was aborted for another reason
		return refusal
	}
	if missing := g.nccl.behind(rank, len(g.ranks)); missing != 0 && errors.Is(err, nccl.ErrTimeout) {
		return g.ncclAbsent(rank, missing)
	}
	return &NCCLError{Rank: rank, Err: err}
}

func (g *Group) ncclAbsent(rank int, missing uint32) error {
	return &AbsentError{Rank: rank, Missing: ranksOf(missing), Where: "in a call of nccl", Waited: g.cfg.Timeout,
		Remedy: "every rank must make the same calls; one goroutine cannot make them one after another while NCCL still connects: use Group.AllReduce, or a goroutine per rank"}
}

// behind is the ranks that have made fewer calls than rank, one bit each.
func (n *ncclRanks) behind(rank, world int) (mask uint32) {
	if rank < 0 {
		return 0
	}
	mine := n.made[rank].Load()
	for p := range world {
		if n.made[p].Load() < mine {
			mask |= 1 << p
		}
	}
	return mask
}

// ncclWatch looks after NCCL while a rank waits for its stream.
type ncclWatch struct {
	r       *Rank
	mu      sync.Mutex
	timer   *time.Timer // nil once stopped
	since   time.Time   // when those behind last made a call
	missing uint32
	calls   uint64 // of those behind
}

// watchNCCL begins to look; stop ends it.
func (r *Rank) watchNCCL() *ncclWatch {
	w := &ncclWatch{r: r, since: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(ncclLook, w.look)
	return w
}

func (w *ncclWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.timer = nil
}

func (w *ncclWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return
	}
	g := w.r.g
	if err := w.judge(time.Now()); err != nil {
		g.fail(err)
		return
	}
	if g.refusal() == nil {
		w.timer.Reset(ncclLook)
	}
}

// judge is why the group has failed, nil if it has not.
func (w *ncclWatch) judge(now time.Time) error {
	g := w.r.g
	if err := g.nccl.RankErr(w.r.id); err != nil {
		return &NCCLError{Rank: w.r.id, Err: err}
	}
	missing, calls := g.nccl.behind(w.r.id, len(g.ranks)), uint64(0)
	for _, p := range ranksOf(missing) {
		calls += g.nccl.made[p].Load()
	}
	if missing == 0 || missing != w.missing || calls != w.calls {
		w.missing, w.calls, w.since = missing, calls, now
	}
	if missing != 0 && now.Sub(w.since) > g.cfg.Timeout {
		return g.ncclAbsent(w.r.id, missing)
	}
	return nil
}

// abort ends NCCL's kernels and frees the communicators, in the background: it may take NCCL long.
func (n *ncclRanks) abort() { n.end(n.Abort) }

func (n *ncclRanks) end(how func() error) {
	n.once.Do(func() {
		go func() {
			defer close(n.ended)
			n.err = how()
		}()
	})
}

// wait is whether the end has come within limit.
func (n *ncclRanks) wait(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-n.ended:
		return true
	case <-timer.C:
		return false
	}
}

// release ends NCCL, which an abort may have done already, and waits for it.
func (n *ncclRanks) release() error {
	n.end(n.Close)
	switch {
	case !n.wait(ncclEnd):
		return &NCCLError{Rank: -1, Err: &nccl.Error{Op: "end", Kind: nccl.ErrTimeout, Text: ncclEnd.String()}}
	case n.err != nil:
		return &NCCLError{Rank: -1, Err: n.err}
	}
	return nil
}
