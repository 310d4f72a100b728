package ptx

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
