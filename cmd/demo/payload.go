package main

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/fenceline/fenceline/allreduce"
)

// format is the layout of a float type: one sign bit, then exp bits of exponent and frac bits of fraction.
type format struct{ exp, frac uint }

func formatOf(dt allreduce.DType) format {
	switch dt {
	case allreduce.F16:
		return format{5, 10}
	case allreduce.BF16:
		return format{8, 7}
	}
	return format{8, 23}
}

// bits puts a value together, cutting each part to its width.
func (f format) bits(sign, exp, frac uint64) uint64 {
	return sign&1<<(f.exp+f.frac) | exp&(1<<f.exp-1)<<f.frac | frac&(1<<f.frac-1)
}

// normal is a random value of about 1/16 to 16 in magnitude, so that most sums have to be rounded.
func (f format) normal(x uint64) uint64 {
	bias := uint64(1)<<(f.exp-1) - 1
	return f.bits(x, bias-4+x>>1&7, x>>8)
}

func (f format) subnormal(x uint64) uint64 { return f.bits(x, 0, x>>8|1) }

// special is a random one of: NaN of any payload, infinity, zero of either sign, subnormal, largest finite.
func (f format) special(x uint64) uint64 {
	top := uint64(1)<<f.exp - 1
	switch x >> 1 % 8 {
	case 0:
		return f.bits(x, top, x>>8|1)
	case 1:
		return f.bits(x, top, 0)
	case 2, 3:
		return f.bits(x, 0, 0)
	case 4:
		return f.bits(x, top-1, ^uint64(0))
	}
	return f.subnormal(x)
}

// fill makes new payloads, in[r] for rank r, all of one length. Most elements are ordinary numbers. In one
// position of sixteen each rank has an ordinary or a special value; in one of 64 all ranks have -0, whose sum is -0;
// in one of 64 all have subnormals, whose sum shows whether they are flushed.
func fill(dt allreduce.DType, rng *rand.Rand, in [][]byte) {
	f, width := formatOf(dt), int(dt.Size())
	for at := 0; at < len(in[0]); at += width {
		kind := rng.Uint64() % 64
		for r := range in {
			x := rng.Uint64()
			var v uint64
			switch {
			case kind < 4 && x>>62 != 0:
				v = f.special(x)
			case kind == 4:
				v = f.bits(1, 0, 0)
			case kind == 5:
				v = f.subnormal(x)
			default:
				v = f.normal(x)
			}
			if width == 4 {
				binary.LittleEndian.PutUint32(in[r][at:], uint32(v))
			} else {
				binary.LittleEndian.PutUint16(in[r][at:], uint16(v))
			}
		}
	}
}
