package ptx

import (
	"encoding/binary"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What compilers make of testdata/features/features.cu computes what C++ says.
func TestCompiledFeatures(t *testing.T) {
	files, err := filepath.Glob("testdata/features/*.ptx")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 4)
	in := make([]uint32, 64)
	v := uint32(12345)
	for i := range in {
		v = v*1664525 + 1013904223
		in[i] = v
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			src, err := os.ReadFile(name)
			require.NoError(t, err)
			m, err := Parse(filepath.Base(name), src)
			require.NoError(t, err)
			out := runFeatures(t, m, "features", in)
			for i := range uint32(64) {
				want := features(in, i)
				for n := range want {
					require.Equalf(t, want[n], out(n, i), "result %d of thread %d", n, i)
				}
			}
			if strings.HasPrefix(filepath.Base(name), "clang") {
				return
			}
			out = runFeatures(t, m, "intrinsics", in)
			for i := range uint32(64) {
				want := intrinsics(in, i)
				for n := range want {
					got := out(n, i)
					if n >= 16 && n <= 19 { // libm
						require.InDeltaf(t, want[n], got, 1, "result %d of thread %d", n, i)
						continue
					}
					require.Equalf(t, want[n], got, "result %d of thread %d", n, i)
				}
				if i < 32 {
					require.Equal(t, uint32(i*(i-1)/2), out(len(want), i), "lanes take turns")
				}
			}
		})
	}
}

// runFeatures runs one block of 64 threads and returns access to its results.
func runFeatures(t *testing.T, m *Module, entry string, in []uint32) func(n int, thread uint32) uint32 {
	k, ok := m.Kernel(entry)
	require.True(t, ok)
	mem := newFlat(1 << 16)
	const inAt = 32 << 10
	for i, v := range in {
		mem.set32(inAt/4+i, v)
	}
	var globals []uint64
	at := 40 << 10
	for _, g := range m.Globals {
		at = alignUp(at, 64)
		copy(mem.data[at:], g.Init)
		globals = append(globals, flatBase+uint64(at))
		at += g.Size
	}
	p := binary.LittleEndian.AppendUint64(nil, flatBase)
	p = binary.LittleEndian.AppendUint64(p, flatBase+inAt)
	if entry == "features" {
		p = binary.LittleEndian.AppendUint64(p, 64)
		for i := range uint32(5) {
			p = binary.LittleEndian.AppendUint32(p, 1000*i)
		}
		p = append(p, 0x34, 0xf2, 0xfd, 0) // half = 0xf234, small = -3
	}
	require.Len(t, p, k.Sig.ParamBytes)
	_, _, err := run(t, k, mem, runOpts{block: [3]uint32{64, 1, 1}, params: p, shared: 1024, globals: globals})
	require.NoError(t, err)
	return func(n int, thread uint32) uint32 { return mem.u32(64*n + int(thread)) }
}

// features mirrors the kernel of that name, for one thread.
func features(in []uint32, t uint32) []uint32 {
	x := in[t]
	var r []uint32
	put := func(v uint32) { r = append(r, v) }
	put(classify(t))
	put(collatz(t + 1))
	pa, pb := uint32(uint64(t)<<33|5)+t+1, uint64(x)*uint64(t+1)
	put(pa ^ uint32(pb) ^ uint32(pb>>32))
	var v []uint32
	for i := range uint32(8) {
		v = append(v, in[(t*7+i*5)%64]>>3)
	}
	sort.Slice(v, func(i, j int) bool { return v[i] < v[j] })
	put(v[t%8])
	small := int32(-3)
	put(1000*(t%5) + []uint32{3, 1, 4, 1, 5, 9, 2, 6}[t%8] + 0xf234 + uint32(small))
	sum := uint32(0)
	for i := uint32(0); i <= t; i++ {
		sum += in[(t+i*3)%64]
	}
	put(sum)
	put(uint32(uint64(x) * uint64(x) / uint64(t+3)))
	put(uint32(int64(int32(x)) / -7 % 1000))
	d := int32(t) - 40
	if d == 0 {
		d = 1
	}
	put(uint32(int32(x) % d))
	// The largest inputs round up to 2^32, which conversion clamps.
	put(uint32(min(uint64(float32(x)), math.MaxUint32)))
	put(math.Float32bits(float32(math.FMA(float64(float32(x)), float64(float32(0.1)), float64(t)))))
	put(uint32(int64(math.Floor(math.Abs(float64(x)/3-1e9)) * math.Copysign(1, float64(x)/3-1e9))))
	put(uint32(int32(int8(x))) + uint32(int32(int16(x>>3))))
	put(bits.RotateLeft32(x, -int(t&31)))
	if t&31 == 0 {
		r[len(r)-1] = x
	}
	put(uint32(uint64(x) << 20 >> (t & 63)))
	put(uint32(bits.OnesCount32(x)))
	f := float32(1)
	for i := range t % 13 {
		f = float32(math.FMA(float64(f), 1.5, -float64(i)))
	}
	switch {
	case f > 3:
		put(1)
	case f < -2:
		put(2)
	case f == 1:
		put(3)
	default:
		put(4)
	}
	wide := uint64(x)*0x9e3779b97f4a7c15 + uint64(t)
	put(uint32(wide>>32) ^ uint32(wide%1000003))
	put([]uint32{x, t, x + t, x - t}[x%4])
	even, big := t&1 == 0, x > 0x80000000
	switch {
	case even && big:
		put(1)
	case even || big:
		put(2)
	default:
		put(3)
	}
	return r
}

func classify(x uint32) uint32 {
	switch x % 9 {
	case 0:
		return x + 7
	case 1:
		return x * 3
	case 2:
		return x ^ 0x55
	case 3:
		if x > 20 {
			return 1
		}
		return 2
	case 4:
		return x << 3
	case 6:
		return ^x
	case 7:
		return x / 5
	}
	return 1000 + x
}

func collatz(n uint32) (steps uint32) {
	for ; n != 1 && steps < 200; steps++ {
		if n&1 == 1 {
			n = 3*n + 1
		} else {
			n /= 2
		}
	}
	return steps
}

// intrinsics mirrors the kernel of that name, for one thread of two warps.
func intrinsics(in []uint32, t uint32) []uint32 {
	x := in[t]
	warp := in[t&^31 : t&^31+32]
	lane := t & 31
	var r []uint32
	put := func(v uint32) { r = append(r, v) }
	ffs := uint32(bits.TrailingZeros32(x) + 1)
	put(uint32(bits.OnesCount32(x)) + 100*uint32(bits.LeadingZeros32(x)) + 10000*ffs)
	put(bits.Reverse32(x))
	all := uint64(x) | uint64(^x)<<32
	b := func(i uint) uint32 { return uint32(all >> (8 * i) & 0xff) }
	put(b(5) | b(1)<<8 | b(7)<<16 | b(3)<<24)
	put(uint32(uint64(x) * 0xdeadbeef >> 32))
	put(warp[lane^9])
	if lane%16 < 13 {
		put(warp[lane+3])
	} else {
		put(x)
	}
	var ballot, match, sum uint32
	for i, y := range warp {
		ballot |= y >> 2 & 1 << i
		if y&3 == x&3 {
			match |= 1 << i
		}
		sum += y & 0xfff
	}
	put(ballot)
	put(match)
	put(sum)
	count := uint32(0)
	var dyn [64]uint32
	for i, y := range in {
		count += y & 1
		dyn[y%8] += uint32(i)
		dyn[8+y%8] = max(dyn[8+y%8], y)
		dyn[16+y%4] ^= y
	}
	put(count)
	put(dyn[t])
	h := refWiden("f16")(x & 0xbfff)
	put(refRoundTo(refF16, float64(h)*float64(h)+0.5))
	put(refRound("bf16")(refWiden("bf16")(x>>16&0xbfff) * 3))
	put(math.Float32bits(float32(math.Sqrt(float64(float32(x))))))
	put(uint32(fmtF32.narrow(float64(float32(x))*float64(float32(1.1))-3, roundZero)))
	put(uint32(int32(math.Floor(float64(float32(int32(x)) * float32(1e-3))))))
	put(uint32(math.Sin(float64(t)*1000)*10000 + 20000))
	put(uint32(math.Exp(float64(float32(t)*0.1)) * 100))
	put(uint32(math.Log(float64(t)+1) * 10000))
	put(uint32(math.Pow(float64(t)+1, 1.5) * 100))
	d := int64(in[0])*int64(in[t]) - 5
	put(uint32(d / (int64(t)*12345 + 7)))
	put(uint32((uint64(^x)<<32 | uint64(x)) << (t & 31) >> 32))
	dp := uint32(7)
	for i, k := range []int32{3, 2, -1, 1} {
		dp += uint32(int32(int8(x>>(8*i))) * k)
	}
	put(dp)
	return r
}

// refRoundTo rounds a double that is exact, or NaN or infinite.
func refRoundTo(f refFormat, x float64) uint32 {
	switch {
	case x != x:
		return f.nan()
	case math.IsInf(x, 0):
		return f.inf(x < 0)
	}
	return refRoundFloat(f, x)
}
