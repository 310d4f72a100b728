package ptx

import "math"

// alu executes an operation without side effects on one thread's registers. 32-bit registers have their upper half
// zero, predicates are 0 or 1.
func (t *Thread) alu(o *op) {
	r := t.regs
	a, b := r[o.a], r[o.b]
	switch o.code {
	case opMov32, opMov64, opMovPred, opZext:
		r[o.d] = a
	case opAdd32:
		r[o.d] = uint64(uint32(a + b))
	case opAdd64:
		r[o.d] = a + b
	case opSub32:
		r[o.d] = uint64(uint32(a - b))
	case opSub64:
		r[o.d] = a - b
	case opMulLo32:
		r[o.d] = uint64(uint32(a * b))
	case opMulLo64, opMulWideU32:
		r[o.d] = a * b
	case opMulWideS32:
		r[o.d] = uint64(int64(int32(a)) * int64(int32(b)))
	case opMad32:
		r[o.d] = uint64(uint32(a*b + r[o.c]))
	case opAnd32, opAnd64, opAndPred:
		r[o.d] = a & b
	case opOr32, opOr64, opOrPred:
		r[o.d] = a | b
	case opXor32, opXorPred:
		r[o.d] = a ^ b
	case opNot32:
		r[o.d] = uint64(^uint32(a))
	case opNotPred:
		r[o.d] = a ^ 1
	case opShl32:
		r[o.d] = uint64(uint32(a) << uint32(b))
	case opShl64:
		r[o.d] = a << uint32(b)
	case opShrU32, opShrU64:
		r[o.d] = a >> uint32(b)
	case opShrS32:
		r[o.d] = uint64(uint32(int32(a) >> uint32(b)))
	case opSel32, opSel64:
		if r[o.c] == 0 {
			a = b
		}
		r[o.d] = a
	case opSext:
		r[o.d] = uint64(int64(int32(a)))
	case opTrunc:
		r[o.d] = uint64(uint32(a))
	case opLow16:
		r[o.d] = a & 0xffff
	case opPermute:
		r[o.d] = uint64(uint32(permuteBytes(a|b<<32, r[o.c])))
	case opAddF32:
		r[o.d] = f32Bits(asF32(a) + asF32(b))
	case opSubF32:
		r[o.d] = f32Bits(asF32(a) - asF32(b))
	case opMulF32:
		r[o.d] = f32Bits(asF32(a) * asF32(b))
	case opFmaF32:
		r[o.d] = uint64(fma32(uint32(a), uint32(b), uint32(r[o.c])))
	case opHalfF32:
		r[o.d] = uint64(halfToF32(uint32(a)))
	case opBrainF32:
		r[o.d] = uint64(uint32(a) << 16)
	case opF32Half:
		r[o.d] = uint64(halfRound(uint32(a)))
	case opF32Brain:
		r[o.d] = uint64(brainRound(uint32(a)))
	case opF32Halves:
		r[o.d] = uint64(halfRound(uint32(a))<<16 | halfRound(uint32(b)))
	case opF32Brains:
		r[o.d] = uint64(brainRound(uint32(a))<<16 | brainRound(uint32(b)))
	case opCmp32:
		t.compared(o, compareScalar(o.sub, a, b, int64(int32(a)), int64(int32(b))))
	case opCmp64:
		t.compared(o, compareScalar(o.sub, a, b, int64(a), int64(b)))
	case opCmpF32:
		t.compared(o, compareScalarF32(o.sub, asF32(a), asF32(b)))
	case opCompare:
		t.compared(o, o.fn(a, b, 0)&1 == 1)
	case opPack32:
		r[o.d] = uint64(uint32(r[o.v[0]] | r[o.v[1]]<<16))
	case opPack64:
		r[o.d] = r[o.v[0]] | r[o.v[1]]<<32
	case opPack4:
		r[o.d] = r[o.v[0]] | r[o.v[1]]<<16 | r[o.v[2]]<<32 | r[o.v[3]]<<48
	case opUnpack32, opUnpack4:
		t.unpack(o, a, 16)
	case opUnpack64:
		t.unpack(o, a, 32)
	case opSpecial:
		r[o.d] = t.special(o)
	case opCarry:
		v, c := o.carry(a, b, r[o.c], o.ke != kNone && r[o.e] != 0)
		if o.kd == k32 {
			v = uint64(uint32(v))
		}
		r[o.d] = v
		if o.kd2 != kNone {
			r[o.d2] = uint64(bit(c))
		}
	case opScalar, opLogic3:
		v := o.fn(a, b, r[o.c])
		if o.kd == k32 {
			v = uint64(uint32(v))
		}
		r[o.d] = v
	case opNop:
	default:
		panic("ptx: operation without an implementation")
	}
}

func asF32(v uint64) float32 { return math.Float32frombits(uint32(v)) }

// f32Bits gives the bits of a result, with the one NaN of the GPU.
func f32Bits(v float32) uint64 {
	if v != v {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(v))
}

func compareScalar(cmp uint8, a, b uint64, sa, sb int64) bool {
	switch cmp {
	case cmpEq:
		return a == b
	case cmpNe:
		return a != b
	case cmpLtU:
		return a < b
	case cmpLeU:
		return a <= b
	case cmpLtS:
		return sa < sb
	}
	return sa <= sb
}

func compareScalarF32(cmp uint8, a, b float32) bool {
	switch cmp {
	case cmpEqF:
		return a == b
	case cmpLtF:
		return a < b
	case cmpLeF:
		return a <= b
	}
	return a != b
}

// compared writes the result of a comparison, combined with its predicate.
func (t *Thread) compared(o *op, result bool) {
	p := uint64(bit(result))
	q := p ^ 1
	if o.comb != combNone {
		c := t.regs[o.c] ^ uint64(bit(o.bsel))
		switch o.comb {
		case combAnd:
			p, q = p&c, q&c
		case combOr:
			p, q = p|c, q|c
		case combXor:
			p, q = p^c, q^c
		}
	}
	if o.kd != kNone {
		t.regs[o.d] = p
	}
	if o.kd2 != kNone {
		t.regs[o.d2] = q
	}
}

func (t *Thread) unpack(o *op, a uint64, width uint) {
	for i := range int(o.nv) {
		if o.v[i] >= 0 {
			t.regs[o.v[i]] = a >> (uint(i) * width) & (1<<width - 1)
		}
	}
}

// special reads a special register.
func (t *Thread) special(o *op) uint64 {
	l := t.launch
	v, ok := l.uniform(o.sub, site{id: t.block, sm: t.sm, warp: int(t.index / 32), warps: int(l.Block[0]*l.Block[1]*l.Block[2]+31) / 32,
		shared: int(t.shared), steps: t.steps})
	switch {
	case !ok:
		v = uint64(l.varying(o.sub, t.index))
	case o.kd == k64:
	case o.size == 2:
		v &= 0xffff
	default:
		v &= 0xffffffff
	}
	return v
}
