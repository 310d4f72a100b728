package ptx

import "math/bits"

// scalar is what one instruction computes in one thread. Operands and result are raw bits, zero-extended
// from the width of their type; predicates are 0 or 1.
type scalar func(a, b, c uint64) uint64

// sext sign-extends the low bits of v that t has.
func sext(v uint64, t typ) int64 {
	switch t.size() {
	case 1:
		return int64(int8(v))
	case 2:
		return int64(int16(v))
	case 4:
		return int64(int32(v))
	}
	return int64(v)
}

// intMin and intMax are the range of an integer type, intMax as bits.
func intMin(t typ) int64 {
	if !t.signed() {
		return 0
	}
	return -1 << (t.size()*8 - 1)
}

func intMax(t typ) uint64 {
	if t.signed() {
		return t.mask() >> 1
	}
	return t.mask()
}

func b2i(b bool) uint64 {
	var r uint64
	if b {
		r = 1
	}
	return r
}

// clampAdd adds with saturation to the s32 range.
func clamp32(v int64) uint64 { return uint64(uint32(int32(min(max(v, -1<<31), 1<<31-1)))) }

func intAdd(t typ) scalar { m := t.mask(); return func(a, b, _ uint64) uint64 { return (a + b) & m } }
func intSub(t typ) scalar { m := t.mask(); return func(a, b, _ uint64) uint64 { return (a - b) & m } }
func intNeg(t typ) scalar { m := t.mask(); return func(a, _, _ uint64) uint64 { return -a & m } }

func intAbs(t typ) scalar {
	m := t.mask()
	return func(a, _, _ uint64) uint64 {
		if v := sext(a, t); v < 0 {
			a = uint64(-v)
		}
		return a & m
	}
}

// mulHigh is the upper half of the product.
func mulHigh(a, b uint64, t typ) uint64 {
	if t.size() < 8 {
		w := uint(t.size() * 8)
		if t.signed() {
			return uint64(sext(a, t)*sext(b, t)>>w) & t.mask()
		}
		return a * b >> w
	}
	hi, _ := bits.Mul64(a, b)
	if t.signed() {
		hi -= uint64(int64(a)>>63)&b + uint64(int64(b)>>63)&a
	}
	return hi
}

// product picks the part of a·b that .lo, .hi or .wide asks for, before any mask.
func product(part string, t typ) func(a, b uint64) uint64 {
	switch {
	case part == "hi":
		return func(a, b uint64) uint64 { return mulHigh(a, b, t) }
	case part == "wide" && t.signed():
		return func(a, b uint64) uint64 { return uint64(sext(a, t) * sext(b, t)) }
	}
	return func(a, b uint64) uint64 { return a * b }
}

// product24 is mul24: the low or high 32 bits of the 48-bit product of 24-bit values.
func product24(part string, t typ) func(a, b uint64) uint64 {
	var shift uint
	if part == "hi" {
		shift = 16
	}
	if t.signed() {
		return func(a, b uint64) uint64 { return uint64(int64(a<<40) >> 40 * (int64(b<<40) >> 40) >> shift) }
	}
	return func(a, b uint64) uint64 { return (a & 0xffffff) * (b & 0xffffff) >> shift }
}

// intDiv and intRem: a zero divisor gives all ones, as NVIDIA's own sequences do; the most
// negative value by -1 gives itself, remainder 0.
func intDiv(t typ) scalar {
	m := t.mask()
	return func(a, b, _ uint64) uint64 {
		switch {
		case b == 0:
			return m
		case !t.signed():
			return a / b
		}
		x, y := sext(a, t), sext(b, t)
		if y == -1 {
			return uint64(-x) & m
		}
		return uint64(x/y) & m
	}
}

func intRem(t typ) scalar {
	m := t.mask()
	return func(a, b, _ uint64) uint64 {
		switch {
		case b == 0:
			return m
		case !t.signed():
			return a % b
		}
		x, y := sext(a, t), sext(b, t)
		if y == -1 {
			return 0
		}
		return uint64(x%y) & m
	}
}

func intMinMax(t typ, wantMax bool) scalar {
	return func(a, b, _ uint64) uint64 {
		less := a < b
		if t.signed() {
			less = sext(a, t) < sext(b, t)
		}
		if less == wantMax {
			return b
		}
		return a
	}
}

// sad is c + |a-b|.
func intSad(t typ) scalar {
	m := t.mask()
	lo := intMinMax(t, false)
	hi := intMinMax(t, true)
	return func(a, b, c uint64) uint64 { return (c + hi(a, b, 0) - lo(a, b, 0)) & m }
}

func intShl(t typ) scalar {
	m, w := t.mask(), uint64(t.size()*8)
	return func(a, b, _ uint64) uint64 {
		if b >= w {
			return 0
		}
		return a << b & m
	}
}

func intShr(t typ) scalar {
	m, w := t.mask(), uint64(t.size()*8)
	if t.signed() {
		return func(a, b, _ uint64) uint64 { return uint64(sext(a, t)>>min(b, w-1)) & m }
	}
	return func(a, b, _ uint64) uint64 {
		if b >= w {
			return 0
		}
		return a >> b
	}
}

// funnel is shf: {b:a} shifted, 32 bits kept.
func funnel(left, wrap bool) scalar {
	return func(a, b, c uint64) uint64 {
		if wrap {
			c &= 31
		} else {
			c = min(c, 32)
		}
		v := b<<32 | a
		if left {
			return v << c >> 32
		}
		return v >> c & 0xffffffff
	}
}

// bitField is bfe: c bits from bit b, both taken modulo 256.
func bitField(t typ) scalar {
	msb := uint64(t.size()*8 - 1)
	m := t.mask()
	return func(a, b, c uint64) uint64 {
		pos, n := b&0xff, c&0xff
		var sign uint64
		if t.signed() && n > 0 {
			sign = a >> min(pos+n-1, msb) & 1
		}
		var r uint64
		if pos <= msb {
			r = a >> pos
		}
		n = min(n, msb+1)
		have := n
		if pos+n > msb+1 {
			have = msb + 1 - min(pos, msb+1)
		}
		keep := lowMask(have)
		r &= keep
		if sign != 0 {
			r |= ^keep
		}
		return r & m
	}
}

// lowMask has the n low bits set, for n up to 64.
func lowMask(n uint64) uint64 {
	if n >= 64 {
		return ^uint64(0)
	}
	return 1<<n - 1
}

// bitInsert is bfi: imm holds the width in its second byte and the position in its first.
func bitInsert(t typ) scalar {
	w := uint64(t.size() * 8)
	m := t.mask()
	return func(a, b, imm uint64) uint64 {
		pos, n := imm&0xff, imm>>8&0xff
		if pos >= w {
			return b
		}
		field := lowMask(min(n, w-pos)) << pos
		return (b&^field | a<<pos&field) & m
	}
}

// findBit is bfind: the highest bit that differs from the sign, all ones if none.
func findBit(t typ, shiftAmount bool) scalar {
	return func(a, _, _ uint64) uint64 {
		if t.signed() && sext(a, t) < 0 {
			a = ^a & t.mask()
		}
		if a == 0 {
			return 0xffffffff
		}
		n := uint64(bits.Len64(a) - 1)
		if shiftAmount {
			n = uint64(t.size()*8-1) - n
		}
		return n
	}
}

// permute is prmt. Selector nibbles choose a byte of {b:a}; their top bit replicates its sign.
func permute(mode string) scalar {
	return func(a, b, c uint64) uint64 {
		v := a | b<<32
		n := c & 3
		var sel uint64
		switch mode {
		case "f4e":
			sel = (n | (n+1)<<4 | (n+2)<<8 | (n+3)<<12)
		case "b4e":
			sel = (n | (n-1)&7<<4 | (n-2)&7<<8 | (n-3)&7<<12)
		case "rc8":
			sel = n * 0x1111
		case "ecl":
			sel = max(n, 0) | max(n, 1)<<4 | max(n, 2)<<8 | 3<<12
		case "ecr":
			sel = 0 | min(n, 1)<<4 | min(n, 2)<<8 | n<<12
		case "rc16":
			sel = 0x1010
			if n&1 == 1 {
				sel = 0x3232
			}
		default:
			sel = c
		}
		return permuteBytes(v, sel)
	}
}

func permuteBytes(v, sel uint64) uint64 {
	var r uint64
	for i := uint(0); i < 4; i++ {
		s := sel >> (4 * i) & 15
		b := v >> (8 * (s & 7)) & 0xff
		if s&8 != 0 {
			b = uint64(uint8(int8(b) >> 7))
		}
		r |= b << (8 * i)
	}
	return r
}

// logic3 is lop3 with its truth table.
func logic3(table uint64) scalar {
	return func(a, b, c uint64) uint64 {
		var r uint64
		for i := uint64(0); i < 8; i++ {
			if table>>i&1 == 1 {
				x, y, z := ^a, ^b, ^c
				if i&4 != 0 {
					x = a
				}
				if i&2 != 0 {
					y = b
				}
				if i&1 != 0 {
					z = c
				}
				r |= x & y & z
			}
		}
		return r & 0xffffffff
	}
}

// dotProduct is dp4a (four bytes by four) and dp2a (two halves by two bytes of b).
func dotProduct(at, bt typ, four, high bool) scalar {
	byteOf := func(v uint64, i uint, signed bool) int64 {
		v = v >> (8 * i) & 0xff
		if signed {
			return int64(int8(v))
		}
		return int64(v)
	}
	return func(a, b, c uint64) uint64 {
		sum := int64(c)
		if four {
			for i := uint(0); i < 4; i++ {
				sum += byteOf(a, i, at.signed()) * byteOf(b, i, bt.signed())
			}
			return uint64(uint32(sum))
		}
		first := uint(0)
		if high {
			first = 2
		}
		for i := uint(0); i < 2; i++ {
			h := int64(a >> (16 * i) & 0xffff)
			if at.signed() {
				h = int64(int16(h))
			}
			sum += h * byteOf(b, first+i, bt.signed())
		}
		return uint64(uint32(sum))
	}
}

// compareInt and compareFloat return the predicate of one comparison, or nil when t has no such one.
func compareInt(cmp string, t typ) scalar {
	switch cmp {
	case "eq":
		return func(a, b, _ uint64) uint64 { return b2i(a == b) }
	case "ne":
		return func(a, b, _ uint64) uint64 { return b2i(a != b) }
	}
	if t.bits() {
		return nil
	}
	if t.signed() {
		switch cmp {
		case "lt":
			return func(a, b, _ uint64) uint64 { return b2i(sext(a, t) < sext(b, t)) }
		case "le":
			return func(a, b, _ uint64) uint64 { return b2i(sext(a, t) <= sext(b, t)) }
		case "gt":
			return func(a, b, _ uint64) uint64 { return b2i(sext(a, t) > sext(b, t)) }
		case "ge":
			return func(a, b, _ uint64) uint64 { return b2i(sext(a, t) >= sext(b, t)) }
		}
		return nil
	}
	switch cmp {
	case "lt", "lo":
		return func(a, b, _ uint64) uint64 { return b2i(a < b) }
	case "le", "ls":
		return func(a, b, _ uint64) uint64 { return b2i(a <= b) }
	case "gt", "hi":
		return func(a, b, _ uint64) uint64 { return b2i(a > b) }
	case "ge", "hs":
		return func(a, b, _ uint64) uint64 { return b2i(a >= b) }
	}
	return nil
}

func reverseBits(t typ) scalar {
	if t.size() == 8 {
		return func(a, _, _ uint64) uint64 { return bits.Reverse64(a) }
	}
	return func(a, _, _ uint64) uint64 { return uint64(bits.Reverse32(uint32(a))) }
}

func countBits(typ) scalar {
	return func(a, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a)) }
}

func leadingZeros(t typ) scalar {
	unused := uint64(64 - t.size()*8)
	return func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros64(a)) - unused }
}
