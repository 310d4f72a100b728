package ptx

var (
	ints    = []typ{tU16, tS16, tU32, tS32, tU64, tS64}
	ints32  = []typ{tU32, tS32, tU64, tS64}
	words   = []typ{tB32, tB64}
	bits16  = []typ{tB16, tB32, tB64}
	floats  = []typ{tF16, tF16x2, tBF16, tBF16x2, tF32, tF64}
	numbers = append(append([]typ{}, ints...), floats...)
)

// pick chooses the operation by width: 32 bits, 64 bits, or the general one.
func pick(t typ, c32, c64 opcode) opcode {
	switch {
	case t.size() == 4 && !t.packed():
		return c32
	case t.size() == 8:
		return c64
	}
	return opScalar
}

func lowerAdd(b *builder) { lowerAddSub(b, false) }
func lowerSub(b *builder) { lowerAddSub(b, true) }

func lowerAddSub(b *builder, sub bool) {
	t := b.typ(append([]typ{tU16x2, tS16x2}, numbers...)...)
	if t.float() {
		lowerFloatAdd(b, t, sub)
		return
	}
	if b.has("cc") {
		lowerCarry(b, t, sub, false, true)
		return
	}
	if b.has("sat") {
		if t != tS32 {
			b.fail("`.sat` needs .s32")
		}
		fn := func(x, y, _ uint64) uint64 { return clamp32(sext(x, t) + sext(y, t)) }
		if sub {
			fn = func(x, y, _ uint64) uint64 { return clamp32(sext(x, t) - sext(y, t)) }
		}
		b.alu(opScalar, fn, t, t, t)
		return
	}
	if t == tU16x2 || t == tS16x2 {
		if sub {
			b.fail("`sub` takes no type `%v`", t)
		}
		b.require(90, 80, "add of 16-bit pairs")
		b.alu(opScalar, pairwise(intAdd(tU16)), t, t, t)
		return
	}
	if sub {
		b.alu(pick(t, opSub32, opSub64), intSub(t), t, t, t)
	} else {
		b.alu(pick(t, opAdd32, opAdd64), intAdd(t), t, t, t)
	}
}

func lowerAddc(b *builder) { lowerCarry(b, b.typ(ints32...), false, true, b.has("cc")) }
func lowerSubc(b *builder) { lowerCarry(b, b.typ(ints32...), true, true, b.has("cc")) }

// lowerCarry is add and sub with carry in or out. The carry flag is a predicate of its own.
func lowerCarry(b *builder, t typ, sub, in, out bool) {
	if t.size() < 4 || t.packed() {
		b.fail("carry needs 32 or 64 bits")
	}
	m := t.mask()
	fn := func(x, y, _ uint64, c bool) (uint64, bool) {
		if sub {
			y = ^y & m
			c = !c
		}
		lo := (x + y + b2i(c)) & m
		carry := lo < x || c && lo == x
		return lo, carry != sub
	}
	b.nargs(3)
	o := op{code: opCarry, carry: fn, ka: t.kind(), a: b.src(1, t), kb: t.kind(), b: b.src(2, t)}
	b.carryEnds(&o, in, out)
	o.kd, o.d = t.kind(), b.dst(0, t)
	b.emit(o)
}

func (b *builder) carryEnds(o *op, in, out bool) {
	if in {
		o.ke, o.e = kPred, b.carry
	}
	if out {
		o.kd2, o.d2 = kPred, b.carry
	}
}

func lowerMul(b *builder) {
	t := b.typ(numbers...)
	if t.float() {
		lowerFloatMul(b, t)
		return
	}
	part := b.needMod("lo", "hi", "wide")
	p := product(part, t)
	if part == "wide" {
		d := widened(b, t)
		code := opScalar
		switch t {
		case tU32:
			code = opMulWideU32
		case tS32:
			code = opMulWideS32
		}
		m := d.mask()
		b.alu(code, func(x, y, _ uint64) uint64 { return p(x, y) & m }, d, t, t)
		return
	}
	code := opScalar
	if part == "lo" {
		code = pick(t, opMulLo32, opMulLo64)
	}
	m := t.mask()
	b.alu(code, func(x, y, _ uint64) uint64 { return p(x, y) & m }, t, t, t)
}

// widened is the type of twice the width.
func widened(b *builder, t typ) typ {
	switch t {
	case tU16:
		return tU32
	case tS16:
		return tS32
	case tU32:
		return tU64
	case tS32:
		return tS64
	}
	b.fail("`.wide` takes no %v", t)
	return tNone
}

func lowerMad(b *builder) {
	t := b.typ(append([]typ{tF32, tF64}, ints...)...)
	if t.float() {
		lowerFloatFma(b, t)
		return
	}
	part := b.needMod("lo", "hi", "wide")
	if b.has("cc") {
		lowerMadCarry(b, t, part, false, true)
		return
	}
	p := product(part, t)
	d := t
	code := opScalar
	if part == "wide" {
		d = widened(b, t)
	} else if part == "lo" && t.size() == 4 {
		code = opMad32
	}
	m := d.mask()
	fn := func(x, y, z uint64) uint64 { return (p(x, y) + z) & m }
	if b.has("sat") {
		if part != "hi" || t != tS32 {
			b.fail("`.sat` needs .hi and .s32")
		}
		fn = func(x, y, z uint64) uint64 { return clamp32(sext(p(x, y), t) + sext(z, t)) }
	}
	b.alu(code, fn, d, t, t, d)
}

func lowerMadc(b *builder) {
	t := b.typ(ints32...)
	part := b.needMod("lo", "hi")
	lowerMadCarry(b, t, part, true, b.has("cc"))
}

func lowerMadCarry(b *builder, t typ, part string, in, out bool) {
	if part == "wide" || t.size() < 4 {
		b.fail("carry needs .lo or .hi of 32 or 64 bits")
	}
	p := product(part, t)
	m := t.mask()
	b.nargs(4)
	fn := func(x, y, z uint64, c bool) (uint64, bool) {
		v := p(x, y) & m
		lo := (v + z + b2i(c)) & m
		return lo, lo < v || c && lo == v
	}
	o := op{code: opCarry, carry: fn, ka: t.kind(), a: b.src(1, t), kb: t.kind(), b: b.src(2, t), kc: t.kind(), c: b.src(3, t)}
	b.carryEnds(&o, in, out)
	o.kd, o.d = t.kind(), b.dst(0, t)
	b.emit(o)
}

func lowerMul24(b *builder) {
	t := b.typ(tU32, tS32)
	p := product24(b.needMod("lo", "hi"), t)
	b.alu(opScalar, func(x, y, _ uint64) uint64 { return p(x, y) & t.mask() }, t, t, t)
}

func lowerMad24(b *builder) {
	t := b.typ(tU32, tS32)
	p := product24(b.needMod("lo", "hi"), t)
	b.alu(opScalar, func(x, y, z uint64) uint64 { return (p(x, y) + z) & t.mask() }, t, t, t, t)
}

func lowerDiv(b *builder) {
	t := b.typ(append([]typ{tF32, tF64}, ints...)...)
	if t.float() {
		lowerFloatDiv(b, t)
		return
	}
	b.alu(opScalar, intDiv(t), t, t, t)
}

func lowerRem(b *builder) {
	t := b.typ(ints...)
	b.alu(opScalar, intRem(t), t, t, t)
}

func lowerAbs(b *builder) {
	t := b.typ(append([]typ{tS16, tS32, tS64}, floats...)...)
	if t.float() {
		lowerFloatSign(b, t, floatOp.abs)
		return
	}
	b.alu(opScalar, intAbs(t), t, t)
}

func lowerNeg(b *builder) {
	t := b.typ(append([]typ{tS16, tS32, tS64}, floats...)...)
	if t.float() {
		lowerFloatSign(b, t, floatOp.neg)
		return
	}
	b.alu(opScalar, intNeg(t), t, t)
}

func lowerMin(b *builder) { lowerMinMax(b, false) }
func lowerMax(b *builder) { lowerMinMax(b, true) }

func lowerMinMax(b *builder, wantMax bool) {
	t := b.typ(append([]typ{tU16x2, tS16x2}, numbers...)...)
	switch {
	case t.float():
		lowerFloatMinMax(b, t, wantMax)
	case t == tU16x2 || t == tS16x2:
		b.require(90, 80, "min and max of 16-bit pairs")
		half := tU16
		if t == tS16x2 {
			half = tS16
		}
		b.alu(opScalar, pairwise(intMinMax(half, wantMax)), t, t, t)
	default:
		b.alu(opScalar, intMinMax(t, wantMax), t, t, t)
	}
}

func lowerSad(b *builder) {
	t := b.typ(ints...)
	b.alu(opScalar, intSad(t), t, t, t, t)
}
