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

// lowerLogic is and, or, xor.
func lowerLogic(c32, c64, pred opcode, fn scalar) func(*builder) {
	return func(b *builder) {
		t := b.typ(tPred, tB16, tB32, tB64)
		code := pick(t, c32, c64)
		if t == tPred {
			code = pred
		}
		b.alu(code, fn, t, t, t)
	}
}

func lowerNot(b *builder) {
	t := b.typ(tPred, tB16, tB32, tB64)
	code := pick(t, opNot32, opScalar)
	if t == tPred {
		code = opNotPred
	}
	m := t.mask()
	b.alu(code, func(a, _, _ uint64) uint64 { return ^a & m }, t, t)
}

func lowerCnot(b *builder) {
	t := b.typ(bits16...)
	b.alu(opScalar, func(a, _, _ uint64) uint64 { return b2i(a == 0) }, t, t)
}

func lowerShl(b *builder) {
	t := b.typ(bits16...)
	b.alu(pick(t, opShl32, opShl64), intShl(t), t, t, tU32)
}

func lowerShr(b *builder) {
	t := b.typ(append(append([]typ{}, bits16...), ints...)...)
	code := opScalar
	switch {
	case t == tS32:
		code = opShrS32
	case !t.signed():
		code = pick(t, opShrU32, opShrU64)
	}
	b.alu(code, intShr(t), t, t, tU32)
}

func lowerShf(b *builder) {
	t := b.typ(tB32)
	left := b.needMod("l", "r") == "l"
	wrap := b.needMod("clamp", "wrap") == "wrap"
	b.alu(opScalar, funnel(left, wrap), t, t, t, tU32)
}

func lowerBfe(b *builder) {
	t := b.typ(ints32...)
	b.alu(opScalar, bitField(t), t, t, tU32, tU32)
}

// lowerBfi has four sources. Position and width are joined into one first.
func lowerBfi(b *builder) {
	t := b.typ(words...)
	b.nargs(5)
	join := b.newReg(k32)
	b.emit(op{code: opScalar, kd: k32, d: join, ka: k32, a: b.src(3, tU32), kb: k32, b: b.src(4, tU32),
		fn: func(p, n, _ uint64) uint64 { return p&0xff | n&0xff<<8 }})
	k := t.kind()
	b.emit(op{code: opScalar, kd: k, d: b.dst(0, t), ka: k, a: b.src(1, t), kb: k, b: b.src(2, t), kc: k32, c: join, fn: bitInsert(t)})
}

func lowerBmsk(b *builder) {
	t := b.typ(tB32)
	b.require(70, 76, "bmsk")
	wrap := b.needMod("clamp", "wrap") == "wrap"
	b.alu(opScalar, func(pos, n, _ uint64) uint64 {
		if wrap {
			pos, n = pos&31, n&31
		}
		if pos >= 32 {
			return 0
		}
		return lowMask(min(n, 32)) << pos & 0xffffffff
	}, t, tU32, tU32)
}

func lowerBrev(b *builder) { lowerBits(b, reverseBits, false) }
func lowerPopc(b *builder) { lowerBits(b, countBits, true) }
func lowerClz(b *builder)  { lowerBits(b, leadingZeros, true) }

// lowerBits is a unary operation on bits; count results are 32 bits wide whatever the source.
func lowerBits(b *builder, of func(typ) scalar, count bool) {
	t := b.typ(words...)
	d := t
	if count {
		d = tU32
	}
	b.alu(opScalar, of(t), d, t)
}

func lowerBfind(b *builder) {
	t := b.typ(ints32...)
	b.alu(opScalar, findBit(t, b.has("shiftamt")), tU32, t)
}

func lowerPrmt(b *builder) {
	mode := b.take("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
	t := b.typ(tB32)
	code := opScalar
	if mode == "" {
		code = opPermute
	}
	b.alu(code, permute(mode), t, t, t, t)
}

func lowerLop3(b *builder) {
	t := b.typ(tB32)
	b.nargs(5)
	table := b.in.args[4]
	if table.kind != argInt || table.val > 255 {
		b.fail("the last operand of `lop3` is a constant from 0 to 255")
	}
	b.emit(op{code: opLogic3, kd: k32, d: b.dst(0, t), ka: k32, a: b.src(1, t), kb: k32, b: b.src(2, t),
		kc: k32, c: b.src(3, t), imm: table.val, fn: logic3(table.val)})
}

func lowerDp4a(b *builder) { lowerDot(b, true) }
func lowerDp2a(b *builder) { lowerDot(b, false) }

func lowerDot(b *builder, four bool) {
	bt := b.typ(tU32, tS32)
	at := b.typ(tU32, tS32)
	high := !four && b.needMod("lo", "hi") == "hi"
	d := tU32
	if at.signed() || bt.signed() {
		d = tS32
	}
	b.alu(opScalar, dotProduct(at, bt, four, high), d, at, bt, d)
}

func lowerSelp(b *builder) {
	t := b.typ(append([]typ{tB16, tB32, tB64, tF32, tF64}, ints...)...)
	b.alu(pick(t, opSel32, opSel64), func(x, y, p uint64) uint64 {
		if p != 0 {
			return x
		}
		return y
	}, t, t, t, tPred)
	if o := &b.ops[len(b.ops)-1]; o.code == opScalar {
		o.code = opSel32 // 16 bits live in 32-bit vectors
	}
}

func lowerSlct(b *builder) {
	ct := b.typ(tS32, tF32)
	ftz := ct == tF32 && b.has("ftz")
	t := b.typ(append([]typ{tB16, tB32, tB64, tF32, tF64}, ints...)...)
	b.alu(opScalar, func(x, y, c uint64) uint64 {
		if ct == tF32 {
			if ftz {
				c = fmtF32.flush(c)
			}
			if c == 0x80000000 || !fmtF32.isNaN(c) && c>>31 == 0 {
				return x
			}
			return y
		}
		if int32(c) >= 0 {
			return x
		}
		return y
	}, t, t, t, ct)
}

var comparisons = []string{"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs",
	"equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}

// comparison reads the operator and the optional combination of setp and set.
func (b *builder) comparison(t typ) (fn scalar, cmp string, comb uint8, ftz bool) {
	cmp = b.needMod(comparisons...)
	if t.float() {
		ftz = b.ftz(t)
		fn = compareFloat(cmp, t, ftz)
	} else {
		fn = compareInt(cmp, t)
	}
	if fn == nil {
		b.fail("`.%s` does not compare %v", cmp, t)
	}
	switch b.take("and", "or", "xor") {
	case "and":
		comb = combAnd
	case "or":
		comb = combOr
	case "xor":
		comb = combXor
	}
	return fn, cmp, comb, ftz
}

var comparable = append([]typ{tB16, tB32, tB64}, numbers...)

func lowerSetp(b *builder) {
	t := b.typ(comparable...)
	if t.packed() {
		b.fail("`setp` of pairs is not supported")
	}
	fn, cmp, comb, ftz := b.comparison(t)
	o := op{code: opCompare, fn: fn, ka: t.kind(), kb: t.kind(), comb: comb}
	if comb == combNone {
		b.nargs(3)
	} else {
		b.nargs(4)
		b.comparand(&o, 3)
	}
	o.a, o.b = b.src(1, t), b.src(2, t)
	if !ftz {
		fastCompare(&o, cmp, t)
	}
	p, q := b.pair(0)
	if p != nil {
		o.kd, o.d = kPred, b.write(p, tPred)
	}
	if q != nil {
		o.kd2, o.d2 = kPred, b.write(q, tPred)
	}
	b.emit(o)
}

// comparand reads the predicate that a comparison is combined with.
func (b *builder) comparand(o *op, i int) {
	arg := b.in.args[i]
	o.bsel = arg.not
	arg.not = false
	o.kc, o.c = kPred, b.read(&arg, tPred, false)
}

// fastCompare picks a whole-warp comparison where there is one.
func fastCompare(o *op, cmp string, t typ) {
	if t.size() < 4 || t == tF64 || t.packed() {
		return
	}
	swap := cmp == "gt" || cmp == "ge" || cmp == "hi" || cmp == "hs"
	var sub uint8
	switch cmp {
	case "eq":
		sub = cmpEq
	case "ne":
		sub = cmpNe
	case "lt", "lo", "gt", "hi":
		sub = cmpLtU
	case "le", "ls", "ge", "hs":
		sub = cmpLeU
	case "neu":
		sub = cmpNeuF
	default:
		return
	}
	if t == tF32 {
		switch sub {
		case cmpEq:
			sub = cmpEqF
		case cmpLtU:
			sub = cmpLtF
		case cmpLeU:
			sub = cmpLeF
		case cmpNeuF:
		default:
			return
		}
		o.code = opCmpF32
	} else {
		if t.signed() && sub >= cmpLtU {
			sub += cmpLtS - cmpLtU
		}
		o.code = opCmp32
		if t.size() == 8 {
			o.code = opCmp64
		}
	}
	o.sub = sub
	if swap {
		o.a, o.b = o.b, o.a
	}
}

func lowerSet(b *builder) {
	t := b.typ(comparable...)
	d := b.typ(tU32, tS32, tF32)
	fn, _, comb, _ := b.comparison(t)
	if t.packed() {
		b.fail("`set` of pairs is not supported")
	}
	o := op{code: opCompare, fn: fn, ka: t.kind(), kb: t.kind(), comb: comb, kd: kPred, d: b.newReg(kPred)}
	if comb == combNone {
		b.nargs(3)
	} else {
		b.nargs(4)
		b.comparand(&o, 3)
	}
	o.a, o.b = b.src(1, t), b.src(2, t)
	b.emit(o)
	yes := uint64(0xffffffff)
	if d == tF32 {
		yes = 0x3f800000
	}
	b.emit(op{code: opSel32, kd: k32, d: b.dst(0, d), ka: k32, a: b.value(k32, yes), kb: k32, b: b.value(k32, 0), kc: kPred, c: o.d})
}
