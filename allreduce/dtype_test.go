package allreduce

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// exact16 is the value of a 16-bit float from its fields alone.
func exact16(bits uint16, expBits, fracBits int) float64 {
	exp := int(bits>>fracBits) & (1<<expBits - 1)
	frac := float64(bits & (1<<fracBits - 1))
	bias := 1<<(expBits-1) - 1
	var v float64
	switch {
	case exp == 1<<expBits-1 && frac != 0:
		return math.NaN()
	case exp == 1<<expBits-1:
		v = math.Inf(1)
	case exp == 0:
		v = math.Ldexp(frac, 1-bias-fracBits)
	default:
		v = math.Ldexp(frac+math.Ldexp(1, fracBits), exp-bias-fracBits)
	}
	if bits>>15 != 0 {
		v = math.Copysign(v, -1)
	}
	return v
}

func format(dt DType) (exp, frac int) {
	if dt == F16 {
		return 5, 10
	}
	return 8, 7
}

func TestHalvesRoundTrip(t *testing.T) {
	var b [2]byte
	for _, dt := range []DType{F16, BF16} {
		for i := range 1 << 16 {
			binary.LittleEndian.PutUint16(b[:], uint16(i))
			v := dt.Load(b[:])
			e, f := format(dt)
			want := exact16(uint16(i), e, f)
			dt.Store(b[:], v)
			if math.IsNaN(want) {
				require.True(t, v != v, "%v %#x", dt, i)
				require.Equal(t, uint16(nan16), binary.LittleEndian.Uint16(b[:]))
				continue
			}
			require.Equal(t, math.Float64bits(want), math.Float64bits(float64(v)), "%v %#x", dt, i)
			require.Equal(t, uint16(i), binary.LittleEndian.Uint16(b[:]), "%v", dt)
		}
	}
}

// Rounding against big.Float, which rounds to any precision exactly, and against the neighbours' midpoint.
func TestHalvesRoundToNearestEven(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var b [2]byte
	for _, dt := range []DType{F16, BF16} {
		exp, frac := format(dt)
		inf := uint16(1<<exp-1) << frac
		check := func(v float32) {
			dt.Store(b[:], v)
			got := binary.LittleEndian.Uint16(b[:])
			require.Equal(t, nearest(v, exp, frac, inf), got, "%v of %g (%#x)", dt, v, math.Float32bits(v))
		}
		for range 400_000 {
			if v := math.Float32frombits(rng.Uint32()); v == v {
				check(v)
			}
		}
		for i := range int(inf) { // both sides of every midpoint
			mid := (exact16(uint16(i), exp, frac) + exact16(uint16(i+1), exp, frac)) / 2
			if i == int(inf)-1 {
				mid = exact16(inf-1, exp, frac) * (1 + math.Ldexp(1, -frac-2)/(1-math.Ldexp(1, -frac-1))) // half an ulp above the largest
			}
			v := float32(mid)
			for _, w := range []float32{v, math.Nextafter32(v, 0), math.Nextafter32(v, float32(math.Inf(1)))} {
				check(w)
				check(-w)
			}
		}
	}
}

// nearest finds the rounding by comparing exact distances.
func nearest(v float32, exp, frac int, inf uint16) uint16 {
	sign := uint16(0)
	if math.Signbit(float64(v)) {
		sign, v = 0x8000, -v
	}
	lo, hi := uint16(0), inf
	for lo < hi { // the largest at or below v
		mid := (lo + hi + 1) / 2
		if exact16(mid, exp, frac) <= float64(v) {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	if lo == inf {
		return sign | inf
	}
	below := exact16(lo, exp, frac)
	above := exact16(lo+1, exp, frac)
	if lo+1 == inf { // infinity stands where the next number would
		bias := 1<<(exp-1) - 1
		above = math.Ldexp(1, bias+1)
	}
	x := new(big.Float).SetFloat64(float64(v))
	down := new(big.Float).Sub(x, new(big.Float).SetFloat64(below))
	up := new(big.Float).Sub(new(big.Float).SetFloat64(above), x)
	switch c := down.Cmp(up); {
	case c < 0, c == 0 && lo&1 == 0:
		return sign | lo
	default:
		return sign | lo + 1
	}
}

func TestNames(t *testing.T) {
	for _, dt := range DTypes() {
		got, err := ParseDType(dt.String())
		require.NoError(t, err)
		require.Equal(t, dt, got)
	}
	_, err := ParseDType("f8")
	require.ErrorIs(t, err, ErrUnknownName)
	require.EqualError(t, err, `unknown dtype "f8": use one of f32, f16, bf16`)
	for _, a := range Algorithms() {
		got, err := ParseAlgorithm(a.String())
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
	_, err = ParseAlgorithm("ring")
	require.EqualError(t, err, `unknown algorithm "ring": use one of auto, oneshot-pull, oneshot-push, twoshot-pull, twoshot-push, oneshot-wide, twoshot-wide, copy, host, nccl`)
	require.Equal(t, "invalid", DType(9).String())
	require.Equal(t, "invalid", numAlgorithms.String())
}

func f32s(v ...float32) []byte {
	b := make([]byte, 4*len(v))
	for i, x := range v {
		F32.Store(b[4*i:], x)
	}
	return b
}

func TestReference(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	negzero := float32(math.Copysign(0, -1))
	tiny := math.Float32frombits(1)
	out := make([]byte, 4*7)
	require.NoError(t, Reference(F32, out,
		f32s(1, inf, inf, nan, negzero, tiny, 1<<24),
		f32s(2, 1, -inf, 1, negzero, tiny, 1),
		f32s(3, 2, 0, 2, negzero, tiny, 1)))
	want := f32s(6, inf, 0, 0, negzero, 3*tiny, 1<<24) // rank order: (2^24+1)+1 is 2^24
	for _, i := range []int{2, 3} {
		binary.LittleEndian.PutUint32(want[4*i:], nan32)
	}
	require.Equal(t, want, out)

	// One rank: 16-bit NaNs become canonical, f32 keeps its bits.
	in := make([]byte, 4)
	binary.LittleEndian.PutUint32(in, 0xffc12345)
	one := make([]byte, 4)
	require.NoError(t, Reference(F32, one, in))
	require.Equal(t, in, one)
	require.NoError(t, Reference(BF16, one, []byte{0x92, 0xff, 0x80, 0x3f}))
	require.Equal(t, []byte{0xff, 0x7f, 0x80, 0x3f}, one)

	// Long enough for several tiles, in place.
	a, b := make([]byte, 2*1000), make([]byte, 2*1000)
	for i := range 1000 {
		BF16.Store(a[2*i:], float32(i%128))
		BF16.Store(b[2*i:], 1)
	}
	require.NoError(t, Reference(BF16, a, a, b))
	for i := range 1000 {
		require.Equal(t, float32(i%128+1), BF16.Load(a[2*i:]))
	}

	require.ErrorIs(t, Reference(DType(7), one, in), ErrInvalidArgument)
	require.ErrorIs(t, Reference(F32, one), ErrInvalidArgument)
	require.ErrorIs(t, Reference(F32, one[:3], in), ErrInvalidArgument)
	require.ErrorIs(t, Reference(F32, one, in[:2]), ErrInvalidArgument)
}
