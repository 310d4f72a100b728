//go:build linux && cgo

package cuda

import (
	"slices"
	"sort"

	"github.com/fenceline/fenceline/internal/gpu"
)

// span is one allocation made through the driver.
type span struct {
	base  gpu.Ptr
	size  uint64
	maker int    // device whose context allocated it
	host  []byte // host memory as the host sees it; nil for device memory
}

// device is the owner as the seam counts: -1 for host memory.
func (s span) device() int {
	if s.host != nil {
		return -1
	}
	return s.maker
}

// spans is a sorted set of allocations that do not overlap.
type spans struct {
	list  []span
	hosts int
}

func (s *spans) init() { *s = spans{} }

func (s *spans) counts() (dev, host int) { return len(s.list) - s.hosts, s.hosts }

// index is where an allocation with this base is, or would go.
func (s *spans) index(p gpu.Ptr) int {
	return sort.Search(len(s.list), func(i int) bool { return s.list[i].base >= p })
}

func (s *spans) add(sp span) {
	s.list = slices.Insert(s.list, s.index(sp.base), sp)
	if sp.host != nil {
		s.hosts++
	}
}

// base finds the allocation that starts at p.
func (s *spans) base(p gpu.Ptr) (span, bool) {
	if i := s.index(p); i < len(s.list) && s.list[i].base == p {
		return s.list[i], true
	}
	return span{}, false
}

// holding finds the allocation that p points into.
func (s *spans) holding(p gpu.Ptr) (span, bool) {
	i := s.index(p + 1)
	if i == 0 {
		return span{}, false
	}
	sp := s.list[i-1]
	return sp, uint64(p-sp.base) < sp.size
}

// take removes the allocation that starts at p.
func (s *spans) take(p gpu.Ptr) {
	if i := s.index(p); i < len(s.list) && s.list[i].base == p {
		if s.list[i].host != nil {
			s.hosts--
		}
		s.list = slices.Delete(s.list, i, i+1)
	}
}
