//go:build linux && cgo

package nccl

/*
#include "tramp.h"
*/
import "C"

import (
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/fenceline/fenceline/internal/inuse"
)

const (
	// grace is how long the end of communicators waits for calls that are under way. NCCL itself bears to be aborted then.
	grace = time.Second
	// flushing is how long Close lets NCCL flush what is there, before it aborts.
	flushing = 10 * time.Second
)

// Clique is the communicators of this process: one for each rank that is in it.
type Clique struct {
	lib   *Library
	ranks []C.fl_rank
	plain bool // they block
	users inuse.Guard
	group sync.Mutex // one whole-group call at a time, and guards list
	list  []C.fl_call
}

func newClique(l *Library, n int) *Clique {
	return &Clique{lib: l, ranks: make([]C.fl_rank, n), list: make([]C.fl_call, n), plain: true}
}

func (c *Clique) gone(op string) error { return &Error{Op: op, Kind: ErrClosed} }

const (
	allReduce = "ncclAllReduce"
	finalize  = "ncclCommFinalize"
)

func checkType(dt DType) error {
	if dt != F16 && dt != F32 && dt != BF16 {
		return refuse(allReduce, "element type %d", dt)
	}
	return nil
}

// AllReduce queues the sum of count elements on every rank of this process, as one group; calls[i] is that of the i-th rank.
// Where the streams capture, it is captured. limit is as of Ranks; communicators of InitRank and InitAll know none.
func (c *Clique) AllReduce(calls []Call, count uint64, dt DType, limit time.Duration) error {
	if !c.users.Enter() {
		return c.gone(allReduce)
	}
	defer c.users.Leave()
	if len(calls) != len(c.ranks) {
		return refuse(allReduce, "%d calls for %d communicator(s)", len(calls), len(c.ranks))
	}
	if err := checkType(dt); err != nil {
		return err
	}
	c.group.Lock()
	defer c.group.Unlock()
	for i, k := range calls {
		c.list[i] = C.fl_call{send: C.uintptr_t(k.Send), recv: C.uintptr_t(k.Recv), stream: C.uintptr_t(k.Stream)}
	}
	r := C.fl_nccl_all(c.lib.l, C.int(len(c.list)), &c.ranks[0], &c.list[0], C.size_t(count), C.int(dt))
	if r == 0 {
		return nil
	}
	return c.settle(allReduce, r, c.ranks, limit)
}

// AllReduceRank queues one rank's part, in one C call and without a group of NCCL's.
func (c *Clique) AllReduceRank(rank int, call Call, count uint64, dt DType, limit time.Duration) error {
	if !c.users.Enter() {
		return c.gone(allReduce)
	}
	defer c.users.Leave()
	if rank < 0 || rank >= len(c.ranks) {
		return refuse(allReduce, "rank %d of %d", rank, len(c.ranks))
	}
	if err := checkType(dt); err != nil {
		return err
	}
	k := C.fl_call{send: C.uintptr_t(call.Send), recv: C.uintptr_t(call.Recv), stream: C.uintptr_t(call.Stream)}
	r := C.fl_nccl_one(c.lib.l, c.ranks[rank], k, C.size_t(count), C.int(dt))
	if r == 0 {
		return nil
	}
	return c.settle(allReduce, r, c.ranks[rank:rank+1], limit)
}

// settle says what became of a call that gave r, once no rank is at it any more.
func (c *Clique) settle(op string, r C.int, ranks []C.fl_rank, limit time.Duration) error {
	if r != 0 && r != C.ncclInProgress {
		return c.lib.failed(op, r, ranks[0].comm)
	}
	end, nap := time.Now().Add(limit), 20*time.Microsecond
	for i := 0; i < len(ranks); {
		switch state, err := c.state(ranks[i]); {
		case err != nil:
			return err
		case state == 0:
			i++
		case state != C.ncclInProgress:
			return c.lib.failed(op, state, ranks[i].comm)
		case op != finalize && c.users.Closed():
			return c.gone(op)
		case time.Now().After(end):
			return &Error{Op: op, Kind: ErrTimeout, Text: limit.String(), Detail: "NCCL_DEBUG=INFO shows what it waits for"}
		default:
			time.Sleep(nap)
			nap = min(2*nap, 2*time.Millisecond)
		}
	}
	return nil
}

func (c *Clique) state(rank C.fl_rank) (C.int, error) {
	state := C.fl_nccl_state(c.lib.l, rank.comm)
	if state < 0 {
		return 0, c.lib.failed("ncclCommGetAsyncError", -state, rank.comm)
	}
	return state, nil
}

// Err is the failure of work that was queued on any rank, nil while there is none.
func (c *Clique) Err() error {
	for i := range c.ranks {
		if err := c.RankErr(i); err != nil {
			return err
		}
	}
	return nil
}

// RankErr is Err of one rank. There is none once the communicators are closed.
func (c *Clique) RankErr(rank int) error {
	if !c.users.Enter() {
		return nil
	}
	defer c.users.Leave()
	if rank < 0 || rank >= len(c.ranks) {
		return refuse("ncclCommGetAsyncError", "rank %d of %d", rank, len(c.ranks))
	}
	state, err := c.state(c.ranks[rank])
	if err == nil && state != 0 && state != C.ncclInProgress {
		err = c.lib.failed("work of ncclAllReduce", state, c.ranks[rank].comm)
	}
	return err
}

// Close destroys the communicators, once their work is done. Closing again does nothing.
func (c *Clique) Close() error { return c.end(0) }

// Abort is Close for communicators whose work will not end.
func (c *Clique) Abort() error { return c.end(1) }

func (c *Clique) end(abort C.int) error {
	if !c.users.Close() {
		return nil
	}
	for start := time.Now(); !c.users.Empty() && time.Since(start) < grace; {
		time.Sleep(100 * time.Microsecond)
	}
	if !c.users.Empty() {
		abort = 1 // NCCL bears no other end than that in the middle of a call
	}
	var flushed error
	if abort == 0 && !c.plain {
		r := C.fl_nccl_finalize(c.lib.l, C.int(len(c.ranks)), &c.ranks[0])
		if flushed = c.settle(finalize, r, c.ranks, flushing); flushed != nil {
			abort = 1
		}
	}
	if abort != 0 {
		return errors.Join(flushed, c.abort())
	}
	r := C.fl_nccl_end(c.lib.l, C.int(len(c.ranks)), &c.ranks[0], 0)
	if r != 0 && r != C.ncclInProgress {
		return c.lib.failed("ncclCommDestroy", r, 0)
	}
	return nil
}

// abort aborts all communicators at once, each from a thread of its own: an abort tells the kernels first, and may then wait, for
// graphs that still refer to the communicator, while the kernels of another rank have yet to be told.
func (c *Clique) abort() error {
	errs := make([]error, len(c.ranks))
	var all sync.WaitGroup
	for i := range c.ranks {
		all.Go(func() {
			if r := C.fl_nccl_end(c.lib.l, 1, &c.ranks[i], 1); r != 0 && r != C.ncclInProgress {
				errs[i] = c.lib.failed("ncclCommAbort", r, 0)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Join makes the communicators of ranks that are all in this process. They do not block where NCCL has such (since 2.14), and so
// can be given up. An older NCCL that hangs keeps a thread for good.
func (l *Library) Join(members []Member, limit time.Duration) (Ranks, error) {
	const op = "ncclCommInitRankConfig"
	seen := map[int]bool{}
	for r, m := range members {
		if m.Device < 0 || seen[m.Device] {
			return nil, refuse(op, "device %d for rank %d: each rank of one process needs a device of its own", m.Device, r)
		}
		seen[m.Device] = true
	}
	if len(members) == 0 {
		return nil, refuse(op, "no rank is given")
	}
	type outcome struct {
		c   *Clique
		err error
	}
	end := time.Now().Add(limit)
	done, late := make(chan outcome), make(chan struct{})
	go func() {
		c, err := l.join(op, members, end)
		select {
		case done <- outcome{c, err}:
		case <-late: // nobody waits any more
			if c != nil {
				_ = c.Abort()
			}
		}
	}()
	timer := time.NewTimer(limit + grace) // its own deadline comes first, unless a call hangs
	defer timer.Stop()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, o.err
		}
		return o.c, nil
	case <-timer.C:
		close(late)
		return nil, &Error{Op: op, Kind: ErrTimeout, Text: limit.String(), Detail: "NCCL_DEBUG=INFO shows what it waits for"}
	}
}

func (l *Library) join(op string, members []Member, end time.Time) (*Clique, error) {
	c := newClique(l, len(members))
	c.plain = C.fl_nccl_nonblocking(l.l) == 0
	if err := l.findDriver(); err != nil {
		return nil, err
	}
	for r, m := range members {
		if e := C.fl_nccl_context(l.l, C.uintptr_t(m.Stream), &c.ranks[r].ctx); e != 0 {
			return nil, &Error{Op: "cuStreamGetCtx", Code: int(e), Kind: ErrFailed, Text: "CUDA error"}
		}
	}
	id, err := l.UniqueID()
	if err != nil {
		return nil, err
	}
	r := C.fl_nccl_join(l.l, C.int(len(c.ranks)), &c.ranks[0], (*C.char)(unsafe.Pointer(&id[0])))
	if err = c.settle(op, r, c.ranks, time.Until(end)); err != nil {
		var abort error
		if r == 0 || r == C.ncclInProgress { // otherwise NCCL has freed them itself
			abort = c.Abort()
		}
		return nil, errors.Join(err, abort)
	}
	return c, nil
}
