package allreduce

import (
	"encoding/binary"
	"math"
	"strings"
)

// DType is an element type.
type DType uint8

const (
	F32  DType = iota // IEEE 754 binary32
	F16               // IEEE 754 binary16
	BF16              // bfloat16: the upper half of a binary32
	numDTypes
)

var dtypeNames = [numDTypes]string{"f32", "f16", "bf16"}

// DTypes lists all element types.
func DTypes() []DType { return []DType{F32, F16, BF16} }

func (d DType) String() string {
	if !d.valid() {
		return "invalid"
	}
	return dtypeNames[d]
}

func (d DType) valid() bool { return d < numDTypes }

// Size is the size of one element in bytes; 0 for an invalid type.
func (d DType) Size() uint64 {
	switch d {
	case F32:
		return 4
	case F16, BF16:
		return 2
	}
	return 0
}

// ParseDType reads "f32", "f16" or "bf16". The error is a *NameError.
func ParseDType(s string) (DType, error) {
	for i, n := range dtypeNames {
		if strings.EqualFold(s, n) {
			return DType(i), nil
		}
	}
	return 0, &NameError{Kind: "dtype", Name: s, Known: dtypeNames[:]}
}

// MarshalText gives the name.
func (d DType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a name, as ParseDType does.
func (d *DType) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDType(string(b))
	return err
}

// Load is the value of the element in the first Size() bytes of b, little-endian, exactly.
func (d DType) Load(b []byte) float32 {
	switch d {
	case F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	case F16:
		return f16Values[binary.LittleEndian.Uint16(b)]
	default:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
	}
}

// Store rounds v to nearest even and writes it to the first Size() bytes of b, little-endian. NaN becomes 0x7fff in 16 bits; f32 keeps its bits.
func (d DType) Store(b []byte, v float32) {
	switch d {
	case F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(v))
	case F16:
		binary.LittleEndian.PutUint16(b, toF16(v))
	default:
		binary.LittleEndian.PutUint16(b, toBF16(v))
	}
}

const nan16 = 0x7fff

func toBF16(v float32) uint16 {
	x := math.Float32bits(v)
	if x&0x7fffffff > 0x7f800000 {
		return nan16
	}
	return uint16((x + 0x7fff + x>>16&1) >> 16)
}

func toF16(v float32) uint16 {
	x := math.Float32bits(v)
	sign := uint16(x >> 16 & 0x8000)
	x &= 0x7fffffff
	switch {
	case x > 0x7f800000:
		return nan16
	case x >= 0x477ff000: // rounds to 2^16 or more
		return sign | 0x7c00
	case x >= 0x38800000: // normal
		x -= 0x38000000
		return sign | uint16((x+0xfff+x>>13&1)>>13)
	}
	// Subnormal: let the float unit round, by adding the number whose last bit is worth 2^-24.
	f := math.Float32frombits(x) + 0.5
	return sign | uint16(math.Float32bits(f)-math.Float32bits(0.5))
}

// f16Values is the value of every binary16.
var f16Values = func() (t [1 << 16]float32) {
	for i := range t {
		exp, frac := i>>10&0x1f, i&0x3ff
		var v float64
		switch exp {
		case 0:
			v = math.Ldexp(float64(frac), -24)
		case 31:
			v = math.Inf(1)
			if frac != 0 {
				// Sign, quiet bit and payload move up; the hardware's own conversion gives the canonical NaN, and
				// either way the sum is one.
				t[i] = math.Float32frombits(0x7fffffff)
				continue
			}
		default:
			v = math.Ldexp(float64(frac|0x400), exp-25)
		}
		if i>>15 != 0 {
			v = math.Copysign(v, -1)
		}
		t[i] = float32(v)
	}
	return t
}()
