package ptx

import (
	"math"
	"math/bits"
)

const fullMask = ^uint32(0)

// alu executes an operation without side effects for the lanes of mask. The common ones compute all lanes,
// into the destination when every lane is wanted, else aside, and then the wanted lanes are copied.
func (w *warp) alu(o *op, mask uint32) {
	d32, d64 := &w.r32[0], &w.r64[0]
	whole := mask|w.ghost == fullMask
	switch {
	case !whole:
		d32, d64 = &w.t32, &w.t64
	case o.kd == k32:
		d32 = &w.r32[o.d]
	case o.kd == k64:
		d64 = &w.r64[o.d]
	}
	switch o.code {
	case opMov32:
		*d32 = w.r32[o.a]
	case opMov64:
		*d64 = w.r64[o.a]
	case opAdd32:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d32 {
			d32[i] = a[i] + b[i]
		}
	case opAdd64:
		a, b := &w.r64[o.a], &w.r64[o.b]
		for i := range d64 {
			d64[i] = a[i] + b[i]
		}
	case opSub32:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d32 {
			d32[i] = a[i] - b[i]
		}
	case opSub64:
		a, b := &w.r64[o.a], &w.r64[o.b]
		for i := range d64 {
			d64[i] = a[i] - b[i]
		}
	case opMulLo32:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d32 {
			d32[i] = a[i] * b[i]
		}
	case opMulLo64:
		a, b := &w.r64[o.a], &w.r64[o.b]
		for i := range d64 {
			d64[i] = a[i] * b[i]
		}
	case opMulWideU32:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d64 {
			d64[i] = uint64(a[i]) * uint64(b[i])
		}
	case opMulWideS32:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d64 {
			d64[i] = uint64(int64(int32(a[i])) * int64(int32(b[i])))
		}
	case opMad32:
		a, b, c := &w.r32[o.a], &w.r32[o.b], &w.r32[o.c]
		for i := range d32 {
			d32[i] = a[i]*b[i] + c[i]
		}
	case opAnd32:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d32 {
			d32[i] = a[i] & b[i]
		}
	case opOr32:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d32 {
			d32[i] = a[i] | b[i]
		}
	case opXor32:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d32 {
			d32[i] = a[i] ^ b[i]
		}
	case opAnd64:
		a, b := &w.r64[o.a], &w.r64[o.b]
		for i := range d64 {
			d64[i] = a[i] & b[i]
		}
	case opOr64:
		a, b := &w.r64[o.a], &w.r64[o.b]
		for i := range d64 {
			d64[i] = a[i] | b[i]
		}
	case opNot32:
		a := &w.r32[o.a]
		for i := range d32 {
			d32[i] = ^a[i]
		}
	case opShl32:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d32 {
			d32[i] = a[i] << b[i]
		}
	case opShl64:
		a, b := &w.r64[o.a], &w.r32[o.b]
		for i := range d64 {
			d64[i] = a[i] << b[i]
		}
	case opShrU32:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d32 {
			d32[i] = a[i] >> b[i]
		}
	case opShrS32:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d32 {
			d32[i] = uint32(int32(a[i]) >> b[i])
		}
	case opShrU64:
		a, b := &w.r64[o.a], &w.r32[o.b]
		for i := range d64 {
			d64[i] = a[i] >> b[i]
		}
	case opSel32:
		a, b, p := &w.r32[o.a], &w.r32[o.b], w.pr[o.c]
		for i := range d32 {
			m := -(p >> i & 1)
			d32[i] = b[i] ^ (a[i]^b[i])&m
		}
	case opSel64:
		a, b, p := &w.r64[o.a], &w.r64[o.b], uint64(w.pr[o.c])
		for i := range d64 {
			m := -(p >> i & 1)
			d64[i] = b[i] ^ (a[i]^b[i])&m
		}
	case opZext:
		a := &w.r32[o.a]
		for i := range d64 {
			d64[i] = uint64(a[i])
		}
	case opSext:
		a := &w.r32[o.a]
		for i := range d64 {
			d64[i] = uint64(int64(int32(a[i])))
		}
	case opTrunc:
		a := &w.r64[o.a]
		for i := range d32 {
			d32[i] = uint32(a[i])
		}
	case opLow16:
		a := &w.r32[o.a]
		for i := range d32 {
			d32[i] = a[i] & 0xffff
		}
	case opPermute:
		w.permute(o, d32)
	case opLogic3:
		w.logic3(o, d32)
	case opAddF32, opSubF32, opMulF32, opFmaF32:
		w.arith32(o, d32)
	case opHalfF32:
		a := &w.r32[o.a]
		for i := range d32 {
			d32[i] = halfToF32(a[i])
		}
	case opBrainF32:
		a := &w.r32[o.a]
		for i := range d32 {
			d32[i] = a[i] << 16
		}
	case opF32Half:
		a := &w.r32[o.a]
		for i := range d32 {
			d32[i] = halfRound(a[i])
		}
	case opF32Brain:
		a := &w.r32[o.a]
		for i := range d32 {
			d32[i] = brainRound(a[i])
		}
	case opF32Halves:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d32 {
			d32[i] = halfRound(a[i])<<16 | halfRound(b[i])
		}
	case opF32Brains:
		a, b := &w.r32[o.a], &w.r32[o.b]
		for i := range d32 {
			d32[i] = brainRound(a[i])<<16 | brainRound(b[i])
		}
	case opCmp32, opCmp64, opCmpF32, opCompare:
		w.compare(o, mask)
		return
	case opPack32:
		a, b := &w.r32[o.v[0]], &w.r32[o.v[1]]
		for i := range d32 {
			d32[i] = a[i] | b[i]<<16
		}
	case opPack64:
		a, b := &w.r32[o.v[0]], &w.r32[o.v[1]]
		for i := range d64 {
			d64[i] = uint64(a[i]) | uint64(b[i])<<32
		}
	case opPack4:
		v0, v1, v2, v3 := &w.r32[o.v[0]], &w.r32[o.v[1]], &w.r32[o.v[2]], &w.r32[o.v[3]]
		for i := range d64 {
			d64[i] = uint64(v0[i]|v1[i]<<16) | uint64(v2[i]|v3[i]<<16)<<32
		}
	case opUnpack32, opUnpack64, opUnpack4:
		w.unpack(o, mask)
		return
	case opMovPred:
		w.setPred(o.d, mask, w.pr[o.a])
		return
	case opNotPred:
		w.setPred(o.d, mask, ^w.pr[o.a])
		return
	case opAndPred:
		w.setPred(o.d, mask, w.pr[o.a]&w.pr[o.b])
		return
	case opOrPred:
		w.setPred(o.d, mask, w.pr[o.a]|w.pr[o.b])
		return
	case opXorPred:
		w.setPred(o.d, mask, w.pr[o.a]^w.pr[o.b])
		return
	case opSpecial:
		w.special(o, mask)
		return
	case opActive:
		w.fill32(o.d, mask, w.frags[w.cur].mask)
		return
	case opCarry:
		w.carry(o, mask)
		return
	case opScalar:
		w.scalar(o, mask)
		return
	case opNop:
		return
	default:
		panic("ptx: operation without an implementation")
	}
	if whole {
		return
	}
	if o.kd == k32 {
		d := &w.r32[o.d]
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) & 31
			d[i] = w.t32[i]
		}
		return
	}
	d := &w.r64[o.d]
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		d[i] = w.t64[i]
	}
}

// arith32 is f32 arithmetic to nearest: what the host computes, but for the one NaN of the GPU.
func (w *warp) arith32(o *op, d *[32]uint32) {
	const nan = 0x7fffffff
	a, b := &w.r32[o.a], &w.r32[o.b]
	switch o.code {
	case opAddF32:
		for i := range d {
			r := math.Float32frombits(a[i]) + math.Float32frombits(b[i])
			v := math.Float32bits(r)
			if r != r {
				v = nan
			}
			d[i] = v
		}
	case opSubF32:
		for i := range d {
			r := math.Float32frombits(a[i]) - math.Float32frombits(b[i])
			v := math.Float32bits(r)
			if r != r {
				v = nan
			}
			d[i] = v
		}
	case opMulF32:
		for i := range d {
			r := math.Float32frombits(a[i]) * math.Float32frombits(b[i])
			v := math.Float32bits(r)
			if r != r {
				v = nan
			}
			d[i] = v
		}
	case opFmaF32:
		c := &w.r32[o.c]
		for i := range d {
			d[i] = fma32(a[i], b[i], c[i])
		}
	}
}

// permute is prmt without a mode; one selector for all lanes is the usual case.
func (w *warp) permute(o *op, d *[32]uint32) {
	a, b, c := &w.r32[o.a], &w.r32[o.b], &w.r32[o.c]
	sel := c[0]
	uniform := o.c >= w.b.k.n[k32] // a constant
	switch {
	case uniform && sel == 0x5410:
		for i := range d {
			d[i] = a[i]&0xffff | b[i]<<16
		}
	case uniform && sel == 0x7632:
		for i := range d {
			d[i] = a[i]>>16 | b[i]&0xffff0000
		}
	default:
		for i := range d {
			d[i] = uint32(permuteBytes(uint64(a[i])|uint64(b[i])<<32, uint64(c[i])))
		}
	}
}

func (w *warp) logic3(o *op, d *[32]uint32) {
	a, b, c := &w.r32[o.a], &w.r32[o.b], &w.r32[o.c]
	var t [8]uint32 // each minterm, all ones or none
	for i := range t {
		t[i] = -(uint32(o.imm) >> i & 1)
	}
	for i := range d {
		x, y, z := a[i], b[i], c[i]
		hi := x & (y&(z&t[7]|^z&t[6]) | ^y&(z&t[5]|^z&t[4]))
		lo := ^x & (y&(z&t[3]|^z&t[2]) | ^y&(z&t[1]|^z&t[0]))
		d[i] = hi | lo
	}
}

// unpack splits a register. Whole warps of the usual shapes have loops of their own.
func (w *warp) unpack(o *op, mask uint32) {
	whole := mask|w.ghost == fullMask && o.v[0] >= 0 && o.v[1] >= 0
	switch {
	case whole && o.code == opUnpack32:
		a, d0, d1 := &w.r32[o.a], &w.r32[o.v[0]], &w.r32[o.v[1]]
		for i := range a {
			v := a[i]
			d0[i], d1[i] = v&0xffff, v>>16
		}
		return
	case whole && o.code == opUnpack64:
		a, d0, d1 := &w.r64[o.a], &w.r32[o.v[0]], &w.r32[o.v[1]]
		for i := range a {
			v := a[i]
			d0[i], d1[i] = uint32(v), uint32(v>>32)
		}
		return
	}
	w.operand(0, o.ka, o.a)
	width := uint(16)
	if o.code == opUnpack64 {
		width = 32
	}
	for k := range int(o.nv) {
		if o.v[k] < 0 {
			continue
		}
		d, shift := &w.r32[o.v[k]], uint(k)*width
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) & 31
			d[i] = uint32(w.x[0][i]>>shift) & (1<<width - 1)
		}
	}
}

// operand widens a source into w.x[n].
func (w *warp) operand(n int, k kind, r int32) {
	x := &w.x[n]
	switch k {
	case k32:
		a := &w.r32[r]
		for i := range x {
			x[i] = uint64(a[i])
		}
	case k64:
		*x = w.r64[r]
	case kPred:
		p := w.pr[r]
		for i := range x {
			x[i] = uint64(p >> i & 1)
		}
	}
}

// scalar runs the operation's function lane by lane.
func (w *warp) scalar(o *op, mask uint32) {
	w.operand(0, o.ka, o.a)
	w.operand(1, o.kb, o.b)
	w.operand(2, o.kc, o.c)
	fn := o.fn
	switch o.kd {
	case k32:
		d := &w.r32[o.d]
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) & 31
			d[i] = uint32(fn(w.x[0][i], w.x[1][i], w.x[2][i]))
		}
	case k64:
		d := &w.r64[o.d]
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m) & 31
			d[i] = fn(w.x[0][i], w.x[1][i], w.x[2][i])
		}
	}
}

func (w *warp) carry(o *op, mask uint32) {
	w.operand(0, o.ka, o.a)
	w.operand(1, o.kb, o.b)
	w.operand(2, o.kc, o.c)
	var in, out uint32
	if o.ke != kNone {
		in = w.pr[o.e]
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		v, c := o.carry(w.x[0][i], w.x[1][i], w.x[2][i], in>>i&1 == 1)
		if o.kd == k64 {
			w.r64[o.d][i] = v
		} else {
			w.r32[o.d][i] = uint32(v)
		}
		out |= bit(c) << i
	}
	if o.kd2 != kNone {
		w.setPred(o.d2, mask, out)
	}
}
