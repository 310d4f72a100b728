package ptx

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// All 65536 f16 and bf16 values, against exact arithmetic.
func TestWidenEveryHalf(t *testing.T) {
	for _, tt := range []struct {
		dtype string
		f     refFormat
		code  func(uint32) uint32
	}{{"f16", refF16, halfToF32}, {"bf16", refBF16, func(h uint32) uint32 { return h << 16 }}} {
		scalar := conversion{to: tF32, from: map[string]typ{"f16": tF16, "bf16": tBF16}[tt.dtype]}.scalar()
		for h := range uint32(65536) {
			got := tt.code(h)
			require.EqualValues(t, got, scalar(uint64(h), 0, 0), "%s %#x", tt.dtype, h)
			switch {
			case tt.f.isNaN(h):
				require.True(t, got&0x7fffffff > 0x7f800000)
				if tt.dtype == "f16" {
					require.EqualValues(t, 0x7fffffff, got)
				}
			case tt.f.isInf(h):
				require.Equal(t, h>>15<<31|0x7f800000, got)
			default:
				x := tt.f.value(h)
				want, acc := x.Float32()
				require.Equal(t, big.Exact, acc)
				if want == 0 && h>>15 == 1 {
					want = float32(math.Copysign(0, -1))
				}
				require.Equal(t, math.Float32bits(want), got, "%s %#x", tt.dtype, h)
			}
		}
	}
}

// Rounding f32 to 16 bits: around every 16-bit value and its neighbour's midpoint, and at random.
func TestNarrowToHalf(t *testing.T) {
	for _, dtype := range []string{"f16", "bf16"} {
		want := refRound(dtype)
		code, to := halfRound, tF16
		if dtype == "bf16" {
			code, to = brainRound, tBF16
		}
		scalar := conversion{to: to, from: tF32}.scalar()
		check := func(u uint32) {
			w := want(math.Float32frombits(u))
			if got := code(u); got != w {
				require.Equalf(t, w, got, "%s of %#x", dtype, u)
			}
			if got := scalar(uint64(u), 0, 0); got != uint64(w) {
				require.EqualValuesf(t, w, got, "%s of %#x, general way", dtype, u)
			}
		}
		for h := range uint32(65536) {
			u := refBitsOf(dtype, h)
			half := uint32(1) << 12
			if dtype == "bf16" {
				half = 1 << 15
			}
			for _, d := range []uint32{0, 1, half - 1, half, half + 1, ^uint32(0)} {
				check(u + d)
			}
		}
		rng := rand.New(rand.NewPCG(3, 4))
		for range 200_000 {
			u := rng.Uint32()
			check(u)
			check(u&0x8fffffff | 0x30000000) // where f16 is subnormal or normal
		}
	}
}

func refBitsOf(dtype string, h uint32) uint32 { return math.Float32bits(refWiden(dtype)(h)) }

// Directed and nearest rounding of every format, against math/big.
func TestEncode(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	modes := []big.RoundingMode{big.ToNearestEven, big.ToZero, big.ToNegativeInf, big.ToPositiveInf}
	for _, tt := range []struct {
		ref refFormat
		f   *format
	}{{refF16, fmtF16}, {refBF16, fmtBF16}, {refF32, fmtF32}} {
		for range 30_000 {
			e := rng.IntN(2*tt.ref.emax+80) - tt.ref.emax - 60
			x := math.Ldexp(float64(rng.Uint64()>>rng.IntN(60)), e-40)
			if rng.IntN(2) == 0 {
				x = -x
			}
			for mode, m := range modes {
				got := tt.f.narrow(x, rounding(mode))
				want := tt.ref.round(new(big.Float).SetFloat64(x), m)
				if uint64(want) != got {
					require.Equalf(t, uint64(want), got, "%g to %v, mode %d", x, tt.ref, mode)
				}
			}
		}
	}
}

// randomF32 favours the interesting: few mantissa bits, extremes, subnormals.
func randomF32(rng *rand.Rand) uint32 {
	u := rng.Uint32()
	switch rng.IntN(6) {
	case 0:
		u &= 0xfff00000
	case 1:
		u &= 0x80ffffff // tiny and subnormal
	case 2:
		u = u&0x807fffff | 0x3f000000 + uint32(rng.IntN(4))<<23
	case 3:
		u |= 0x7ffff
	}
	return u
}

// Arithmetic on f32, f16 and bf16 in all modes, against exact sums and products of math/big.
func TestArithmeticExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	modes := []big.RoundingMode{big.ToNearestEven, big.ToZero, big.ToNegativeInf, big.ToPositiveInf}
	for _, tt := range []struct {
		typ typ
		ref refFormat
	}{{tF32, refF32}, {tF16, refF16}, {tBF16, refBF16}} {
		random := func() uint64 {
			for {
				v := randomF32(rng)
				if tt.typ != tF32 {
					v = v >> 16 &^ uint32(rng.IntN(4)*0x11)
				}
				if !tt.ref.isNaN(v) && !tt.ref.isInf(v) {
					return uint64(v)
				}
			}
		}
		for mode, m := range modes {
			o := newFloatOp(tt.typ)
			o.mode = rounding(mode)
			fma, add, mul, sub := o.fma(), o.add(), o.mul(), o.sub()
			big3 := func(a, b, c uint64) *big.Float {
				p := new(big.Float).SetPrec(1200).Mul(tt.ref.value(uint32(a)), tt.ref.value(uint32(b)))
				return p.Add(p.SetPrec(1200), tt.ref.value(uint32(c)))
			}
			equal := func(what string, x *big.Float, got, a, b, c uint64) {
				if x.Sign() == 0 {
					require.Zero(t, got&^o.f.sign, "%s", what) // signs of zero are in the tables
					return
				}
				if want := uint64(tt.ref.round(x, m)); want != got {
					require.Equalf(t, want, got, "%s%v mode %d of %#x %#x %#x: %#x", what, tt.typ, mode, a, b, c, got)
				}
			}
			for range 8_000 {
				a, b, c := random(), random(), random()
				if rng.IntN(3) == 0 { // near cancellation
					c = mul(a, b, 0) ^ o.f.sign
					if c&^o.f.sign >= o.f.inf {
						c = random()
					}
				}
				one := o.f.one()
				equal("fma", big3(a, b, c), fma(a, b, c), a, b, c)
				equal("add", big3(a, one, c), add(a, c, 0), a, c, 0)
				equal("sub", big3(a, one, c^o.f.sign), sub(a, c, 0), a, c, 0)
				equal("mul", big3(a, b, 0), mul(a, b, 0), a, b, 0)
				if tt.typ == tF32 && mode == 0 {
					require.Equal(t, fma(a, b, c), uint64(fma32(uint32(a), uint32(b), uint32(c))), "%#x %#x %#x", a, b, c)
				}
			}
		}
	}
}

// Division and square root of f32 in all modes: the result r is right when no other f32 is a better answer,
// judged by the exact residue.
func TestDivideAndRoot(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	modes := []big.RoundingMode{big.ToNearestEven, big.ToZero, big.ToNegativeInf, big.ToPositiveInf}
	for mode, m := range modes {
		o := newFloatOp(tF32)
		o.mode = rounding(mode)
		div, sqrt, rcp := o.div(), o.sqrt(), o.rcp()
		for range 20_000 {
			a, b := randomF32(rng), randomF32(rng)
			if refF32.isNaN(a) || refF32.isInf(a) || refF32.isNaN(b) || refF32.isInf(b) || a<<1 == 0 || b<<1 == 0 {
				continue
			}
			x, y := refF32.value(a), refF32.value(b)
			// 400 bits and a sticky last one: never exactly at a tie unless the quotient is.
			q := new(big.Float).SetPrec(400).Quo(x, y)
			require.Equal(t, uint64(refF32.round(q, m)), div(uint64(a), uint64(b), 0), "%#x / %#x mode %d", a, b, mode)
			require.Equal(t, uint64(refF32.round(new(big.Float).SetPrec(400).Quo(big.NewFloat(1), y), m)), rcp(uint64(b), 0, 0), "1 / %#x mode %d", b, mode)
			a &= 0x7fffffff
			s := new(big.Float).SetPrec(400).Sqrt(refF32.value(a))
			require.Equal(t, uint64(refF32.round(s, m)), sqrt(uint64(a), 0, 0), "sqrt %#x mode %d", a, mode)
		}
	}
}

// Integers to floats and back, against math/big.
func TestIntegerConversions(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	modes := []big.RoundingMode{big.ToNearestEven, big.ToZero, big.ToNegativeInf, big.ToPositiveInf}
	refs := map[typ]refFormat{tF16: refF16, tBF16: refBF16, tF32: refF32}
	for _, from := range []typ{tU8, tS8, tU16, tS16, tU32, tS32, tU64, tS64} {
		for to, ref := range refs {
			for mode, m := range modes {
				fn := conversion{to: to, from: from, mode: rounding(mode)}.scalar()
				for range 500 {
					v := rng.Uint64() >> rng.IntN(64)
					if rng.IntN(2) == 0 {
						v = -v
					}
					x := new(big.Float).SetPrec(64).SetUint64(v & from.mask())
					if from.signed() {
						x.SetInt64(sext(v, from))
					}
					require.EqualValues(t, ref.round(x, m), fn(v, 0, 0), "%v of %v %s mode %d", to, from, x, mode)
				}
			}
		}
		for src, ref := range refs {
			for mode, m := range map[rounding]string{roundNearest: "even", roundZero: "zero", roundDown: "floor", roundUp: "ceil"} {
				fn := conversion{to: from, from: src, mode: mode, integral: true}.scalar()
				for range 500 {
					v := randomF32(rng)
					if src != tF32 {
						v >>= 16
					}
					if ref.isNaN(v) || ref.isInf(v) {
						continue
					}
					want := refInteger(ref.value(v), m)
					lo, hi := big.NewInt(intMin(from)), new(big.Int).SetUint64(intMax(from))
					if want.Cmp(lo) < 0 {
						want = lo
					}
					if want.Cmp(hi) > 0 {
						want = hi
					}
					bitsWant := new(big.Int).And(want, new(big.Int).SetUint64(from.mask())).Uint64()
					require.Equal(t, bitsWant, fn(uint64(v), 0, 0), "%v of %v %#x %s", from, src, v, m)
				}
			}
		}
	}
}

func refInteger(x *big.Float, mode string) *big.Int {
	n, acc := x.Int(nil) // towards zero
	if acc == big.Exact {
		return n
	}
	neg := x.Sign() < 0
	away := new(big.Int).Add(n, big.NewInt(1))
	if neg {
		away = new(big.Int).Sub(n, big.NewInt(1))
	}
	switch mode {
	case "floor":
		if neg {
			return away
		}
	case "ceil":
		if !neg {
			return away
		}
	case "even":
		rest := new(big.Float).Sub(x, new(big.Float).SetInt(n))
		switch c := rest.Abs(rest).Cmp(big.NewFloat(0.5)); {
		case c > 0, c == 0 && n.Bit(0) == 1:
			return away
		}
	}
	return n
}

// Whole-warp code and the scalar function that defines an instruction agree, on random bits and on special values.
func TestVectorsMatchScalars(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	special := []uint64{0, 1, all32, all64, neg32, 1 << 63, inf32, ninf32, nan32, 0xffc00001, 0x7f7fffff, 0x00800000, 0x007fffff, 0x3c00, 0x7c00, 0x7e01, 0xfc00, 31, 32, 63, 64, 0x477ff000, 0x38800000, 0x33000000}
	tested := map[opcode]bool{}
	for _, table := range [][]instTest{instTests, floatTests} {
		for _, tt := range table {
			k := parse(t, instKernel(tt.text, ""))
			for i := range k.ops {
				o := k.ops[i]
				if k.stmts[o.stmt].text != tt.text+";" || o.fn == nil || o.code == opScalar || o.code == opCompare || o.code >= opFirstMem {
					continue
				}
				tested[o.code] = true
				w := &warp{b: &Block{k: k}, r32: make([][32]uint32, 8), r64: make([][32]uint64, 8), pr: make([]uint32, 8)}
				// Lay the operands out in registers of our own; d shares none. An immediate selector stays a constant.
				constSel := o.code == opPermute && o.c >= k.n[k32]
				var sel uint32
				if constSel {
					sel = uint32(k.consts[k32][o.c-k.n[k32]].val)
				}
				o.a, o.b, o.c, o.d, o.d2 = 1, 2, 3, 4, 5
				w.b.k = &Kernel{n: [4]int32{k32: 8}}
				if constSel {
					w.b.k = &Kernel{n: [4]int32{k32: 3}}
				}
				for range 200 {
					for lane := range 32 {
						for r := 1; r <= 3; r++ {
							v := rng.Uint64()
							if rng.IntN(3) == 0 {
								v = special[rng.IntN(len(special))]
							}
							if strings.Contains(tt.text, string(rune('a'+r-1))+"16") {
								v &= 0xffff // what a 16-bit register holds
							}
							w.r32[r][lane], w.r64[r][lane] = uint32(v), v
						}
						if constSel {
							w.r32[3][lane] = sel
						}
					}
					w.pr[3] = rng.Uint32()
					w.alu(&o, fullMask)
					for lane := range 32 {
						in := func(kd kind, r int) uint64 {
							switch kd {
							case k32:
								return uint64(w.r32[r][lane])
							case k64:
								return w.r64[r][lane]
							case kPred:
								return uint64(w.pr[r] >> lane & 1)
							}
							return 0
						}
						a, b, c := in(o.ka, 1), in(o.kb, 2), in(o.kc, 3)
						if o.comb != combNone {
							continue
						}
						var want uint64
						got := in(o.kd, 4)
						switch {
						case o.kd == kPred && o.ka != kPred:
							x, y := a, b
							if swapped(tt.text) {
								x, y = b, a
							}
							want = o.fn(x, y, c)
						case o.kd == kPred:
							want = o.fn(a, b, c) & 1
						default:
							want = o.fn(a, b, c)
						}
						require.Equalf(t, want, got, "%s (code %d) of %#x %#x %#x", tt.text, o.code, a, b, c)
					}
				}
			}
		}
	}
	require.Greater(t, len(tested), 40, fmt.Sprint(tested))
}

// swapped comparisons run with their operands exchanged.
func swapped(text string) bool {
	for _, c := range []string{".gt", ".ge", ".hi", ".hs"} {
		if len(text) > 7 && text[4:7] == c {
			return true
		}
	}
	return false
}
