package allreduce

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAgreement(t *testing.T) {
	a := &agreement{world: 3}
	never := make(chan struct{})
	c := call{count: 5, dtype: BF16}
	for seq := range uint64(3 * ahead) {
		c.count = seq
		for r := range 3 {
			require.NoError(t, a.join(r, seq, c, time.Second, never))
		}
	}
	// Two ranks run ahead as far as the ring goes, then wait for the third.
	base := uint64(3 * ahead)
	for seq := base; seq < base+ahead; seq++ {
		require.NoError(t, a.join(0, seq, c, time.Second, never))
		require.NoError(t, a.join(2, seq, c, time.Second, never))
	}
	err := a.join(0, base+ahead, c, 10*time.Millisecond, never)
	require.ErrorIs(t, err, ErrAbsent)
	require.EqualError(t, err, "rank 0, 256 calls ahead: rank(s) 1 did not come within 10ms: make the ranks' calls in turn, or from a goroutine per rank")
	done := make(chan error)
	go func() { done <- a.join(0, base+ahead, c, 10*time.Second, never) }()
	require.NoError(t, a.join(1, base, c, time.Second, never))
	require.NoError(t, <-done)

	failed := make(chan struct{})
	close(failed)
	require.NoError(t, a.join(2, base+ahead+1, c, time.Hour, failed), "a failed group does not wait")
}

func TestAgreementDifferences(t *testing.T) {
	base := call{count: 5, dtype: F32, registration: 1, offset: 16, head: 0}
	for want, change := range map[string]func(*call){
		"count":            func(c *call) { c.count++ },
		"dtype":            func(c *call) { c.dtype = F16 },
		"registered input": func(c *call) { c.offset = 32 },
		"algorithm":        func(c *call) { c.algorithm = TwoshotPush },
		"alignment":        func(c *call) { c.head = 3 },
	} {
		a := &agreement{world: 2}
		require.NoError(t, a.join(1, 0, base, time.Second, nil))
		other := base
		change(&other)
		err := a.join(0, 0, other, time.Second, nil)
		require.ErrorIs(t, err, ErrMismatch)
		var m *MismatchError
		require.ErrorAs(t, err, &m)
		require.Equal(t, want, m.Difference)
		require.Equal(t, 0, m.Rank)
		require.Equal(t, 1, m.Other)
	}
}

func TestMeeting(t *testing.T) {
	const world, rounds = 4, 200
	failed := make(chan struct{})
	m := newMeeting(world, failed)
	var mu sync.Mutex
	var count int
	var wg sync.WaitGroup
	for r := range world {
		wg.Go(func() {
			for i := range rounds {
				mu.Lock()
				count++
				mu.Unlock()
				if err := m.arrive(r, "here", 10*time.Second); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if count < world*(i+1) {
					t.Errorf("rank %d left round %d with %d arrivals", r, i, count)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Equal(t, world*rounds, count)

	err := m.arrive(2, "before the copies", 5*time.Millisecond)
	require.ErrorIs(t, err, ErrAbsent)
	require.EqualError(t, err, "rank 2, before the copies: rank(s) 0 1 3 did not come within 5ms: with copy and host the ranks wait for each "+
		"other inside the call, so that one goroutine cannot make their calls one after another: use Group.AllReduce, or a goroutine per rank")
	close(failed)
	require.NoError(t, m.arrive(1, "here", time.Hour))
}
