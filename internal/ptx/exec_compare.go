package ptx

import (
	"math"
	"math/bits"
)

// compare is setp: the comparison, then its combination with a predicate.
func (w *warp) compare(o *op, mask uint32) {
	var r uint32
	switch o.code {
	case opCmp32:
		r = compareInts[uint32, int32](o.sub, &w.r32[o.a], &w.r32[o.b])
	case opCmp64:
		r = compareInts[uint64, int64](o.sub, &w.r64[o.a], &w.r64[o.b])
	case opCmpF32:
		r = compareF32(o.sub, &w.r32[o.a], &w.r32[o.b])
	default:
		w.operand(0, o.ka, o.a)
		w.operand(1, o.kb, o.b)
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			r |= uint32(o.fn(w.x[0][i], w.x[1][i], 0)) << i
		}
	}
	n := ^r
	if o.comb != combNone {
		c := w.pr[o.c]
		if o.bsel {
			c = ^c
		}
		switch o.comb {
		case combAnd:
			r, n = r&c, n&c
		case combOr:
			r, n = r|c, n|c
		case combXor:
			r, n = r^c, n^c
		}
	}
	if o.kd != kNone {
		w.setPred(o.d, mask, r)
	}
	if o.kd2 != kNone {
		w.setPred(o.d2, mask, n)
	}
}

func bit(c bool) uint32 {
	var r uint32
	if c {
		r = 1
	}
	return r
}

// compareInts compares whole warps of U; S is the signed type of the same width.
func compareInts[U uint32 | uint64, S int32 | int64](cmp uint8, a, b *[32]U) (r uint32) {
	switch cmp {
	case cmpEq:
		for i := range a {
			r |= bit(a[i] == b[i]) << i
		}
	case cmpNe:
		for i := range a {
			r |= bit(a[i] != b[i]) << i
		}
	case cmpLtU:
		for i := range a {
			r |= bit(a[i] < b[i]) << i
		}
	case cmpLeU:
		for i := range a {
			r |= bit(a[i] <= b[i]) << i
		}
	case cmpLtS:
		for i := range a {
			r |= bit(S(a[i]) < S(b[i])) << i
		}
	case cmpLeS:
		for i := range a {
			r |= bit(S(a[i]) <= S(b[i])) << i
		}
	}
	return r
}

func compareF32(cmp uint8, a, b *[32]uint32) (r uint32) {
	f := math.Float32frombits
	switch cmp {
	case cmpEqF:
		for i := range a {
			r |= bit(f(a[i]) == f(b[i])) << i
		}
	case cmpLtF:
		for i := range a {
			r |= bit(f(a[i]) < f(b[i])) << i
		}
	case cmpLeF:
		for i := range a {
			r |= bit(f(a[i]) <= f(b[i])) << i
		}
	case cmpNeuF:
		for i := range a {
			r |= bit(f(a[i]) != f(b[i])) << i
		}
	}
	return r
}
