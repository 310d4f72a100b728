package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
)

func TestFindCliffs(t *testing.T) {
	row := func(name string, ranks int, count uint64, us float64) benchResult {
		return benchResult{Name: name, Ranks: ranks, Count: count, Bytes: 2 * count, DType: allreduce.BF16, Plan: &allreduce.Plan{Algorithm: allreduce.OneshotPull},
			Out: benchTimes{TimeUS: us, Samples: 3}}
	}
	results := []benchResult{
		row("auto", 2, 1024, 2), row("auto", 2, 512, 2.19), // within 10 %
		row("auto", 2, 1025, 2.3), // one element more, 15 % slower
		row("auto", 2, 4096, 8),   // many more may cost more
		row("auto", 2, 8192, 4),   // faster though larger
		row("auto", 4, 16384, 1),  // of other ranks
		row("copy", 2, 16384, 1),  // not auto
	}
	results = append(results, row("auto", 8, 100, 2), row("auto", 8, 200, 1.9), row("auto", 8, 400, 1.75), row("auto", 8, 800, 1.7), row("auto", 8, 1600, 1.9), // bit by bit, told once
		row("auto", 16, 1, 8), row("auto", 16, 2, 4), row("auto", 16, 4, 7), row("auto", 16, 8, 3)) // twice
	unmeasured := row("auto", 2, 32768, 0)
	unmeasured.Out.Samples = 0
	found := findCliffs(append(results, unmeasured))
	require.Len(t, found, 5)
	require.Equal(t, [2]uint64{2, 4}, [2]uint64{found[3].Small.Bytes, found[3].Large.Bytes})
	require.Equal(t, [2]uint64{8, 16}, [2]uint64{found[4].Small.Bytes, found[4].Large.Bytes})
	require.Equal(t, [2]uint64{200, 800}, [2]uint64{found[2].Small.Bytes, found[2].Large.Bytes})
	require.Equal(t, [2]uint64{2048, 2050}, [2]uint64{found[0].Small.Bytes, found[0].Large.Bytes})
	require.Equal(t, [2]uint64{8192, 16384}, [2]uint64{found[1].Small.Bytes, found[1].Large.Bytes})
	var out bytes.Buffer
	printCliffs(&out, found)
	require.Contains(t, out.String(), "2 ranks, bf16: 8192 bytes 8.00 us (oneshot-pull), 16384 bytes 4.00 us (oneshot-pull)")
	for i := range results { // the same times, the other way round
		results[i].In, results[i].Out = results[i].Out, benchTimes{TimeUS: 1, Samples: 3}
	}
	inPlace := findCliffs(results)
	require.Len(t, inPlace, 5)
	for i, c := range inPlace {
		require.True(t, c.InPlace)
		require.False(t, found[i].InPlace)
		c.InPlace = false
		require.Equal(t, found[i], c)
	}
	out.Reset()
	printCliffs(&out, inPlace[1:2])
	require.Contains(t, out.String(), "2 ranks, bf16, in place: 8192 bytes 8.00 us")
	out.Reset()
	printCliffs(&out, nil)
	require.Contains(t, out.String(), "No cliff")
}

// --around adds each size with one element less and more, in order and once.
func TestBenchAround(t *testing.T) {
	code, r := benchJSON(t, "--ranks", "2", "-b", "2", "-e", "8", "--around", "--floor=false")
	require.Equal(t, exitGood, code)
	var counts []uint64
	for _, x := range r.Results {
		if x.Name == "auto" {
			counts = append(counts, x.Count)
		}
	}
	require.Equal(t, []uint64{1, 2, 3, 4, 5}, counts)
	require.Empty(t, r.Cliffs, "emulated times say nothing")
}
