package ptx

import "math"

// conversion is one cvt instruction.
type conversion struct {
	to, from typ
	mode     rounding
	integral bool // .rni and its like: to an integral value
	ftz      bool
	sat      bool
	relu     bool
}

func (c conversion) scalar() scalar {
	switch {
	case !c.to.float() && !c.from.float():
		return c.intToInt()
	case !c.to.float():
		return c.floatToInt()
	case !c.from.float():
		return c.intToFloat()
	}
	return c.floatToFloat()
}

// intToInt truncates or, with .sat, clamps. The source is the low bits of a register that may be wider.
func (c conversion) intToInt() scalar {
	to, from := c.to, c.from
	m := to.mask()
	return func(a, _, _ uint64) uint64 {
		a &= from.mask()
		neg := false
		if from.signed() {
			a = uint64(sext(a, from))
			neg = int64(a) < 0
		}
		if c.sat {
			switch {
			case neg && int64(a) < intMin(to):
				a = uint64(intMin(to))
			case !neg && a > intMax(to):
				a = intMax(to)
			}
		}
		return a & m
	}
}

// integer rounds to an integral value.
func (r rounding) integer(x float64) float64 {
	switch r {
	case roundZero:
		return math.Trunc(x)
	case roundDown:
		return math.Floor(x)
	case roundUp:
		return math.Ceil(x)
	}
	return math.RoundToEven(x)
}

// floatToInt clamps to the destination's range. NaN is 0, except from .f64 or to 64 bits, where it is the top bit
// alone, as the PTX reference has it.
func (c conversion) floatToInt() scalar {
	f := formatOf(c.from)
	to := c.to
	lo, hi := float64(intMin(to)), math.Ldexp(1, to.size()*8)
	if to.signed() {
		hi /= 2
	}
	var nan uint64
	if c.from == tF64 || to.size() == 8 {
		nan = 1 << (to.size()*8 - 1)
	}
	return func(a, _, _ uint64) uint64 {
		if f.isNaN(a) {
			return nan
		}
		if c.ftz {
			a = f.flush(a)
		}
		x := c.mode.integer(f.wide(a))
		switch {
		case x <= lo:
			return uint64(intMin(to)) & to.mask()
		case x >= hi:
			return intMax(to)
		case x < 0:
			return uint64(int64(x)) & to.mask()
		}
		return uint64(x)
	}
}

func (c conversion) intToFloat() scalar {
	f := formatOf(c.to)
	from := c.from
	return func(a, _, _ uint64) uint64 {
		a &= from.mask()
		neg := false
		if v := sext(a, from); from.signed() && v < 0 {
			neg, a = true, uint64(-v)
		}
		b := f.encode(neg, a, 0, c.mode)
		if c.sat {
			b = f.saturate(b)
		}
		return b
	}
}

// floatToFloat: NaN becomes the destination's NaN, except that .f64 and bf16-to-f32 keep the payload.
func (c conversion) floatToFloat() scalar {
	from, to := formatOf(c.from), formatOf(c.to)
	o := floatOp{t: c.to, f: to, mode: c.mode, sat: c.sat, relu: c.relu, ftz: c.ftz && c.to == tF32}
	flushIn := c.ftz && c.from == tF32
	return func(a, _, _ uint64) uint64 {
		a &= c.from.mask()
		if flushIn {
			a = from.flush(a)
		}
		if from.isNaN(a) {
			b := to.nan
			switch {
			case to == fmtF64 && from == fmtF64:
				b = a | 1<<51
			case to == fmtF64:
				b = math.Float64bits(from.wide(a)) | 1<<51
			case to == fmtF32 && from == fmtBF16:
				b = a << 16
			}
			return o.finish(b)
		}
		x := from.wide(a)
		if c.integral {
			x = c.mode.integer(x)
		}
		return o.out(x)
	}
}

// packFloats is cvt to .f16x2 or .bf16x2 from two f32: a goes to the upper half.
func (c conversion) packFloats() scalar {
	half := c
	half.to = tF16
	if c.to == tBF16x2 {
		half.to = tBF16
	}
	fn := half.floatToFloat()
	return func(a, b, _ uint64) uint64 { return fn(a, 0, 0)<<16 | fn(b, 0, 0) }
}
