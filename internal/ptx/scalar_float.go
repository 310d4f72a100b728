package ptx

import "math"

// floatOp says how a floating-point instruction rounds and what it does to the ends of the range.
type floatOp struct {
	t     typ
	f     *format
	mode  rounding
	ftz   bool
	sat   bool
	relu  bool
	nan   bool // .NaN: min and max return NaN when either operand is one
	xorsa bool // .xorsign.abs
}

func newFloatOp(t typ) floatOp { return floatOp{t: t, f: formatOf(t)} }

// in reads an operand: flushed if .ftz, as an exact float64.
func (o floatOp) in(b uint64) float64 {
	if o.ftz {
		b = o.f.flush(b)
	}
	return o.f.wide(b)
}

// finish applies .ftz, .sat and .relu to a rounded result.
func (o floatOp) finish(b uint64) uint64 {
	if o.ftz {
		b = o.f.flush(b)
	}
	if o.sat {
		b = o.f.saturate(b)
	}
	if o.relu && !o.f.isNaN(b) && b&o.f.sign != 0 {
		b = 0
	}
	return b
}

// out rounds a result that is exact or rounded to odd.
func (o floatOp) out(x float64) uint64 {
	if o.f == fmtF64 {
		return o.finish(math.Float64bits(x))
	}
	return o.finish(o.f.narrow(x, o.mode))
}

// nan64 is what a double-precision operation returns when an operand is NaN: the first NaN, made quiet.
func nan64(vals ...uint64) (uint64, bool) {
	for _, v := range vals {
		if fmtF64.isNaN(v) {
			return v | 1<<51, true
		}
	}
	return 0, false
}

// made64 is the result of a double-precision operation whose operands are no NaN.
func made64(x float64) uint64 {
	if x != x {
		return 0xfff8000000000000
	}
	return math.Float64bits(x)
}

func (o floatOp) add() scalar {
	if o.f == fmtF64 {
		return func(a, b, _ uint64) uint64 {
			if n, ok := nan64(a, b); ok {
				return n
			}
			return made64(math.Float64frombits(a) + math.Float64frombits(b))
		}
	}
	return func(a, b, _ uint64) uint64 { return o.out(o.sumZero(o.in(a), o.in(b))) }
}

func (o floatOp) sub() scalar {
	add, sign := o.add(), o.f.sign
	if o.f == fmtF64 {
		return func(a, b, _ uint64) uint64 {
			if n, ok := nan64(a, b); ok {
				return n
			}
			return made64(math.Float64frombits(a) - math.Float64frombits(b))
		}
	}
	return func(a, b, _ uint64) uint64 { return add(a, b^sign, 0) }
}

// sumZero adds to odd. The sum of opposite values is +0, but -0 when rounding down.
func (o floatOp) sumZero(x, y float64) float64 { return o.zero(fmaOdd(x, 1, y), x, y) }

func (o floatOp) zero(s, x, y float64) float64 {
	if s == 0 && o.mode == roundDown && (math.Signbit(x) || math.Signbit(y)) {
		return math.Copysign(0, -1)
	}
	return s
}

func (o floatOp) mul() scalar {
	if o.f == fmtF64 {
		return func(a, b, _ uint64) uint64 {
			if n, ok := nan64(a, b); ok {
				return n
			}
			return made64(math.Float64frombits(a) * math.Float64frombits(b))
		}
	}
	return func(a, b, _ uint64) uint64 { return o.out(o.in(a) * o.in(b)) }
}

func (o floatOp) fma() scalar {
	if o.f == fmtF64 {
		return func(a, b, c uint64) uint64 {
			if n, ok := nan64(a, b, c); ok {
				return n
			}
			return made64(math.FMA(math.Float64frombits(a), math.Float64frombits(b), math.Float64frombits(c)))
		}
	}
	return func(a, b, c uint64) uint64 {
		x, y, z := o.in(a), o.in(b), o.in(c)
		return o.out(o.zero(fmaOdd(x, y, z), x*y, z))
	}
}

func (o floatOp) div() scalar {
	if o.f == fmtF64 {
		return func(a, b, _ uint64) uint64 {
			if n, ok := nan64(a, b); ok {
				return n
			}
			return made64(math.Float64frombits(a) / math.Float64frombits(b))
		}
	}
	return func(a, b, _ uint64) uint64 { return o.out(divOdd(o.in(a), o.in(b))) }
}

func (o floatOp) rcp() scalar {
	div, one := o.div(), o.f.one()
	return func(a, _, _ uint64) uint64 { return div(one, a, 0) }
}

func (o floatOp) sqrt() scalar {
	if o.f == fmtF64 {
		return func(a, _, _ uint64) uint64 {
			if n, ok := nan64(a); ok {
				return n
			}
			return made64(math.Sqrt(math.Float64frombits(a)))
		}
	}
	return func(a, _, _ uint64) uint64 { return o.out(sqrtOdd(o.in(a))) }
}

// unary wraps a function of one double for the approximate instructions, which may be off by some
// units on hardware and are as good as the double here.
func (o floatOp) unary(fn func(float64) float64) scalar {
	if o.f == fmtF64 {
		return func(a, _, _ uint64) uint64 {
			if n, ok := nan64(a); ok {
				return n
			}
			return made64(fn(math.Float64frombits(a)))
		}
	}
	return func(a, _, _ uint64) uint64 { return o.out(fn(o.in(a))) }
}

// coarse is the .approx.ftz.f64 form, which reads and gives the upper 32 bits of a double only.
func coarse(fn func(float64) float64) scalar {
	const upper = uint64(0xffffffff00000000)
	return func(a, _, _ uint64) uint64 {
		if fmtF64.isNaN(a) {
			return fmtF64.nan & upper
		}
		r := math.Float64bits(fn(math.Float64frombits(fmtF64.flush(a & upper))))
		if fmtF64.isNaN(r) {
			return fmtF64.nan & upper
		}
		if r&^fmtF64.sign < fmtF64.inf {
			r += 1 << 31
		}
		return fmtF64.flush(r & upper)
	}
}

// neg and abs change the sign bit only. A NaN becomes the type's NaN.
func (o floatOp) neg() scalar {
	return o.signOp(func(a uint64) uint64 { return a ^ o.f.sign })
}

func (o floatOp) abs() scalar {
	return o.signOp(func(a uint64) uint64 { return a &^ o.f.sign })
}

func (o floatOp) signOp(fn func(uint64) uint64) scalar {
	return func(a, _, _ uint64) uint64 {
		if o.f != fmtF64 && o.f.isNaN(a) {
			return o.f.nan
		}
		if o.ftz {
			a = o.f.flush(a)
		}
		return fn(a)
	}
}

// order maps bits to integers that compare as the numbers do, with -0 below +0.
func (f *format) order(b uint64) int64 {
	if b&f.sign != 0 {
		return -int64(b&^f.sign) - 1
	}
	return int64(b)
}

func (o floatOp) minMax(wantMax bool) scalar {
	f := o.f
	return func(a, b, _ uint64) uint64 {
		if o.ftz {
			a, b = f.flush(a), f.flush(b)
		}
		var sign uint64
		if o.xorsa {
			sign = (a ^ b) & f.sign
			a, b = a&^f.sign, b&^f.sign
		}
		an, bn := f.isNaN(a), f.isNaN(b)
		switch {
		case an && bn || o.nan && (an || bn):
			return f.nan
		case an:
			return b | sign
		case bn:
			return a | sign
		}
		if (f.order(a) < f.order(b)) == wantMax {
			return b | sign
		}
		return a | sign
	}
}

// compareFloat returns one comparison; the ones that end in u are true when either operand is NaN.
func compareFloat(cmp string, t typ, ftz bool) scalar {
	f := formatOf(t)
	var fn func(x, y float64) bool
	base, unordered := cmp, false
	if len(cmp) == 3 && cmp[2] == 'u' {
		base, unordered = cmp[:2], true
	}
	switch base {
	case "eq":
		fn = func(x, y float64) bool { return x == y }
	case "ne":
		fn = func(x, y float64) bool { return x < y || x > y }
	case "lt":
		fn = func(x, y float64) bool { return x < y }
	case "le":
		fn = func(x, y float64) bool { return x <= y }
	case "gt":
		fn = func(x, y float64) bool { return x > y }
	case "ge":
		fn = func(x, y float64) bool { return x >= y }
	case "num":
		fn = func(x, y float64) bool { return x == x && y == y }
	case "nan":
		fn = func(x, y float64) bool { return x != x || y != y }
	default:
		return nil
	}
	return func(a, b, _ uint64) uint64 {
		if ftz {
			a, b = f.flush(a), f.flush(b)
		}
		x, y := f.wide(a), f.wide(b)
		return b2i(fn(x, y) || unordered && (x != x || y != y))
	}
}

// pairwise applies a 16-bit operation to both halves of 32-bit operands.
func pairwise(fn scalar) scalar {
	return func(a, b, c uint64) uint64 {
		lo := fn(a&0xffff, b&0xffff, c&0xffff)
		hi := fn(a>>16&0xffff, b>>16&0xffff, c>>16&0xffff)
		return lo | hi<<16
	}
}

// testProperty is testp.
func testProperty(name string, t typ) scalar {
	f := formatOf(t)
	magnitude := func(a uint64) uint64 { return a &^ f.sign }
	switch name {
	case "finite":
		return func(a, _, _ uint64) uint64 { return b2i(magnitude(a) < f.inf) }
	case "infinite":
		return func(a, _, _ uint64) uint64 { return b2i(magnitude(a) == f.inf) }
	case "number":
		return func(a, _, _ uint64) uint64 { return b2i(!f.isNaN(a)) }
	case "notanumber":
		return func(a, _, _ uint64) uint64 { return b2i(f.isNaN(a)) }
	case "normal":
		return func(a, _, _ uint64) uint64 { return b2i(magnitude(a) < f.inf && magnitude(a) >= 1<<f.mbits) }
	case "subnormal":
		return func(a, _, _ uint64) uint64 { return b2i(f.subnormal(a)) }
	}
	return nil
}
