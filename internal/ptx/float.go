package ptx

import (
	"math"
	"math/bits"
)

// rounding is a PTX rounding direction.
type rounding uint8

const (
	roundNearest rounding = iota // to nearest, ties to even
	roundZero
	roundDown
	roundUp
)

// format describes a binary floating-point format.
type format struct {
	mbits uint   // stored mantissa bits
	emin  int    // smallest normal exponent
	inf   uint64 // bits of +infinity
	nan   uint64 // the NaN that arithmetic returns
	sign  uint64
}

var (
	fmtF16  = &format{10, -14, 0x7c00, 0x7fff, 0x8000}
	fmtBF16 = &format{7, -126, 0x7f80, 0x7fff, 0x8000}
	fmtF32  = &format{23, -126, 0x7f800000, 0x7fffffff, 0x80000000}
	fmtF64  = &format{52, -1022, 0x7ff0000000000000, 0x7fffffffffffffff, 1 << 63}
)

func formatOf(t typ) *format {
	switch t {
	case tF16, tF16x2:
		return fmtF16
	case tBF16, tBF16x2:
		return fmtBF16
	case tF32:
		return fmtF32
	}
	return fmtF64
}

func (f *format) isNaN(b uint64) bool { return b&^f.sign > f.inf }

// subnormal is true of nonzero values below the smallest normal one.
func (f *format) subnormal(b uint64) bool {
	m := b &^ f.sign
	return m != 0 && m < 1<<f.mbits
}

// flush turns a subnormal into a zero of its sign.
func (f *format) flush(b uint64) uint64 {
	if b&^f.sign < 1<<f.mbits {
		return b & f.sign
	}
	return b
}

// one is the bits of 1.0.
func (f *format) one() uint64 { return uint64(1-f.emin) << f.mbits }

// encode rounds ±m·2^e to the format. The lowest bit of m may stand for everything below it, as
// long as m has two bits more than the format.
func (f *format) encode(neg bool, m uint64, e int, mode rounding) uint64 {
	var sign uint64
	if neg {
		sign = f.sign
	}
	if m == 0 {
		return sign
	}
	lz := bits.LeadingZeros64(m)
	m <<= lz
	exp := e - lz + 63
	shift := 63 - f.mbits
	if exp < f.emin {
		shift += uint(min(f.emin-exp, 64))
	}
	var q, rem, half uint64
	if shift < 64 {
		q, rem, half = m>>shift, m&(1<<shift-1), 1<<(shift-1)
	} else if shift == 64 {
		rem, half = m, 1<<63
	} else {
		rem, half = 1, 2 // not zero, less than half
	}
	switch mode {
	case roundNearest:
		if rem > half || rem == half && q&1 == 1 {
			q++
		}
	case roundDown:
		if neg && rem != 0 {
			q++
		}
	case roundUp:
		if !neg && rem != 0 {
			q++
		}
	}
	if exp > f.emin { // a carry out of the mantissa moves into the exponent by itself
		q += uint64(min(exp-f.emin, 4096)) << f.mbits
	}
	if q >= f.inf {
		q = f.inf
		if mode == roundZero || mode == roundDown && !neg || mode == roundUp && neg {
			q--
		}
	}
	return sign | q
}

// narrow rounds a float64 to the format. NaN becomes the format's NaN.
func (f *format) narrow(x float64, mode rounding) uint64 {
	b := math.Float64bits(x)
	e := int(b >> 52 & 0x7ff)
	m := b & (1<<52 - 1)
	var sign uint64
	if b>>63 == 1 {
		sign = f.sign
	}
	switch {
	case e == 0x7ff && m != 0:
		return f.nan
	case e == 0x7ff:
		return sign | f.inf
	case e == 0:
		e = 1
	default:
		m |= 1 << 52
	}
	return f.encode(sign != 0, m, e-1075, mode)
}

// wide is the exact value of a number of at most 32 bits. A NaN stays some NaN.
func (f *format) wide(b uint64) float64 {
	if f == fmtF32 {
		return float64(math.Float32frombits(uint32(b)))
	}
	if f == fmtF64 {
		return math.Float64frombits(b)
	}
	return float64(math.Float32frombits(f.widen32(uint32(b))))
}

// widen32 gives the float32 bits of an f16 or bf16. NaN payloads are kept.
func (f *format) widen32(h uint32) uint32 {
	if f == fmtBF16 {
		return h << 16
	}
	return halfBits(h)
}

// halfBits converts f16 to f32 bits, exactly.
func halfBits(h uint32) uint32 {
	sign, em := h&0x8000<<16, h&0x7fff
	switch {
	case em < 0x400: // zero and subnormal: em·2^-24
		return sign | math.Float32bits(float32(em)*0x1p-24)
	case em < 0x7c00:
		return sign | (em<<13 + 112<<23)
	case em == 0x7c00:
		return sign | 0x7f800000
	}
	return sign | 0x7f800000 | em&0x3ff<<13
}

// halfToF32 is cvt.f32.f16: halfBits with the GPU's one NaN. Scaling by 2^112 moves the exponent, and
// normalises subnormals, without a branch; only what was all ones needs another look.
func halfToF32(h uint32) uint32 {
	v := math.Float32bits(math.Float32frombits(h&0x7fff<<13) * 0x1p112)
	if h&0x7c00 == 0x7c00 {
		v = 0x7f800000
		if h&0x3ff != 0 {
			return 0x7fffffff
		}
	}
	return v | h&0x8000<<16
}

// halfRound rounds f32 bits to f16, to nearest even.
func halfRound(u uint32) uint32 {
	sign, m := u>>16&0x8000, u&0x7fffffff
	switch {
	case m > 0x7f800000:
		return 0x7fff
	case m >= 0x477ff000: // 65520, halfway from the largest f16 to the next power
		return sign | 0x7c00
	case m >= 0x38800000: // 2^-14: normal
		return sign | (m+0xfff+m>>13&1-112<<23)>>13
	}
	// Subnormal: adding 0.5 puts the unit of 2^-24 at the last bit, and the addition rounds.
	return sign | (math.Float32bits(math.Float32frombits(m)+0.5) - 0x3f000000)
}

// brainRound rounds f32 bits to bf16, to nearest even.
func brainRound(u uint32) uint32 {
	if u&0x7fffffff > 0x7f800000 {
		return 0x7fff
	}
	return (u + 0x7fff + u>>16&1) >> 16
}

// twoSum is a+b rounded, and the sign-exact error that rounding left.
func twoSum(a, b float64) (sum, err float64) {
	sum = a + b
	bb := sum - a
	return sum, float64(a-float64(sum-bb)) + float64(b-bb)
}

// odd folds the error of a rounded result into its last bit (rounding to odd), so that rounding once
// more to a narrower format gives what rounding the exact value would.
func odd(s, err float64) float64 {
	if err == 0 || s == 0 || math.IsInf(s, 0) || err != err || s != s {
		return s
	}
	b := math.Float64bits(s)
	if (err > 0) != (s > 0) {
		b-- // the exact magnitude is smaller: truncate
	}
	return math.Float64frombits(b | 1)
}

// fmaOdd is a·b+c rounded to odd, for a and b whose product a float64 holds exactly.
func fmaOdd(a, b, c float64) float64 {
	p := float64(a * b)
	if math.IsInf(p, 0) || math.IsInf(c, 0) || p != p || c != c {
		return p + c
	}
	return odd(twoSum(p, c))
}

// fma32 is the fused multiply-add of f32 bits with one rounding, to nearest.
func fma32(a, b, c uint32) uint32 {
	x, y, z := float64(math.Float32frombits(a)), float64(math.Float32frombits(b)), float64(math.Float32frombits(c))
	s := float64(x*y) + z
	// Rounding s again is wrong only where s sits on the middle between two f32 values, and those
	// middles are elsewhere for subnormals.
	if math.Float64bits(s)&0x1fffffff != 0x10000000 && math.Abs(s) > 0x1p-126 {
		return math.Float32bits(float32(s))
	}
	if s != s {
		return 0x7fffffff
	}
	return math.Float32bits(float32(fmaOdd(x, y, z)))
}

// divOdd is a/b rounded to odd, for a and b of at most 24 bits of mantissa.
func divOdd(a, b float64) float64 {
	q := a / b
	if q == 0 || math.IsInf(q, 0) || q != q || math.IsInf(b, 0) {
		return q
	}
	r := math.FMA(-q, b, a)
	if b < 0 {
		r = -r
	}
	return odd(q, r)
}

// sqrtOdd is the square root rounded to odd.
func sqrtOdd(a float64) float64 {
	q := math.Sqrt(a)
	if q == 0 || math.IsInf(q, 0) || q != q {
		return q
	}
	return odd(q, math.FMA(-q, q, a))
}

// saturate clamps to [0, 1]; NaN becomes +0.
func (f *format) saturate(b uint64) uint64 {
	switch {
	case f.isNaN(b) || b&f.sign != 0:
		return 0
	case b > f.one():
		return f.one()
	}
	return b
}
