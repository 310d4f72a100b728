package probe

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/topo"
)

func TestPattern(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(16) {
		for n := range uint64(4096) {
			w := word(seed, n)
			require.NotZero(t, w&1)
			require.Zero(t, w>>63)
			require.False(t, seen[w], "seed %d, word %d is elsewhere too", seed, n)
			seen[w] = true
		}
	}
}

func TestCompare(t *testing.T) {
	const words, seed, before = 64, 5, 6
	for name, c := range map[string]struct {
		spoil  func(n int, good uint64) uint64
		offset uint64
		says   string
	}{
		"zeros": {func(int, uint64) uint64 { return 0 }, 0, "64 of 64 words wrong, all of them zero"},
		"ones":  {func(int, uint64) uint64 { return ^uint64(0) }, 0, "64 of 64 words wrong, all of them all-ones"},
		"stale": {func(n int, g uint64) uint64 {
			if n >= 60 {
				return word(before, uint64(n))
			}
			return g
		}, 480, "4 of 64 words wrong, all of them what was there before"},
		"one bit": {func(n int, g uint64) uint64 {
			if n == 63 {
				return g ^ 1<<40
			}
			return g
		}, 504, "1 of 64 words wrong"},
		"mixed":   {func(n int, g uint64) uint64 { return uint64(n%2) * ^uint64(0) }, 0, "64 of 64 words wrong"},
		"shifted": {func(n int, g uint64) uint64 { return word(seed, uint64(n+1)) }, 0, "64 of 64 words wrong"},
	} {
		mem := make([]byte, 8*words)
		for n := range words {
			good := word(seed, uint64(n))
			binary.LittleEndian.PutUint64(mem[8*n:], c.spoil(n, good))
		}
		got := compare("read", mem, seed, before)
		require.Equal(t, topo.No, got.Answer, name)
		require.Equal(t, c.offset, got.Offset, name)
		require.Equal(t, word(seed, c.offset/8), got.Expected, name)
		require.Equal(t, binary.LittleEndian.Uint64(mem[c.offset:]), got.Got, name)
		require.Regexp(t, "^read: expected 0x[0-9a-f]+, got 0x[0-9a-f]+ at offset [0-9]+; "+c.says+"$", got.Detail, name)
	}
}
