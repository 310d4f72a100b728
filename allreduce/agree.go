package allreduce

import (
	"fmt"
	"math/bits"
	"sync"
	"time"
)

// call is what must be the same on every rank for a call to make sense.
type call struct {
	count        uint64
	dtype        DType
	head         uint32
	registration uint32 // 0: staged
	offset       uint64 // of the input in the registration
	capture      bool
}

func (c call) String() string {
	return fmt.Sprintf("count %d %v, head %d, registration %d+%d, capturing %v",
		c.count, c.dtype, c.head, c.registration, c.offset, c.capture)
}

// difference names the first field in which two calls differ.
func (c call) difference(o call) string {
	switch {
	case c.count != o.count:
		return "count"
	case c.dtype != o.dtype:
		return "dtype"
	case c.capture != o.capture:
		return "graph capture"
	case c.registration != o.registration || c.offset != o.offset:
		return "registered input"
	default:
		return "alignment"
	}
}

// ahead is how many calls one rank may be ahead of another on the host.
const ahead = 256

// agreement compares the ranks' calls as they come in, without making anybody wait: the first rank to
// make call k states it, the others compare. A rank waits only when it is `ahead` calls in front of another.
type agreement struct {
	world int
	mu    sync.Mutex
	ring  [ahead]struct {
		seq     uint64
		call    call
		first   int
		arrived uint32 // ranks, one bit each; all set: free for reuse
		used    bool
	}
}

// join enters rank's call number seq. failed ends the wait early, when the group has failed.
func (a *agreement) join(rank int, seq uint64, c call, timeout time.Duration, failed <-chan struct{}) error {
	e := &a.ring[seq%ahead]
	var deadline time.Time
	for {
		a.mu.Lock()
		free := !e.used || e.seq == seq || e.arrived == 1<<a.world-1
		if free {
			break
		}
		missing := ^e.arrived & (1<<a.world - 1)
		a.mu.Unlock()
		if deadline.IsZero() {
			deadline = time.Now().Add(timeout)
		}
		if time.Now().After(deadline) {
			return &AbsentError{Rank: rank, Missing: ranksOf(missing), Where: fmt.Sprintf("%d calls behind", ahead)}
		}
		select {
		case <-failed:
			return nil // the caller reports the group's failure
		case <-time.After(50 * time.Microsecond):
		}
	}
	defer a.mu.Unlock()
	if !e.used || e.seq != seq {
		e.used, e.seq, e.call, e.first, e.arrived = true, seq, c, rank, 1<<rank
		return nil
	}
	e.arrived |= 1 << rank
	if e.call != c {
		return &MismatchError{Call: seq, Rank: rank, Other: e.first, Mine: c.String(), Theirs: e.call.String(), Difference: c.difference(e.call)}
	}
	return nil
}

func ranksOf(mask uint32) []int {
	var list []int
	for ; mask != 0; mask &= mask - 1 {
		list = append(list, bits.TrailingZeros32(mask))
	}
	return list
}

// meeting lets all ranks wait for each other on the host, again and again.
type meeting struct {
	world int
	mu    sync.Mutex
	here  uint32
	all   chan struct{} // closed when everybody is here
}

func newMeeting(world int) *meeting { return &meeting{world: world, all: make(chan struct{})} }

// arrive returns once all ranks have arrived, or with an *AbsentError after timeout, or nil when failed closes.
func (m *meeting) arrive(rank int, where string, timeout time.Duration, failed <-chan struct{}) error {
	m.mu.Lock()
	m.here |= 1 << rank
	all := m.all
	if m.here == 1<<m.world-1 {
		m.here, m.all = 0, make(chan struct{})
		close(all)
		m.mu.Unlock()
		return nil
	}
	m.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-all:
		return nil
	case <-failed:
		return nil
	case <-timer.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all != all {
		return nil // they came just now
	}
	return &AbsentError{Rank: rank, Missing: ranksOf(^m.here & (1<<m.world - 1)), Where: where}
}
