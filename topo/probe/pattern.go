package probe

import (
	"encoding/binary"
	"fmt"

	"github.com/fenceline/fenceline/topo"
)

// word is the pattern's word of index n: never zero, never all-ones. Mirrors fl::pattern in kernels/probe.cu.
func word(seed, n uint64) uint64 { return (mix(seed+(n+1)*0x9e3779b97f4a7c15) | 1) &^ (1 << 63) }

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// derive makes a seed of its own for each use.
func derive(seed uint64, parts ...uint64) uint64 {
	for _, p := range parts {
		seed = mix(seed + (p+1)*0xd1342543de82ef95)
	}
	return seed
}

// compare checks memory against the pattern of seed. before is the seed of what the memory held earlier, to name
// stale data; what says what was done, where that needs saying. The Check is Yes, or says which word is the first wrong one.
func compare(what string, mem []byte, seed, before uint64) topo.Check {
	c := topo.Check{Answer: topo.Yes}
	wrong, zeros, ones, stale := 0, 0, 0, 0
	total := len(mem) / 8
	for n := range total {
		got, want := binary.LittleEndian.Uint64(mem[8*n:]), word(seed, uint64(n))
		if got == want {
			continue
		}
		if wrong == 0 {
			c.Answer, c.Offset, c.Expected, c.Got = topo.No, uint64(8*n), want, got
		}
		wrong++
		switch got {
		case 0:
			zeros++
		case ^uint64(0):
			ones++
		case word(before, uint64(n)):
			stale++
		}
	}
	if wrong == 0 {
		return c
	}
	kind := ""
	switch wrong {
	case zeros:
		kind = ", all of them zero"
	case ones:
		kind = ", all of them all-ones"
	case stale:
		kind = ", all of them what was there before"
	}
	c.Detail = fmt.Sprintf("%sexpected %#x, got %#x at offset %d; %d of %d words wrong%s",
		prefix(what), c.Expected, c.Got, c.Offset, wrong, total, kind)
	return c
}

func prefix(what string) string {
	if what == "" {
		return ""
	}
	return what + ": "
}
