package check

import "github.com/fenceline/fenceline/internal/ptx"

// clocks is a vector clock: of each thread, how many of its events come before.
type clocks []uint32

// has is whether event n of thread id comes before. The host's initial values, thread -1, come before everything.
func (c clocks) has(id int32, n uint32) bool { return id < 0 || c[id] >= n }

// all is whether c has all that o has.
func (c clocks) all(o clocks) bool {
	for i, n := range o {
		if n > c[i] {
			return false
		}
	}
	return true
}

func (c clocks) join(o clocks) {
	for i, n := range o {
		if n > c[i] {
			c[i] = n
		}
	}
}

// after is whether all of o comes before.
func (c clocks) after(o clocks) bool {
	for i, n := range o {
		if c[i] < n {
			return false
		}
	}
	return true
}

// slab hands out vector clocks that live as long as one execution, or in a long one until nothing refers to them.
type slab struct {
	width int
	full  [][]uint32
	used  [][]uint32
	chunk []uint32 // the one at hand
	at    int
}

const (
	slabSize  = 1 << 16
	slabsKept = 512 // for the next execution: 128 MB
)

func (s *slab) reset() {
	s.full = append(s.full, s.used...)
	s.used, s.chunk, s.at = s.used[:0], nil, 0
}

// copy is a snapshot of c.
func (s *slab) copy(c clocks) clocks {
	if s.at+s.width > len(s.chunk) {
		if n := len(s.full); n > 0 {
			s.chunk, s.full = s.full[n-1], s.full[:n-1]
			s.used = append(s.used, s.chunk)
		} else {
			s.chunk = make([]uint32, max(slabSize, s.width))
			if len(s.used)*len(s.chunk) < slabsKept*slabSize {
				s.used = append(s.used, s.chunk)
			}
		}
		s.at = 0
	}
	out := s.chunk[s.at : s.at+s.width : s.at+s.width]
	s.at += s.width
	copy(out, c)
	return out
}

// event is who did something, and which of its thread's events it was.
type event struct {
	id   int32  // of the thread; -1: the initial value
	n    uint32 // from 1
	task int32
	inst *ptx.Inst // nil: the host
}

// actor is an event as the rules of scopes see it.
type actor struct {
	event
	strong bool
	scope  ptx.Scope
	device int32
	cta    int32
}

// reaches is whether a's scope includes the thread of b.
func (a *actor) reaches(b *actor) bool {
	switch a.scope {
	case ptx.ScopeSys:
		return true
	case ptx.ScopeGPU:
		return a.device == b.device
	}
	return a.cta == b.cta // a cluster is one block: no others are launched
}

// morallyStrong is whether the model lets a and b, which overlap completely, synchronise.
func morallyStrong(a, b *actor) bool {
	return a.id == b.id || a.strong && b.strong && a.reaches(b) && b.reaches(a)
}
