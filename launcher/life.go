package launcher

import (
	"math"
	"sync/atomic"
	"time"
)

// life guards a driver handle: calls hold it while they use the handle, and closing waits for
// them, so the driver never sees a handle that another goroutine has just destroyed. Entering
// never blocks, so a call may hold several handles in any order.
type life struct {
	users atomic.Int64 // calls inside, plus ended once closed
}

const ended = math.MinInt64

// enter says whether the handle may be used; if so the caller must leave.
func (l *life) enter() bool {
	if l.users.Add(1) < 0 {
		l.users.Add(-1)
		return false
	}
	return true
}

func (l *life) leave() { l.users.Add(-1) }

// end runs destroy once, when no call uses the handle any more. Waits come up for air every
// waitSlice; CopyIn, CopyOut and module calls last as long as the driver takes. Nothing is destroyed when the runtime is closed, which has released everything
// already. A handle counts as closed even when destroying it failed: on a device in error
// nothing better can be done with it.
func (l *life) end(rt *Runtime, destroy func() error) error {
	for {
		n := l.users.Load()
		if n < 0 {
			return nil
		}
		if l.users.CompareAndSwap(n, n+ended) {
			break
		}
	}
	for l.users.Load() != ended {
		time.Sleep(20 * time.Microsecond)
	}
	if rt.closed.Load() {
		return nil
	}
	return destroy()
}
