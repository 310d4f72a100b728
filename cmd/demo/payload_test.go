package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
)

// Payloads must hold every kind of value, and the sums must show -0, NaN, infinities and subnormals.
func TestFill(t *testing.T) {
	const ranks, count = 3, 1 << 14
	for _, dt := range allreduce.DTypes() {
		t.Run(dt.String(), func(t *testing.T) {
			in := make([][]byte, ranks)
			for r := range in {
				in[r] = make([]byte, count*dt.Size())
			}
			fill(dt, rand.New(rand.NewPCG(1, 2)), in)
			for r := range in {
				kinds := census(dt, in[r])
				for _, k := range []string{"nan", "+inf", "-inf", "+0", "-0", "subnormal", "normal"} {
					require.Positive(t, kinds[k], "rank %d has no %s: %v", r, k, kinds)
				}
				require.Greater(t, kinds["normal"], count*8/10, "most are ordinary")
			}
			require.NotEqual(t, in[0], in[1])
			sum := make([]byte, len(in[0]))
			require.NoError(t, allreduce.Reference(dt, sum, in...))
			kinds := census(dt, sum)
			for _, k := range []string{"nan", "+inf", "-inf", "-0", "subnormal", "normal"} {
				require.Positive(t, kinds[k], "no sum is %s: %v", k, kinds)
			}
			require.Less(t, kinds["nan"], count/20, "NaN must not hide everything else")

			again := [][]byte{make([]byte, len(in[0])), make([]byte, len(in[0])), make([]byte, len(in[0]))}
			fill(dt, rand.New(rand.NewPCG(1, 2)), again)
			require.Equal(t, in, again, "the same seed gives the same payload")
			fill(dt, rand.New(rand.NewPCG(1, 3)), again)
			require.NotEqual(t, in, again)
		})
	}
}

func census(dt allreduce.DType, b []byte) map[string]int {
	smallest := map[allreduce.DType]float64{allreduce.F32: 0x1p-126, allreduce.F16: 0x1p-14, allreduce.BF16: 0x1p-126}[dt]
	kinds := map[string]int{}
	for at := 0; at < len(b); at += int(dt.Size()) {
		v := float64(dt.Load(b[at:]))
		switch {
		case v != v:
			kinds["nan"]++
		case math.IsInf(v, 1):
			kinds["+inf"]++
		case math.IsInf(v, -1):
			kinds["-inf"]++
		case v == 0 && math.Signbit(v):
			kinds["-0"]++
		case v == 0:
			kinds["+0"]++
		case math.Abs(v) < smallest:
			kinds["subnormal"]++
		default:
			kinds["normal"]++
		}
	}
	return kinds
}
