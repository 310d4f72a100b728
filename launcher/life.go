package launcher

import (
	"time"

	"github.com/fenceline/fenceline/internal/inuse"
)

// life guards a driver handle: calls hold it while they use the handle, and closing waits for
// them, so the driver never sees a handle that another goroutine has just destroyed. Entering
// never blocks, so a call may hold several handles in any order.
type life struct{ inuse.Guard }

// end runs destroy once, when no call uses the handle any more. Waits come up for air every
// waitSlice; CopyIn, CopyOut and module calls last as long as the driver takes. Nothing is destroyed when the runtime is closed, which has released everything
// already. A handle counts as closed even when destroying it failed: on a device in error
// nothing better can be done with it.
func (l *life) end(rt *Runtime, destroy func() error) error {
	if !l.Close() {
		return nil
	}
	for !l.Empty() {
		time.Sleep(20 * time.Microsecond)
	}
	if rt.closed.Load() {
		return nil
	}
	return destroy()
}
