package ptx

import (
	"math"
	"math/big"
)

// The references here use math/big and plain arithmetic, and share nothing with the package's own rounding.

// refFormat describes a format for refRoundBig.
type refFormat struct {
	prec       uint // bits of mantissa, the hidden one included
	emin, emax int
}

var (
	refF16  = refFormat{11, -14, 15}
	refBF16 = refFormat{8, -126, 127}
	refF32  = refFormat{24, -126, 127}
)

func (f refFormat) width() uint {
	switch f.prec {
	case 11, 8:
		return 16
	}
	return 32
}

func (f refFormat) nan() uint32 { return 1<<(f.width()-1) - 1 }

func (f refFormat) inf(neg bool) uint32 {
	v := uint32(2*f.emax+1) << (f.prec - 1)
	if neg {
		v |= 1 << (f.width() - 1)
	}
	return v
}

// value is the exact value of bits that are neither NaN nor infinite.
func (f refFormat) value(b uint32) *big.Float {
	neg := b>>(f.width()-1) == 1
	m := int64(b & (1<<(f.prec-1) - 1))
	e := int(b>>(f.prec-1)) & (2*f.emax + 1)
	if e == 0 {
		e = 1
	} else {
		m |= 1 << (f.prec - 1)
	}
	x := new(big.Float).SetPrec(300).SetInt64(m)
	x.SetMantExp(x, e-f.emax-int(f.prec)+1)
	if neg {
		x.Neg(x)
	}
	return x
}

func (f refFormat) isNaN(b uint32) bool { return b&(1<<(f.width()-1)-1) > f.inf(false) }
func (f refFormat) isInf(b uint32) bool { return b&(1<<(f.width()-1)-1) == f.inf(false) }

// round rounds x, exactly known, by counting units in the last place.
func (f refFormat) round(x *big.Float, mode big.RoundingMode) uint32 {
	neg := x.Signbit()
	sign := uint32(0)
	if neg {
		sign = 1 << (f.width() - 1)
	}
	if x.Sign() == 0 {
		return sign
	}
	exp := x.MantExp(nil) - 1 // |x| in [2^exp, 2^(exp+1))
	exp = max(exp, f.emin)
	ulp := exp - int(f.prec) + 1
	units := new(big.Float).SetPrec(600).SetMode(big.ToZero)
	units.SetMantExp(new(big.Float).SetPrec(600).Abs(x), -ulp)
	n, _ := units.Int64()
	rest := new(big.Float).SetPrec(600).Sub(units, new(big.Float).SetInt64(n))
	half := rest.Cmp(big.NewFloat(0.5))
	switch mode {
	case big.ToNearestEven:
		if half > 0 || half == 0 && n&1 == 1 {
			n++
		}
	case big.ToNegativeInf:
		if neg && rest.Sign() > 0 {
			n++
		}
	case big.ToPositiveInf:
		if !neg && rest.Sign() > 0 {
			n++
		}
	}
	if n == 1<<f.prec {
		n >>= 1
		exp++
	}
	if exp > f.emax {
		if mode == big.ToZero || mode == big.ToNegativeInf && !neg || mode == big.ToPositiveInf && neg {
			return sign | (f.inf(false) - 1)
		}
		return sign | f.inf(false)
	}
	if n < 1<<(f.prec-1) {
		return sign | uint32(n)
	}
	return sign | uint32(exp+f.emax)<<(f.prec-1) | uint32(n)&(1<<(f.prec-1)-1)
}

// refWiden and refRound convert as the kernels must.
func refWiden(dtype string) func(uint32) float32 {
	switch dtype {
	case "f32":
		return math.Float32frombits
	case "bf16":
		return func(b uint32) float32 { return math.Float32frombits(b << 16) }
	}
	return func(b uint32) float32 {
		switch {
		case refF16.isNaN(b):
			return float32(math.NaN())
		case refF16.isInf(b):
			return float32(math.Inf(1 - 2*int(b>>15)))
		}
		v, _ := refF16.value(b).Float32()
		return v
	}
}

func refRound(dtype string) func(float32) uint32 {
	f := map[string]refFormat{"f32": refF32, "f16": refF16, "bf16": refBF16}[dtype]
	return func(v float32) uint32 {
		switch {
		case v != v:
			return f.nan()
		case math.IsInf(float64(v), 0):
			return f.inf(v < 0)
		case dtype == "f32":
			return math.Float32bits(v)
		}
		x := new(big.Float).SetFloat64(float64(v))
		if v == 0 && math.Signbit(float64(v)) {
			x.Neg(new(big.Float))
		}
		return f.round(x, big.ToNearestEven)
	}
}

func refRoundFloat(f refFormat, x float64) uint32 {
	return f.round(new(big.Float).SetFloat64(x), big.ToNearestEven)
}
