package ptx

import (
	"math"
	"slices"
)

// take removes the first of the given modifiers that is present and returns it, else "".
func (b *builder) take(names ...string) string {
	for i, m := range b.mods {
		if slices.Contains(names, m) {
			b.mods = slices.Delete(b.mods, i, i+1)
			return m
		}
	}
	return ""
}

func (b *builder) has(name string) bool { return b.take(name) != "" }

// need insists on one of the modifiers.
func (b *builder) needMod(names ...string) string {
	m := b.take(names...)
	if m == "" {
		b.fail("`%s` needs one of .%v", b.in.name, names)
	}
	return m
}

// typ takes the last modifier, which must be one of the allowed types.
func (b *builder) typ(allowed ...typ) typ {
	n := len(b.mods)
	if n == 0 {
		b.fail("`%s` needs a type", b.in.name)
	}
	t, ok := typesByName[b.mods[n-1]]
	if !ok || !slices.Contains(allowed, t) {
		b.fail("`%s` takes no type `.%s`", b.in.name, b.mods[n-1])
	}
	b.mods = b.mods[:n-1]
	return t
}

// require checks that the module's target and version have a feature, as the driver's compiler will.
func (b *builder) require(sm, version int, what string) {
	if b.file.info.SM < sm {
		b.fail("%s needs .target sm_%d or later, this file has %s", what, sm, b.file.info.Target)
	}
	if b.file.info.Version < version {
		b.fail("%s needs .version %d.%d or later, this file has %d.%d", what, version/10, version%10,
			b.file.info.Version/10, b.file.info.Version%10)
	}
}

func (b *builder) nargs(counts ...int) int {
	n := len(b.in.args)
	if !slices.Contains(counts, n) {
		b.fail("`%s` has %d operands, needs %v", b.in.name, n, counts)
	}
	return n
}

// fits says whether a register of type r may be an operand of type t.
func fits(r, t typ) bool {
	switch {
	case r == t:
		return true
	case r == tPred || t == tPred || r.size() != t.size():
		return false
	case r.bits() || t.bits():
		return true
	}
	return !r.float() && !t.float() && !t.packed() || r.size() == 4 && t.packed() && !r.float()
}

// src returns the register that holds operand i, making constants and special registers into one.
func (b *builder) src(i int, t typ) int32 { return b.read(&b.in.args[i], t, false) }

// srcWide is src for instructions whose register may be wider than the type. It returns its kind too.
func (b *builder) srcWide(o *operand, t typ) (int32, kind) {
	k := t.kind()
	if y, ok := b.register(o); ok && t != tPred && y.typ.size() > t.size() {
		k = y.typ.kind()
	}
	return b.read(o, t, true), k
}

// wider tells whether o is a register wider than t.
func (b *builder) wider(o *operand, t typ) bool {
	y, ok := b.register(o)
	return ok && y.typ.size() > t.size()
}

// register looks o up as a register.
func (b *builder) register(o *operand) (symbol, bool) {
	if o.kind != argName || o.suffix != "" || o.off != 0 {
		return symbol{}, false
	}
	y, ok := b.scope.lookup(o.name)
	return y, ok && y.kind == symReg
}

func (b *builder) read(o *operand, t typ, wide bool) int32 {
	switch o.kind {
	case argInt:
		if t == tF32 || t == tF64 {
			b.fail("integer constant where %v is needed", t)
		}
		if t == tPred {
			return b.value(kPred, b2i(o.val != 0))
		}
		return b.value(t.kind(), o.val&t.mask())
	case argFloat:
		return b.value(t.kind(), b.floatConst(o, t))
	case argName:
		if y, ok := b.register(o); ok {
			if !fits(y.typ, t) && !(wide && y.typ != tPred && y.typ != tB128 && y.typ.size() >= t.size()) {
				b.fail("register `%s` is %v, `%s` needs %v here", o.name, y.typ, b.in.name, t)
			}
			if o.not {
				if t != tPred {
					b.fail("`!%s`: only predicates can be negated", o.name)
				}
				tmp := b.newReg(kPred)
				b.emit(op{code: opNotPred, kd: kPred, d: tmp, ka: kPred, a: y.reg})
				return tmp
			}
			return y.reg
		}
		if y, ok := b.scope.lookup(o.name); ok && y.kind == symVar && o.suffix == "" {
			return b.address(y, o, t)
		}
		if r, ok := b.special(o, t); ok {
			return r
		}
		b.fail("unknown name `%s`", o.name)
	}
	b.fail("operand of `%s` has the wrong shape", b.in.name)
	return noReg
}

// floatConst gives the bits of a floating constant as type t.
func (b *builder) floatConst(o *operand, t typ) uint64 {
	switch {
	case t.kind() == k64 && (t.float() || t.bits()):
		if o.single {
			return math.Float64bits(float64(math.Float32frombits(uint32(o.val))))
		}
		return o.val
	case t == tF32 || t == tB32:
		if o.single {
			return o.val
		}
		return uint64(math.Float32bits(float32(math.Float64frombits(o.val))))
	}
	b.fail("floating-point constant where %v is needed", t)
	return 0
}

// address is the address of a variable, plus the operand's offset, in the variable's own space.
func (b *builder) address(y symbol, o *operand, t typ) int32 {
	if t.float() || t.size() < 4 {
		b.fail("address of `%s` where %v is needed", o.name, t)
	}
	c := constant{val: uint64(y.off + o.off), global: y.global, dyn: y.dynamic}
	switch {
	case y.dynamic:
		b.dyn = true
	case y.formal:
		c.val += localWindow
	case y.space == spParam:
		c.val += paramWindow
	}
	if t.size() == 4 {
		if y.space != spShared && (y.space != spLocal || y.formal) {
			b.fail("address of `%s` needs 64 bits", o.name)
		}
		c.val &= 0xffffffff
	}
	return b.constReg(t.kind(), c)
}

// dst returns the register that operand i writes.
func (b *builder) dst(i int, t typ) int32 { return b.write(&b.in.args[i], t) }

func (b *builder) write(o *operand, t typ) int32 {
	y, ok := b.register(o)
	if !ok || o.not {
		b.fail("destination of `%s` is no register", b.in.name)
	}
	if !fits(y.typ, t) {
		b.fail("register `%s` is %v, `%s` needs %v here", o.name, y.typ, b.in.name, t)
	}
	return y.reg
}

// writeWide is write for instructions whose destination may be wider than the type. It returns the
// register's type.
func (b *builder) writeWide(o *operand, t typ) (int32, typ) {
	y, ok := b.register(o)
	if !ok || o.not {
		b.fail("destination of `%s` is no register", b.in.name)
	}
	if y.typ == tPred || y.typ.size() < t.size() {
		b.fail("register `%s` is %v, too narrow for %v", o.name, y.typ, t)
	}
	if y.typ == tB128 {
		b.fail("register `%s` is %v, `%s` needs %v here", o.name, y.typ, b.in.name, t)
	}
	return y.reg, y.typ
}

// wide returns the register of 128 bits that o names: its low half, which its high half follows.
func (b *builder) wide(o *operand) int32 {
	y, ok := b.register(o)
	if !ok || o.not {
		b.fail("`%s.b128` needs a .b128 register, which `mov.b128 q, {low, high}` makes", b.in.name)
	}
	if y.typ != tB128 {
		b.fail("register `%s` is %v, `%s` needs %v here", o.name, y.typ, b.in.name, tB128)
	}
	return y.reg
}

// pair splits an operand d|p. Without a second part, or when a part is `_`, that operand is nil.
func (b *builder) pair(i int) (first, second *operand) {
	o := &b.in.args[i]
	if o.kind == argPair {
		first, second = &o.sub[0], &o.sub[1]
	} else {
		first = o
	}
	if first.kind == argSink {
		first = nil
	}
	if second != nil && second.kind == argSink {
		second = nil
	}
	return first, second
}

// alu emits an operation with one destination of type dt and sources of type st each.
func (b *builder) alu(code opcode, fn scalar, dt typ, st ...typ) *op {
	b.nargs(len(st) + 1)
	o := op{code: code, fn: fn}
	for i, t := range st {
		r := b.src(i+1, t)
		switch i {
		case 0:
			o.ka, o.a = t.kind(), r
		case 1:
			o.kb, o.b = t.kind(), r
		case 2:
			o.kc, o.c = t.kind(), r
		}
	}
	o.kd, o.d = dt.kind(), b.dst(0, dt)
	return b.emit(o)
}
