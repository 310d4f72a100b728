package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
)

func TestParseSizes(t *testing.T) {
	for _, c := range []struct {
		in     []string
		counts []uint64 // of f32; of bf16 where f32 cannot be
		dtype  allreduce.DType
	}{
		{[]string{"1", "7", "4097"}, []uint64{1, 7, 4097}, allreduce.BF16},
		{[]string{"1KB"}, []uint64{256}, allreduce.F32},
		{[]string{"1KiB"}, []uint64{512}, allreduce.BF16},
		{[]string{"8b", " 2 kb "}, []uint64{2, 512}, allreduce.F32},
		{[]string{"6B"}, []uint64{3}, allreduce.F16},
		{[]string{"1MB", "1MiB"}, []uint64{1 << 18, 1 << 18}, allreduce.F32},
		{[]string{"1GB"}, []uint64{1 << 28}, allreduce.F32},
		{[]string{"1GiB"}, []uint64{1 << 29}, allreduce.F16},
		{[]string{"536870912"}, []uint64{1 << 29}, allreduce.BF16}, // the limit is inclusive
		{[]string{"1KB:8KB"}, []uint64{256, 512, 1024, 2048}, allreduce.F32},
		{[]string{"3:20"}, []uint64{3, 6, 12}, allreduce.F32},
		{[]string{"5:5", "1"}, []uint64{5, 1}, allreduce.F32},
		{[]string{"1KB:1MB"}, []uint64{256, 512, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18}, allreduce.F32},
	} {
		list, err := parseSizes(c.in)
		require.NoError(t, err, c.in)
		var counts []uint64
		for _, s := range list {
			n, err := s.count(c.dtype)
			require.NoError(t, err, c.in)
			counts = append(counts, n)
		}
		require.Equal(t, c.counts, counts, c.in)
	}
}

func TestParseSizesRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "not a size"},
		{"KB", "not a size"},
		{"-1", "not a size"},
		{"1.5KB", "not a size"},
		{"0x10", "not a size"},
		{"1_000", "not a size"},
		{"7KX", "not a size"},
		{"1TB", "not a size"},
		{"1KB:", "not a size"},
		{":1KB", "not a size"},
		{"1:2:3", "not a size"},
		{"0", "nothing to sum"},
		{"0KB", "nothing to sum"},
		{"0:8", "nothing to sum"},
		{"1:1KB", "both ends the same kind"},
		{"2KB:1KB", "the smaller size first"},
		{"18446744073709551615", "at most 1073741824 bytes"},
		{"18446744073709551616", "at most 1073741824 bytes"},
		{"18014398509481984KB", "at most 1073741824 bytes"}, // × 1024 is 0 in 64 bits
		{"1073741825B", "at most 1073741824 bytes"},
	} {
		_, err := parseSizes([]string{c.in})
		var wrong *usageError
		require.ErrorAs(t, err, &wrong, c.in)
		require.Equal(t, "--sizes", wrong.Flag)
		require.ErrorContains(t, err, c.want, c.in)
	}
	_, err := parseSizes(nil)
	require.ErrorContains(t, err, "the list is empty")
}

func TestCountRefuses(t *testing.T) {
	for _, c := range []struct {
		size  string
		dtype allreduce.DType
		want  string
	}{
		{"6B", allreduce.F32, "6 bytes are no whole number of f32 elements: use a multiple of 4 bytes"},
		{"7B", allreduce.BF16, "multiple of 2 bytes"},
		{"268435457", allreduce.F32, "at most 1073741824 bytes"},
		{"536870913", allreduce.F16, "at most 1073741824 bytes"},
	} {
		list, err := parseSizes([]string{c.size})
		require.NoError(t, err)
		_, err = list[0].count(c.dtype)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, c.size, "the message repeats what was typed")
	}
}

func FuzzParseSizes(f *testing.F) {
	for _, s := range []string{"1KB:1MB", "7", "0", "1GiB", "18446744073709551615B", ":", "1 kb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := parseSizes([]string{s})
		if err != nil {
			var wrong *usageError
			require.ErrorAs(t, err, &wrong)
			return
		}
		require.NotEmpty(t, list)
		for _, z := range list {
			require.NotZero(t, z.n)
			require.LessOrEqual(t, z.n, uint64(maxMessage))
			for _, dt := range allreduce.DTypes() {
				if n, err := z.count(dt); err == nil {
					require.LessOrEqual(t, n*dt.Size(), uint64(maxMessage))
				}
			}
		}
	})
}
