package ptx

import "math/bits"

// special reads a special register into the lanes of mask.
func (w *warp) special(o *op, mask uint32) {
	if v, ok := w.uniform(o.sub); ok {
		switch {
		case o.kd == k64:
			w.fill64(o.d, mask, v)
		case o.size == 2:
			w.fill32(o.d, mask, uint32(v)&0xffff)
		default:
			w.fill32(o.d, mask, uint32(v))
		}
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		lane := uint32(bits.TrailingZeros32(m)) & 31
		v := w.varying(o.sub, lane)
		if o.kd == k64 {
			w.r64[o.d][lane] = uint64(v)
		} else {
			w.r32[o.d][lane] = v
		}
	}
}

// varying is a register that differs from lane to lane.
func (w *warp) varying(sub uint8, lane uint32) uint32 {
	return w.b.launch.varying(sub, uint32(w.id)*32+lane)
}

// varying is a register of the thread with linear number n that differs from lane to lane.
func (l *Launch) varying(sub uint8, n uint32) uint32 {
	shape, lane := &l.Block, n%32
	switch sub {
	case srTidX:
		if shape[1] == 1 && shape[2] == 1 {
			return n
		}
		return n % shape[0]
	case srTidY:
		return n / shape[0] % shape[1]
	case srTidZ:
		return n / shape[0] / shape[1]
	case srLaneid:
		return lane
	case srMaskEq:
		return 1 << lane
	case srMaskLe:
		return 2<<lane - 1
	case srMaskLt:
		return 1<<lane - 1
	case srMaskGe:
		return fullMask << lane
	}
	return fullMask << lane << 1 // srMaskGt
}

// uniform is a register that is the same for the whole warp.
func (w *warp) uniform(sub uint8) (uint64, bool) {
	b := w.b
	return b.launch.uniform(sub, site{id: b.id, sm: b.sm, warp: w.id, warps: len(b.warps), shared: len(b.shared), steps: b.steps})
}

// site is a warp's place, and how far it has come.
type site struct {
	id     [3]uint32
	sm     uint32
	warp   int
	warps  int
	shared int
	steps  uint64
}

// uniform is a register that is the same for the whole warp.
func (l *Launch) uniform(sub uint8, s site) (uint64, bool) {
	var v uint64
	switch sub {
	case srNtidX, srNtidY, srNtidZ:
		v = uint64(l.Block[sub-srNtidX])
	case srCtaidX, srCtaidY, srCtaidZ:
		v = uint64(s.id[sub-srCtaidX])
	case srNctaidX, srNctaidY, srNctaidZ:
		v = uint64(l.Grid[sub-srNctaidX])
	case srWarpid:
		v = uint64(s.warp)
	case srNwarpid:
		v = uint64(s.warps)
	case srSmid:
		v = uint64(s.sm)
	case srNsmid:
		v = uint64(max(l.SMs, s.sm+1))
	case srClock:
		v = s.steps & 0xffffffff
	case srClockHi:
		v = s.steps >> 32
	case srClock64:
		v = s.steps
	case srGlobaltimer:
		v = l.now()
	case srGlobaltimerLo:
		v = l.now() & 0xffffffff
	case srGlobaltimerHi:
		v = l.now() >> 32
	case srDynamicShared:
		v = uint64(l.Shared)
	case srTotalShared:
		v = uint64(s.shared)
	case srGridid, srZero:
	case srOne:
		v = 1
	default:
		return 0, false
	}
	return v, true
}
