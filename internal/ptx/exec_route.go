package ptx

import "math/bits"

// unanswered stands for an access that never completes. It is no fault: the fragment that issued it waits.
var unanswered = &Fault{}

// misrouted does the accesses of mask to a segment with a bad route.
func (w *warp) misrouted(o *op, mask uint32, s *segEntry) *Fault {
	loads, stores := s.route.Loads, s.route.Stores
	if o.code != opStore && loads == Stalls || o.code != opLoad && stores == Stalls {
		return unanswered
	}
	switch {
	case o.code == opStore && stores == Vanishes:
	case o.code == opStore, o.code == opLoad && loads == Arrives:
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			w.move(o, 1<<i, s.data, s.base, w.ea[i], w.ea[i])
		}
	case o.code == opLoad:
		for m := mask; m != 0; m &= m - 1 {
			for k := range int(o.nv) {
				w.setElement(o, k, bits.TrailingZeros32(m), loads.pattern(o.size))
			}
		}
	default:
		w.misroutedAtomic(o, mask, s)
	}
	return nil
}

// misroutedAtomic does atom and red where load and store both end, one of them not as it should.
func (w *warp) misroutedAtomic(o *op, mask uint32, s *segEntry) {
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		data, base := s.data, s.base
		if s.route.Stores != Arrives {
			var lost [8]byte // what is stored goes no further than here
			storeBytes(lost[:], o.size, loadAtomic(data[w.ea[i]-base:], o.size))
			data, base = lost[:], w.ea[i]
		}
		w.atomic(o, 1<<i, data, base)
		if s.route.Loads == Arrives {
			continue
		}
		switch o.kd {
		case k32:
			w.r32[o.d][i] = uint32(s.route.Loads.pattern(o.size))
		case k64:
			w.r64[o.d][i] = s.route.Loads.pattern(o.size)
		}
	}
}

// pattern is what a load of size bytes gives instead of memory.
func (c Outcome) pattern(size uint8) uint64 {
	if c == Ones {
		return ^uint64(0) >> (64 - 8*size)
	}
	return 0
}
