package ptx

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
