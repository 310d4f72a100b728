package allreduce

import (
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/fenceline/fenceline/flags"
)

// call is what must be the same on every rank for a call to make sense.
type call struct {
	count        uint64
	dtype        DType
	algorithm    Algorithm
	head         uint32
	registration uint32 // 0: staged
	offset       uint64 // of the input in the registration
	taken        bool   // in, by a capture that the caller began on the rank's stream
}

func (c call) String() string {
	return fmt.Sprintf("count %d %v, %v, head %d, registration %d+%d",
		c.count, c.dtype, c.algorithm, c.head, c.registration, c.offset)
}

// difference names the first field in which two calls differ.
func (c call) difference(o call) string {
	switch {
	case c.taken != o.taken:
		return "whether a capture on the rank's stream takes them in"
	case c.count != o.count:
		return "count"
	case c.dtype != o.dtype:
		return "dtype"
	case c.algorithm != o.algorithm:
		return "algorithm"
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

// party is what calls are made in: the group at work, or a capture. It fails as a whole, and by itself.
type party interface {
	// join compares a rank's next call with the other ranks'.
	join(r *Rank, c call) error
	// meeting is where ranks wait for each other. It breaks up when the party fails or ends.
	meeting() *meeting
	// refusal is why no call can be made, nil when one can.
	refusal() error
	fail(cause error)
}

// join enters rank's call number seq. A wait ends early, with nil, when stop closes; the caller looks why.
func (a *agreement) join(rank int, seq uint64, c call, timeout time.Duration, stop <-chan struct{}) error {
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
			return &AbsentError{Rank: rank, Missing: ranksOf(missing), Where: fmt.Sprintf("%d calls ahead", ahead), Waited: timeout,
				Remedy: "make the ranks' calls in turn, or from a goroutine per rank"}
		}
		select {
		case <-stop:
			return nil
		case <-time.After(50 * time.Microsecond):
		}
	}
	defer a.mu.Unlock()
	if !e.used || e.seq != seq {
		e.used, e.seq, e.call, e.first, e.arrived = true, seq, c, rank, 1<<rank
		return nil
	}
	e.arrived |= 1 << rank
	return c.compare(seq, rank, e.call, e.first)
}

// compare is nil when rank's call seq is the same as that of another rank.
func (c call) compare(seq uint64, rank int, theirs call, other int) error {
	if c == theirs {
		return nil
	}
	return &MismatchError{Call: seq, Rank: rank, Other: other, Mine: c.String(), Theirs: theirs.String(), Difference: c.difference(theirs)}
}

// recording is the party of a capture: it compares the calls, which do not count among those made. Since nothing
// runs, its failure is no more than that of the capture.
type recording struct {
	table Table // what calls go by
	meet  *meeting
	stop  chan struct{} // closed when the calls fail or end
	over  chan struct{} // closed when the streams no longer capture

	mu    sync.Mutex
	calls []call
	first []int // who made each call first
	made  [flags.MaxRanks]int
	err   error // the first failure
	ended bool  // no more calls
}

func newRecording(world int, t Table) *recording {
	stop := make(chan struct{})
	return &recording{table: t, stop: stop, meet: newMeeting(world, stop), over: make(chan struct{})}
}

func (rec *recording) meeting() *meeting { return rec.meet }

func (rec *recording) join(r *Rank, c call) error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	k := rec.made[r.id]
	rec.made[r.id]++
	if k == len(rec.calls) {
		rec.calls, rec.first = append(rec.calls, c), append(rec.first, r.id)
		return nil
	}
	return c.compare(uint64(k), r.id, rec.calls[k], rec.first[k])
}

func (rec *recording) refusal() error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.err == nil && rec.ended {
		return bad("capture", "the capture has ended: make all its calls before queue returns")
	}
	return rec.err
}

func (rec *recording) fail(cause error) { rec.finish(cause) }

// end refuses further calls, and wakes those that wait for one.
func (rec *recording) end() { rec.finish(nil) }

func (rec *recording) finish(cause error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.err == nil {
		rec.err = cause
	}
	if !rec.ended {
		rec.ended = true
		close(rec.stop)
	}
}

// check says whether all ranks recorded the same calls.
func (rec *recording) check(world int) error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for r, n := range rec.made[:world] {
		if n != len(rec.calls) && rec.err == nil {
			rec.err = &ArgumentError{Rank: r, Arg: "capture", Detail: fmt.Sprintf(
				"%d calls recorded where another rank has %d: every rank must make the same calls", n, len(rec.calls))}
		}
	}
	return rec.err
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
	stop  <-chan struct{} // nobody waits once it is closed
	mu    sync.Mutex
	here  uint32
	all   chan struct{} // closed when everybody is here
}

func newMeeting(world int, stop <-chan struct{}) *meeting {
	return &meeting{world: world, stop: stop, all: make(chan struct{})}
}

// arrive returns once all ranks have arrived, or with an *AbsentError after timeout, or nil when stop closes.
func (m *meeting) arrive(rank int, where string, timeout time.Duration) error {
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
	case <-m.stop:
		return nil
	case <-timer.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all != all {
		return nil // they came just now
	}
	return &AbsentError{Rank: rank, Missing: ranksOf(^m.here & (1<<m.world - 1)), Where: where, Waited: timeout,
		Remedy: "with copy and host the ranks wait for each other inside the call, so that one goroutine cannot make their calls " +
			"one after another: use Group.AllReduce, or a goroutine per rank"}
}
