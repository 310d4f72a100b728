package ptx

import "math"

var roundings = map[string]rounding{"rn": roundNearest, "rz": roundZero, "rm": roundDown, "rp": roundUp}

// ftz takes .ftz, which f32 and f16 know.
func (b *builder) ftz(t typ) bool {
	if !b.has("ftz") {
		return false
	}
	if t != tF32 && t != tF16 && t != tF16x2 {
		b.fail("`.ftz` does not go with %v", t)
	}
	return true
}

// round takes the rounding modifier of arithmetic. Directed rounding is for f32.
func (b *builder) round(t typ, must bool) rounding {
	m := b.take("rn", "rz", "rm", "rp")
	if m == "" {
		if must {
			b.fail("`%s%v` needs a rounding mode such as .rn", b.in.name, t)
		}
		return roundNearest
	}
	if m != "rn" && t != tF32 {
		b.fail("`.%s` of %v is not supported, only .rn is", m, t)
	}
	return roundings[m]
}

// halves checks that the target has 16-bit arithmetic of this kind.
func (b *builder) halves(t typ, sm, version int) {
	switch t {
	case tF16, tF16x2:
		b.require(53, 42, b.in.name+t.String())
	case tBF16, tBF16x2:
		b.require(sm, version, b.in.name+t.String())
	}
}

// float emits an operation on t; pairs run their scalar function on each half.
func (b *builder) float(code opcode, t typ, fn scalar, sources int) {
	if t.packed() {
		fn = pairwise(fn)
	}
	st := []typ{t, t, t}
	b.alu(code, fn, t, st[:sources]...)
}

// plain picks the whole-warp f32 code when nothing but rounding to nearest is asked for.
func plain(o floatOp, code opcode) opcode {
	if o.t == tF32 && o.mode == roundNearest && !o.ftz && !o.sat && !o.relu {
		return code
	}
	return opScalar
}

// arith reads the modifiers that add, sub, mul and fma share.
func (b *builder) arith(t typ, mustRound bool) floatOp {
	o := newFloatOp(t)
	o.mode = b.round(t, mustRound)
	o.ftz = b.ftz(t)
	if b.has("sat") {
		if t != tF32 && t != tF16 && t != tF16x2 {
			b.fail("`.sat` does not go with %v", t)
		}
		o.sat = true
	}
	return o
}

func lowerFloatAdd(b *builder, t typ, sub bool) {
	b.halves(t, 90, 78)
	o := b.arith(t, false)
	if sub {
		b.float(plain(o, opSubF32), t, o.sub(), 2)
		return
	}
	b.float(plain(o, opAddF32), t, o.add(), 2)
}

func lowerFloatMul(b *builder, t typ) {
	b.halves(t, 90, 78)
	o := b.arith(t, false)
	b.float(plain(o, opMulF32), t, o.mul(), 2)
}

func lowerFma(b *builder) { lowerFloatFma(b, b.typ(floats...)) }

func lowerFloatFma(b *builder, t typ) {
	b.halves(t, 80, 70)
	o := b.arith(t, true)
	if b.has("relu") {
		if t == tF32 || t == tF64 || o.sat {
			b.fail("`.relu` does not go with this `fma`")
		}
		b.require(80, 70, "fma.relu")
		o.relu = true
	}
	b.float(plain(o, opFmaF32), t, o.fma(), 3)
}

func lowerFloatDiv(b *builder, t typ) {
	o := newFloatOp(t)
	if approx := b.take("approx", "full"); approx != "" {
		if t != tF32 {
			b.fail("`.%s` needs .f32", approx)
		}
	} else {
		o.mode = b.round(t, true)
	}
	o.ftz = b.ftz(t)
	b.float(opScalar, t, o.div(), 2)
}

// lowerRoot is sqrt and rcp, exact in every mode; .approx is rounded to nearest.
func lowerRoot(of func(floatOp) scalar) func(*builder) {
	return func(b *builder) {
		t := b.typ(tF32, tF64)
		o := newFloatOp(t)
		if t == tF64 && b.in.name == "rcp" && b.coarse(func(x float64) float64 { return 1 / x }) {
			return
		}
		if t == tF32 && b.has("approx") {
			o.ftz = b.has("ftz")
		} else {
			o.mode = b.round(t, true)
			o.ftz = b.ftz(t)
		}
		b.float(opScalar, t, of(o), 1)
	}
}

// coarse lowers .approx.ftz.f64 if that is what is asked for.
func (b *builder) coarse(fn func(float64) float64) bool {
	if !b.has("approx") {
		return false
	}
	b.needMod("ftz")
	b.alu(opScalar, coarse(fn), tF64, tF64)
	return true
}

// lowerApprox is an approximate function: as good as float64 arithmetic makes it.
func lowerApprox(fn func(float64) float64, allowed ...typ) func(*builder) {
	return func(b *builder) {
		t := b.typ(allowed...)
		b.needMod("approx")
		o := newFloatOp(t)
		brain := t == tBF16 || t == tBF16x2
		if b.in.name != "tanh" {
			o.ftz = b.has("ftz")
			if brain && !o.ftz {
				b.fail("`ex2%v` needs .ftz", t)
			}
		}
		switch {
		case brain:
			b.require(90, 78, b.in.name+t.String())
		case t != tF32 && t != tF64 || b.in.name == "tanh":
			b.require(75, 70, b.in.name+t.String())
		}
		if t == tF64 && o.ftz {
			b.alu(opScalar, coarse(fn), t, t)
			return
		}
		b.float(opScalar, t, o.unary(fn), 1)
	}
}

func rsqrt(x float64) float64 { return 1 / math.Sqrt(x) }

func lowerFloatSign(b *builder, t typ, of func(floatOp) scalar) {
	b.halves(t, 80, 70)
	o := newFloatOp(t)
	o.ftz = b.ftz(t)
	b.float(opScalar, t, of(o), 1)
}

func lowerFloatMinMax(b *builder, t typ, wantMax bool) {
	o := newFloatOp(t)
	o.ftz = b.ftz(t)
	if t != tF32 && t != tF64 {
		b.require(80, 70, b.in.name+t.String())
	}
	if b.has("NaN") {
		if t == tF64 {
			b.fail("`.NaN` does not go with .f64")
		}
		b.require(80, 70, b.in.name+".NaN")
		o.nan = true
	}
	if b.has("xorsign") {
		b.needMod("abs")
		if t == tF64 {
			b.fail("`.xorsign` does not go with .f64")
		}
		b.require(86, 72, b.in.name+".xorsign.abs")
		o.xorsa = true
	}
	if len(b.in.args) == 4 {
		b.fail("`%s` of three operands is not supported", b.in.name)
	}
	b.float(opScalar, t, o.minMax(wantMax), 2)
}

func lowerTestp(b *builder) {
	t := b.typ(tF32, tF64)
	fn := testProperty(b.needMod("finite", "infinite", "number", "notanumber", "normal", "subnormal"), t)
	b.nargs(2)
	b.emit(op{code: opCompare, fn: fn, kd: kPred, d: b.dst(0, tPred), ka: t.kind(), a: b.src(1, t)})
}

func lowerCopysign(b *builder) {
	t := b.typ(tF32, tF64)
	sign := formatOf(t).sign
	b.alu(opScalar, func(a, v, _ uint64) uint64 { return v&^sign | a&sign }, t, t, t)
}

var cvtTypes = []typ{tU8, tS8, tU16, tS16, tU32, tS32, tU64, tS64, tF16, tBF16, tF32, tF64, tF16x2, tBF16x2}

func lowerCvt(b *builder) {
	c := conversion{from: b.typ(cvtTypes...)}
	c.to = b.typ(cvtTypes...)
	c.sat, c.relu = b.has("sat"), b.has("relu")
	c.ftz = b.has("ftz")
	if c.ftz && c.to != tF32 && c.from != tF32 {
		b.fail("`.ftz` needs .f32 on one side")
	}
	pair := c.to.packed()
	if c.from.packed() || pair && c.from != tF32 {
		b.fail("`cvt%v%v` is not supported", c.to, c.from)
	}
	b.cvtRounding(&c)
	b.cvtTarget(&c)
	if c.sat && (pair || c.to == tBF16 || c.keepsRange()) {
		b.fail("`.sat` does not go with this `cvt`")
	}
	if pair && c.mode != roundNearest && c.mode != roundZero {
		b.fail("`cvt%v` rounds to nearest or to zero only", c.to)
	}
	if c.relu && (c.from != tF32 || c.to.size() == 4 && !pair || c.to.size() == 8 || !c.to.float() || c.sat) {
		b.fail("`.relu` does not go with this `cvt`")
	}
	if pair {
		code := opScalar
		if c.mode == roundNearest && !c.relu && !c.ftz {
			code = opF32Halves
			if c.to == tBF16x2 {
				code = opF32Brains
			}
		}
		b.alu(code, c.packFloats(), c.to, tF32, tF32)
		return
	}
	b.nargs(2)
	a, ka := b.srcWide(&b.in.args[1], c.from)
	d, dt := b.writeWide(&b.in.args[0], c.to)
	if brain := c.to == tBF16 || c.from == tBF16; brain && (ka != c.from.kind() || b.wider(&b.in.args[1], c.from) || dt.size() != c.to.size()) {
		b.fail("`cvt` of .bf16 needs registers of the exact width")
	}
	o := op{code: opScalar, fn: c.scalar(), kd: dt.kind(), d: d, ka: ka, a: a}
	if dt.size() > c.to.size() && c.to.signed() {
		fn, to, m := o.fn, c.to, dt.mask()
		o.fn = func(x, _, _ uint64) uint64 { return uint64(sext(fn(x, 0, 0), to)) & m }
	} else if fast := c.fast(&b.in.args[1], b); fast != opScalar && dt.kind() == c.to.kind() {
		o.code = fast
	}
	b.emit(o)
}

// keepsRange is true of integer conversions that cannot overflow.
func (c *conversion) keepsRange() bool {
	return !c.to.float() && !c.from.float() && intMin(c.from) >= intMin(c.to) && intMax(c.from) <= intMax(c.to)
}

// cvtRounding checks that the rounding modifier is there when needed and only then.
func (b *builder) cvtRounding(c *conversion) {
	irnd := b.take("rni", "rzi", "rmi", "rpi")
	frnd := b.take("rn", "rz", "rm", "rp")
	switch {
	case c.from.float() && (!c.to.float() || c.from == c.to):
		if irnd == "" && !c.to.float() {
			b.fail("float-to-integer `cvt` needs .rni, .rzi, .rmi or .rpi")
		}
		if frnd != "" {
			b.fail("`.%s` does not go with this `cvt`", frnd)
		}
		if irnd != "" {
			c.integral, c.mode = true, roundings["r"+irnd[1:2]]
		}
	case c.to.float() && (!c.from.float() || c.from.size() > c.to.size() || c.to.packed() || c.from.size() == c.to.size()):
		if frnd == "" {
			b.fail("this `cvt` needs a rounding mode such as .rn")
		}
		if irnd != "" {
			b.fail("`.%s` does not go with this `cvt`", irnd)
		}
		c.mode = roundings[frnd]
	case irnd != "" || frnd != "":
		b.fail("`.%s%s` does not go with this `cvt`", irnd, frnd)
	}
}

// cvtTarget checks the conversions that came late.
func (b *builder) cvtTarget(c *conversion) {
	what := "cvt" + c.to.String() + c.from.String()
	switch {
	case c.to.packed() || c.to == tBF16 && c.from == tF32 || c.relu:
		b.require(80, 70, what)
	case c.to == tBF16 || c.from == tBF16:
		b.require(90, 78, what)
	}
	if (c.to == tBF16 || c.to == tBF16x2) && (c.mode == roundDown || c.mode == roundUp) && c.from == tF32 {
		b.fail("`%s` rounds to nearest or to zero only", what)
	}
}

// fast picks a whole-warp conversion.
func (c *conversion) fast(src *operand, b *builder) opcode {
	if c.sat || c.ftz || c.relu || c.integral {
		return opScalar
	}
	y, isReg := b.register(src)
	exact := isReg && y.typ.size() == c.from.size()
	switch {
	case c.to.float() != c.from.float():
	case c.to == tF32 && c.from == tF16 && exact:
		return opHalfF32
	case c.to == tF32 && c.from == tBF16 && exact:
		return opBrainF32
	case c.to == tF16 && c.from == tF32 && c.mode == roundNearest:
		return opF32Half
	case c.to == tBF16 && c.from == tF32 && c.mode == roundNearest:
		return opF32Brain
	case c.to.float():
	case c.to.size() == 8 && c.from == tU32 && exact, c.to.size() == 8 && c.from == tU16 && exact:
		return opZext
	case c.to.size() == 8 && c.from == tS32 && exact:
		return opSext
	case c.to.size() == 4 && c.from.size() == 8:
		return opTrunc
	case c.to.size() == 4 && c.from.size() == 4 && exact, c.to.size() == 4 && c.from == tU16 && exact:
		return opMov32
	case c.to.size() == 2 && c.from.size() == 4 && exact:
		return opLow16
	}
	return opScalar
}
