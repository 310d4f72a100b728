package ptx

import "strings"

var memTypes = []typ{tB8, tU8, tS8, tB16, tU16, tS16, tB32, tU32, tS32, tB64, tU64, tS64, tF32, tF64, tB128}

var scopes = map[string]uint8{"cta": scopeCTA, "cluster": scopeCluster, "gpu": scopeGPU, "sys": scopeSys}

var strengths = map[string]uint8{
	"weak": semWeak, "volatile": semVolatile, "relaxed": semRelaxed,
	"acquire": semAcquire, "release": semRelease, "acq_rel": semAcqRel,
}

// order reads the strength and scope of an access.
func (b *builder) order(o *op, allowed ...string) {
	sem := b.take(allowed...)
	o.sem = strengths[sem]
	if o.sem <= semVolatile {
		return
	}
	b.require(70, 60, "."+sem)
	o.scope = b.scopeMod()
	if o.scope == scopeNone {
		b.fail("`.%s` needs a scope: .cta, .cluster, .gpu or .sys", sem)
	}
}

func (b *builder) scopeMod() uint8 {
	s := b.take("cta", "cluster", "gpu", "sys")
	if s == "cluster" {
		b.require(90, 78, ".cluster")
	}
	return scopes[s]
}

// stateSpace reads the state space, generic when there is none.
func (b *builder) stateSpace(allowed ...space) space {
	names := map[string]space{}
	for _, s := range allowed {
		names[s.String()] = s
	}
	for _, alias := range []string{"shared::cta", "param::entry", "param::func"} {
		base, _, _ := strings.Cut(alias, "::")
		if s, ok := names[base]; ok {
			names[alias] = s
		}
	}
	for i, m := range b.mods {
		if s, ok := names[m]; ok {
			b.mods = append(b.mods[:i:i], b.mods[i+1:]...)
			return s
		}
	}
	return spGeneric
}

// noPolicy refuses cache policies, which come from createpolicy.
func (b *builder) noPolicy() {
	if b.has("L2::cache_hint") {
		b.fail("cache policies are not supported")
	}
}

// hints takes the cache hints of loads and stores, which change nothing that a program can observe.
func (b *builder) hints(load bool, ops ...string) {
	b.noPolicy()
	b.take(ops...)
	if m := b.take("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"); m != "" {
		b.require(70, 74, "."+m)
	}
	if !load {
		return
	}
	if m := b.take("L2::64B", "L2::128B", "L2::256B"); m != "" {
		b.require(75, 74, "."+m)
	}
}

// place resolves the address operand into o.
func (b *builder) place(o *op, arg *operand) {
	if arg.kind != argAddr {
		b.fail("`%s` needs an address in brackets", b.in.name)
	}
	base := &arg.sub[0]
	o.imm = uint64(arg.off)
	if base.kind == argInt {
		if o.space != spLocal {
			b.fail("constant addresses are for .local only")
		}
		o.imm = base.val
		return
	}
	if y, ok := b.register(base); ok {
		if k := y.typ; k == tPred || k.size() < 4 || k.size() > 8 || k.float() {
			b.fail("register `%s` is %v, an address needs 32 or 64 bits", base.name, y.typ)
		}
		if y.typ.size() == 4 && o.space != spShared && o.space != spLocal {
			b.fail("register `%s` is %v, an address in .%v needs 64 bits", base.name, y.typ, o.space)
		}
		o.ka, o.a = y.typ.kind(), y.reg
		if o.space == spParam {
			o.space = spGeneric // addresses of parameters are generic here
		}
		return
	}
	y, ok := b.scope.lookup(base.name)
	if !ok || y.kind != symVar || base.suffix != "" {
		b.fail("unknown name `%s`", base.name)
	}
	want := y.space
	if y.formal {
		want = spParam
	}
	if o.space != spGeneric && o.space != want {
		b.fail("`%s` is in .%v, not .%v", base.name, want, o.space)
	}
	o.space = y.space
	switch {
	case y.global >= 0 || y.dynamic:
		b.dyn = b.dyn || y.dynamic
		o.ka, o.a = k64, b.constReg(k64, constant{val: uint64(y.off), global: y.global, dyn: y.dynamic})
	default:
		o.imm += uint64(y.off)
	}
}

// elements reads the register operand of a load or store: one register, or a vector of o.nv.
func (b *builder) elements(o *op, arg *operand, t typ, load bool) typ {
	if o.whole {
		r := b.wide(arg)
		o.kv, o.vdef, o.v[0], o.v[1] = k64, load, r, r+1
		return tB64
	}
	list := []operand{*arg}
	if o.nv > 1 {
		if arg.kind != argVec || len(arg.sub) != int(o.nv) {
			b.fail("`.v%d` needs %d registers in braces", o.nv, o.nv)
		}
		list = arg.sub
	} else if arg.kind == argVec {
		b.fail("`%s` of several registers needs .v2 or .v4", b.in.name)
	}
	var rt typ
	for i := range list {
		var r int32
		k := kNone
		if load {
			if list[i].kind == argSink && o.nv > 1 {
				o.v[i] = noReg
				continue
			}
			var w typ
			r, w = b.writeWide(&list[i], t)
			if k = w.kind(); rt == tNone || rt.size() < w.size() {
				rt = w
			}
		} else {
			r, k = b.srcWide(&list[i], t)
		}
		if o.kv != kNone && o.kv != k {
			b.fail("registers of one vector differ in width")
		}
		o.kv, o.v[i] = k, r
	}
	o.vdef = load
	return rt
}

func (b *builder) vector(o *op, t typ) {
	o.nv = 1
	switch b.take("v2", "v4") {
	case "v2":
		o.nv = 2
	case "v4":
		o.nv = 4
	}
	o.size = uint8(t.size())
	if int(o.nv)*t.size() > 16 {
		b.fail("vectors of more than 16 bytes are not supported")
	}
	if t != tB128 {
		return
	}
	o.whole, o.nv, o.size = true, 2, 8
	if o.scope == scopeSys {
		b.require(70, 84, ".b128 with .sys")
	}
}

func lowerLd(b *builder) {
	t := b.typ(memTypes...)
	o := op{code: opLoad}
	b.order(&o, "weak", "volatile", "relaxed", "acquire")
	o.space = b.stateSpace(spGlobal, spShared, spLocal, spConst, spParam)
	if o.nc = b.has("nc"); o.nc && (o.space != spGlobal || o.sem != semWeak) {
		b.fail("`.nc` needs a weak .global load")
	}
	if o.sem != semWeak && (o.space == spParam || o.space == spConst || o.space == spLocal && o.sem != semVolatile) {
		b.fail("`.%v` loads are always weak", o.space)
	}
	b.hints(true, "ca", "cg", "cs", "lu", "cv")
	b.load(&o, t)
}

// lowerLdu is a load that promises uniformity, from memory that nobody writes meanwhile.
func lowerLdu(b *builder) {
	t := b.typ(memTypes...)
	o := op{code: opLoad, nc: true}
	o.space = b.stateSpace(spGlobal)
	b.load(&o, t)
}

func (b *builder) load(o *op, t typ) {
	b.vector(o, t)
	b.nargs(2)
	param := o.space == spParam
	b.place(o, &b.in.args[1])
	rt := b.elements(o, &b.in.args[0], t, true)
	o.sx = t.signed() && rt.size() > t.size()
	o.sub = uint8(rt.size())
	if param && o.space == spParam {
		if n := uint64(b.k.Sig.ParamBytes); o.imm > n || o.imm+uint64(o.size)*uint64(o.nv) > n {
			b.fail("load at %d ends behind the %d bytes of parameters", o.imm, n)
		}
		if o.imm%(uint64(o.size)*uint64(o.nv)) != 0 {
			b.fail("load of %d bytes at offset %d is misaligned", uint64(o.size)*uint64(o.nv), o.imm)
		}
		o.code = opLoadParam
	}
	if o.kv != kNone || b.keep {
		b.emit(*o)
	}
}

func lowerSt(b *builder) {
	t := b.typ(memTypes...)
	o := op{code: opStore}
	b.order(&o, "weak", "volatile", "relaxed", "release")
	o.space = b.stateSpace(spGlobal, spShared, spLocal, spParam)
	if o.sem != semWeak && (o.space == spParam || o.space == spLocal && o.sem != semVolatile) {
		b.fail("`.%v` stores are always weak", o.space)
	}
	b.hints(false, "wb", "cg", "cs", "wt")
	b.vector(&o, t)
	b.nargs(2)
	b.place(&o, &b.in.args[0])
	if o.space == spParam {
		b.fail("parameters of a kernel are read-only")
	}
	b.elements(&o, &b.in.args[1], t, false)
	b.emit(o)
}

func lowerCvta(b *builder) {
	to := b.has("to")
	sp := b.stateSpace(spGlobal, spShared, spLocal, spConst, spParam)
	if sp == spGeneric {
		b.fail("`cvta` needs a state space")
	}
	t := b.typ(tU32, tU64)
	if t == tU32 {
		b.fail("`cvta` of 32 bits belongs to .address_size 32")
	}
	b.nargs(2)
	a, d := b.src(1, t), b.dst(0, t)
	var window uint64
	switch sp {
	case spShared:
		window = sharedWindow
	case spLocal:
		window = localWindow
	}
	if window == 0 {
		b.emit(op{code: opMov64, kd: k64, d: d, ka: k64, a: a, fn: func(x, _, _ uint64) uint64 { return x }})
		return
	}
	if to {
		window = -window
	}
	b.emit(op{code: opAdd64, kd: k64, d: d, ka: k64, a: a, kb: k64, b: b.value(k64, window), fn: intAdd(tU64)})
}

func lowerIsspacep(b *builder) {
	sp := b.stateSpace(spGlobal, spShared, spLocal, spConst, spParam)
	if sp == spGeneric {
		b.fail("`isspacep` needs a state space")
	}
	b.nargs(2)
	// Constant memory is numbered with global memory and cannot be told from it.
	if sp == spConst {
		b.fail("`isspacep.const` is not supported")
	}
	want := map[space]uint64{spShared: 1, spLocal: 2, spParam: 3}[sp]
	b.emit(op{code: opCompare, kd: kPred, d: b.dst(0, tPred), ka: k64, a: b.src(1, tU64),
		fn: func(a, _, _ uint64) uint64 { return b2i(a>>windowShift == want) }})
}

// lowerPrefetch checks its operand and does nothing.
func lowerPrefetch(b *builder) {
	o := op{}
	o.space = b.stateSpace(spGlobal, spLocal, spConst, spParam)
	b.needMod("L1", "L2", "L2::evict_last", "L2::evict_normal")
	b.nargs(1)
	b.place(&o, &b.in.args[0])
	b.emit(op{code: opNop})
}

// lowerApplyPriority: a hint on a line of L2.
func lowerApplyPriority(b *builder) {
	o := op{}
	o.space = b.stateSpace(spGlobal)
	b.needMod("L2::evict_normal")
	b.require(80, 74, "applypriority")
	b.nargs(2)
	b.place(&o, &b.in.args[0])
	if n := b.in.args[1]; n.kind != argInt || n.val != 128 {
		b.fail("the size must be 128")
	}
	b.emit(op{code: opNop})
}

func lowerMembar(b *builder) {
	scope := map[string]uint8{"cta": scopeCTA, "gl": scopeGPU, "sys": scopeSys}[b.needMod("cta", "gl", "sys")]
	b.nargs(0)
	b.emit(op{code: opNop, sub: nopFence, sem: semSC, scope: scope})
}

func lowerFence(b *builder) {
	b.require(70, 60, "fence")
	o := op{code: opNop, sub: nopFence, sem: semAcqRel}
	switch sem := b.take("sc", "acq_rel", "acquire", "release"); sem {
	case "sc":
		o.sem = semSC
	case "acquire", "release":
		b.require(90, 86, "fence."+sem)
		o.sem = map[string]uint8{"acquire": semAcquire, "release": semRelease}[sem]
	}
	if o.scope = b.scopeMod(); o.scope == scopeNone && len(b.mods) == 0 {
		b.fail("`fence` needs a scope: .cta, .cluster, .gpu or .sys")
	}
	b.nargs(0)
	b.emit(o)
}
