// Package inuse guards a handle of a library that several goroutines use: calls are inside while they use it, and whoever
// destroys it lets nobody in any more, and sees when the last has left.
package inuse

import (
	"math"
	"sync/atomic"
)

// Guard is open when it is zero. Nothing here blocks, so a call may be inside several.
type Guard struct {
	users atomic.Int64 // calls inside, plus ended once closed
}

const ended = math.MinInt64

// Enter says whether the handle may be used; if so the caller must leave.
func (g *Guard) Enter() bool {
	if g.users.Add(1) < 0 {
		g.users.Add(-1)
		return false
	}
	return true
}

// Leave ends what Enter began.
func (g *Guard) Leave() { g.users.Add(-1) }

// Close lets nobody in any more. It is true for one caller only.
func (g *Guard) Close() bool {
	for {
		n := g.users.Load()
		if n < 0 {
			return false
		}
		if g.users.CompareAndSwap(n, n+ended) {
			return true
		}
	}
}

// Closed is whether nobody is let in any more.
func (g *Guard) Closed() bool { return g.users.Load() < 0 }

// Empty is whether it is closed and the last call has left.
func (g *Guard) Empty() bool { return g.users.Load() == ended }
