package emu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpace allocates and frees at random in a window that wraps around again and again.
func TestSpace(t *testing.T) {
	s := newSpace(0, 1<<30)
	r := rand.New(rand.NewPCG(1, 2))
	var live []*area
	wraps, last := 0, uint64(0)
	for step := range 20000 {
		if step%500 == 0 { // jump close to the end, as if the addresses up to there had been used
			s.next = max(s.next, s.start+windowSize-1<<20)
		}
		if len(live) > 40 || len(live) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(live))
			s.free(live[i])
			live = append(live[:i], live[i+1:]...)
			continue
		}
		a := s.alloc(1+r.Uint64N(5000), "allocation", true)
		require.NotNil(t, a)
		if a.base < last {
			wraps++
		}
		last = a.base
		live = append(live, a)
		require.Zero(t, a.base%allocAlign)
		owner, ok := ownerOf(a.base-guard, 1)
		require.True(t, ok && owner == 0, "%#x", a.base)
		owner, ok = ownerOf(a.end()+guard-1, 1)
		require.True(t, ok && owner == 0, "%#x", a.end())
		require.True(t, s.at(a.base) == a && s.at(a.end()-1) == a, "%#x is not found", a.base)
		require.True(t, s.at(a.end()) == nil && s.at(a.base-1) == nil, "%#x has no guard", a.base)
		used := uint64(0)
		for _, l := range live {
			used += l.size
			if l != a && a.base < l.end()+guard && l.base < a.end()+guard {
				t.Fatalf("%#x overlaps %#x", a.base, l.base)
			}
		}
		require.Equal(t, used, s.used)
		require.LessOrEqual(t, s.freed, keepFreed)
	}
	require.Greater(t, wraps, 3)
	for i := 1; i < len(s.areas); i++ {
		require.GreaterOrEqual(t, s.areas[i].base, s.areas[i-1].end()+guard)
	}
}

func TestOutOfMemory(t *testing.T) {
	s := newSpace(0, 1000)
	a := s.alloc(600, "allocation", true)
	require.NotNil(t, a)
	require.Nil(t, s.alloc(401, "allocation", true))
	require.Nil(t, s.alloc(^uint64(0), "allocation", true))
	require.NotNil(t, s.alloc(400, "allocation", true))
	s.free(a)
	require.NotNil(t, s.alloc(600, "allocation", true))
}

// TestJunk: fresh memory must not look zeroed.
func TestJunk(t *testing.T) {
	a := newSpace(0, 1<<20).alloc(1001, "allocation", true)
	for _, b := range a.data {
		require.EqualValues(t, junk, b)
	}
}
