package inuse

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGuard(t *testing.T) {
	var g Guard
	require.True(t, g.Enter())
	require.True(t, g.Enter())
	require.False(t, g.Closed())
	g.Leave()
	require.True(t, g.Close())
	require.True(t, g.Closed())
	require.False(t, g.Empty(), "one is still inside")
	require.False(t, g.Enter())
	require.False(t, g.Close(), "once")
	g.Leave()
	require.True(t, g.Empty())
	require.False(t, g.Enter())
	require.True(t, g.Empty())

	var unused Guard
	require.False(t, unused.Empty(), "it is open")
	require.True(t, unused.Close())
	require.True(t, unused.Empty())
}

// Nobody is inside once it was seen empty, and it is closed once.
func TestGuardConcurrently(t *testing.T) {
	for range 100 {
		var g Guard
		var destroyed bool // unsynchronised but for the guard: the race detector looks on
		var closed atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for g.Enter() {
					if destroyed {
						t.Error("used after its end")
					}
					g.Leave()
				}
			})
			all.Go(func() {
				runtime.Gosched()
				if !g.Close() {
					return
				}
				for !g.Empty() {
					runtime.Gosched()
				}
				destroyed = true
				closed.Add(1)
			})
		}
		all.Wait()
		require.Equal(t, int64(1), closed.Load())
	}
}
