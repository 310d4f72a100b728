package allreduce

import (
	"encoding/binary"
	"fmt"
	"math"
)

// nan32 is what the hardware's float instructions return for every NaN.
const nan32 = 0x7fffffff

// Reference is the all-reduce on the CPU, the definition that every algorithm is held to: the fp32 sum of
// in[0], in[1], … in that order, rounded once. Each in[r], and out, are of the same length, a multiple of dt.Size()
// bytes, and hold little-endian elements; out may be one of the inputs. The error is an *ArgumentError that says which
// length is wrong.
func Reference(dt DType, out []byte, in ...[]byte) error {
	size := int(dt.Size())
	switch {
	case size == 0:
		return &ArgumentError{Rank: -1, Arg: "dtype", Detail: fmt.Sprintf("%d is none of %v", dt, dtypeNames)}
	case len(in) == 0:
		return &ArgumentError{Rank: -1, Arg: "in", Detail: "no ranks"}
	case len(out)%size != 0:
		return &ArgumentError{Rank: -1, Arg: "out", Detail: fmt.Sprintf("%d bytes are no whole number of %v", len(out), dt)}
	}
	for r := range in {
		if len(in[r]) != len(out) {
			return &ArgumentError{Rank: r, Arg: "in", Detail: fmt.Sprintf("%d bytes, out has %d", len(in[r]), len(out))}
		}
	}
	var acc [256]float32 // a tile: long enough to amortise the loops over ranks
	for at := 0; at < len(out); at += len(acc) * size {
		n := min(len(acc), (len(out)-at)/size)
		for r := range in {
			accumulate(dt, acc[:n], in[r][at:], r == 0)
		}
		for i, v := range acc[:n] {
			dt.Store(out[at+i*size:], v)
		}
	}
	return nil
}

func accumulate(dt DType, acc []float32, in []byte, first bool) {
	if first {
		for i := range acc {
			acc[i] = dt.Load(in[i*int(dt.Size()):])
		}
		return
	}
	switch dt {
	case F32:
		for i := range acc {
			acc[i] = add(acc[i], math.Float32frombits(binary.LittleEndian.Uint32(in[4*i:])))
		}
	case F16:
		for i := range acc {
			acc[i] = add(acc[i], f16Values[binary.LittleEndian.Uint16(in[2*i:])])
		}
	default:
		for i := range acc {
			acc[i] = add(acc[i], math.Float32frombits(uint32(binary.LittleEndian.Uint16(in[2*i:]))<<16))
		}
	}
}

// add is add.rn.f32: IEEE addition, with one NaN.
func add(a, b float32) float32 {
	s := a + b
	if s != s {
		return math.Float32frombits(nan32)
	}
	return s
}
