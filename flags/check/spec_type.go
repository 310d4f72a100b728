package check

import (
	"encoding/binary"
	"fmt"
	"math"
)

// elemType is a type of elements in a buffer.
type elemType struct {
	name  string
	size  int
	float bool
}

const typeNames = "u8, u16, u32, u64, f16, bf16 or f32"

var elemTypes = []elemType{{"u8", 1, false}, {"u16", 2, false}, {"u32", 4, false}, {"u64", 8, false}, {"f16", 2, true}, {"bf16", 2, true}, {"f32", 4, true}}

func typeNamed(name string) *elemType {
	for i := range elemTypes {
		if elemTypes[i].name == name {
			return &elemTypes[i]
		}
	}
	return nil
}

// put writes the bits of an element, get reads them.
func (t *elemType) put(b []byte, bits uint64) {
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], bits)
	copy(b[:t.size], w[:])
}

func (t *elemType) get(b []byte) uint64 {
	var w [8]byte
	copy(w[:], b[:t.size])
	return binary.LittleEndian.Uint64(w[:])
}

// number is the bits of a whole number.
func (t *elemType) number(v int64) uint64 {
	if t.float {
		return t.round(float32(v))
	}
	return uint64(v) & (math.MaxUint64 >> (64 - 8*t.size))
}

// show is an element for a message.
func (t *elemType) show(bits uint64) string {
	if t.float {
		return fmt.Sprintf("%#x (%g)", bits, t.value(bits))
	}
	return fmt.Sprintf("%#x", bits)
}

const nan32 = 0x7fffffff // what the hardware's float instructions return for every NaN

// value is a float element's value, exactly.
func (t *elemType) value(bits uint64) float32 {
	switch t.name {
	case "f32":
		return math.Float32frombits(uint32(bits))
	case "bf16":
		return math.Float32frombits(uint32(bits) << 16)
	}
	exp, frac := bits>>10&0x1f, float64(bits&0x3ff)
	var v float64
	switch {
	case exp == 0:
		v = math.Ldexp(frac, -24)
	case exp < 31:
		v = math.Ldexp(frac+1024, int(exp)-25)
	case frac == 0:
		v = math.Inf(1)
	default:
		return math.Float32frombits(nan32)
	}
	if bits>>15 != 0 {
		v = math.Copysign(v, -1)
	}
	return float32(v)
}

// round is the bits of v, rounded to nearest even.
func (t *elemType) round(v float32) uint64 {
	x := math.Float32bits(v)
	switch {
	case t.name == "f32":
		return uint64(x)
	case v != v:
		return 0x7fff
	case t.name == "bf16":
		return uint64((x + 0x7fff + x>>16&1) >> 16)
	}
	sign := uint64(x >> 16 & 0x8000)
	x &= 0x7fffffff
	switch {
	case x >= 0x477ff000: // rounds to 2^16 or more
		return sign | 0x7c00
	case x >= 0x38800000: // normal
		x -= 0x38000000
		return sign | uint64((x+0xfff+x>>13&1)>>13)
	}
	// Subnormal: let the float unit round, by adding the number whose last bit is worth 2^-24.
	return sign | uint64(math.Float32bits(math.Float32frombits(x)+0.5)-math.Float32bits(0.5))
}

// sum adds elements in order, in fp32 when they are floats, and rounds once.
func (t *elemType) sum(elems []uint64) uint64 {
	if !t.float {
		var s uint64
		for _, v := range elems {
			s += v
		}
		return t.number(int64(s))
	}
	acc := t.value(elems[0])
	for _, v := range elems[1:] {
		if acc += t.value(v); acc != acc {
			acc = math.Float32frombits(nan32)
		}
	}
	return t.round(acc)
}

// payload is the i-th element of what a rank has in its version-th payload of a buffer: any bits in integers; in floats
// numbers of either sign and of magnitude 1 to 16, whose sums depend on each of them.
func (t *elemType) payload(buffer int, rank, version, i int64) uint64 {
	x := uint64(buffer)*0x9e3779b97f4a7c15 ^ uint64(rank)*0xbf58476d1ce4e5b9 ^ uint64(version)*0x94d049bb133111eb ^ uint64(i+1)*0xd6e8feb86659fd93
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	if !t.float {
		return t.number(int64(x))
	}
	exp, sign := 127+x>>32&3, x>>40&1
	return t.round(math.Float32frombits(uint32(sign<<31 | exp<<23 | x&0x7fffff)))
}
