package ptx

import "strings"

func lowerMov(b *builder) {
	t := b.typ(append([]typ{tPred, tB16, tB32, tB64, tB128, tF32, tF64}, ints...)...)
	b.nargs(2)
	switch {
	case t == tB128:
		b.movWide()
		return
	case b.in.args[0].kind == argVec:
		b.unpack(t)
		return
	case b.in.args[1].kind == argVec:
		b.pack(t)
		return
	}
	code := pick(t, opMov32, opMov64)
	switch {
	case t == tPred:
		code = opMovPred
	case code == opScalar:
		code = opMov32
	}
	// A special register is read straight into the destination.
	if o := &b.in.args[1]; o.kind == argName && strings.HasPrefix(o.name, "%") {
		if _, isReg := b.scope.lookup(o.name); !isReg {
			if sub, st, ok := specialRegister(o); ok {
				b.checkSpecial(o, st, t)
				b.emit(op{code: opSpecial, sub: sub, size: uint8(t.size()), kd: t.kind(), d: b.dst(0, t)})
				return
			}
		}
	}
	b.alu(code, func(a, _, _ uint64) uint64 { return a }, t, t)
}

// halvesOf gives the element type and codes for moves between one register and several.
func (b *builder) parts(t typ, n int) (elem typ, pack, unpack opcode) {
	switch {
	case !t.bits():
	case t.size() == 4 && n == 2:
		return tB16, opPack32, opUnpack32
	case t.size() == 8 && n == 2:
		return tB32, opPack64, opUnpack64
	case t.size() == 8 && n == 4:
		return tB16, opPack4, opUnpack4
	}
	b.fail("`mov%v` of %d registers is not supported", t, n)
	return
}

func (b *builder) pack(t typ) {
	list := b.in.args[1].sub
	elem, code, _ := b.parts(t, len(list))
	o := op{code: code, kv: k32, nv: uint8(len(list)), kd: t.kind()}
	for i := range list {
		o.v[i] = b.read(&list[i], elem, false)
	}
	o.d = b.dst(0, t)
	b.emit(o)
}

func (b *builder) unpack(t typ) {
	list := b.in.args[0].sub
	elem, _, code := b.parts(t, len(list))
	o := op{code: code, kv: k32, nv: uint8(len(list)), vdef: true, ka: t.kind(), a: b.src(1, t)}
	for i := range list {
		o.v[i] = noReg
		if list[i].kind != argSink {
			o.v[i] = b.write(&list[i], elem)
		}
	}
	b.emit(o)
}

// movWide is a mov of 128 bits: between two registers, or between one and its two halves or four quarters.
func (b *builder) movWide() {
	to, from := &b.in.args[0], &b.in.args[1]
	switch {
	case to.kind == argVec:
		b.unpackWide(to.sub, b.wide(from))
	case from.kind == argVec:
		b.packWide(b.wide(to), from.sub)
	default:
		d, a := b.wide(to), b.wide(from)
		for i := range int32(2) {
			b.emit(op{code: opMov64, kd: k64, d: d + i, ka: k64, a: a + i})
		}
	}
}

func (b *builder) packWide(d int32, list []operand) {
	per := b.perHalf(list)
	for i := range int32(2) {
		o := op{code: opMov64, kd: k64, d: d + i, ka: k64}
		if part := list[int(i)*per:][:per]; per == 1 {
			o.a = b.read(&part[0], tB64, false)
		} else {
			o = op{code: opPack64, kd: k64, d: d + i, kv: k32, nv: 2}
			o.v[0], o.v[1] = b.read(&part[0], tB32, false), b.read(&part[1], tB32, false)
		}
		b.emit(o)
	}
}

func (b *builder) unpackWide(list []operand, a int32) {
	per := b.perHalf(list)
	used := false
	for i := range int32(2) {
		var o op
		any := false
		for k, part := range list[int(i)*per:][:per] {
			o.v[k] = noReg
			if part.kind != argSink {
				o.v[k], any = b.write(&part, []typ{tB64, tB32}[per-1]), true
			}
		}
		if !any {
			continue
		}
		used = true
		if per == 1 {
			o = op{code: opMov64, kd: k64, d: o.v[0]}
		} else {
			o.code, o.kv, o.nv, o.vdef = opUnpack64, k32, 2, true
		}
		o.ka, o.a = k64, a+i
		b.emit(o)
	}
	if !used {
		b.fail("`mov.b128` to `_` alone")
	}
}

// perHalf is how many registers of a mov's list make up 64 bits.
func (b *builder) perHalf(list []operand) int {
	if len(list) != 2 && len(list) != 4 {
		b.fail("`mov.b128` of %d registers is not supported: it takes two of 64 bits or four of 32", len(list))
	}
	return len(list) / 2
}

// Special registers, in op.sub.
const (
	srTidX uint8 = iota // the three of each kind follow one another
	srTidY
	srTidZ
	srNtidX
	srNtidY
	srNtidZ
	srCtaidX
	srCtaidY
	srCtaidZ
	srNctaidX
	srNctaidY
	srNctaidZ
	srLaneid
	srWarpid
	srNwarpid
	srSmid
	srNsmid
	srGridid
	srMaskEq
	srMaskLe
	srMaskLt
	srMaskGe
	srMaskGt
	srClock
	srClockHi
	srClock64
	srGlobaltimer
	srGlobaltimerLo
	srGlobaltimerHi
	srDynamicShared
	srTotalShared
	srZero
	srOne
)

// specials maps names to codes and types. The cluster registers describe a grid without clusters: each
// block is a cluster of its own.
var specials = map[string]struct {
	sub uint8
	typ typ
}{
	"%laneid": {srLaneid, tU32}, "%warpid": {srWarpid, tU32}, "%nwarpid": {srNwarpid, tU32},
	"%smid": {srSmid, tU32}, "%nsmid": {srNsmid, tU32}, "%gridid": {srGridid, tU64},
	"%lanemask_eq": {srMaskEq, tU32}, "%lanemask_le": {srMaskLe, tU32}, "%lanemask_lt": {srMaskLt, tU32},
	"%lanemask_ge": {srMaskGe, tU32}, "%lanemask_gt": {srMaskGt, tU32},
	"%clock": {srClock, tU32}, "%clock_hi": {srClockHi, tU32}, "%clock64": {srClock64, tU64},
	"%globaltimer": {srGlobaltimer, tU64}, "%globaltimer_lo": {srGlobaltimerLo, tU32}, "%globaltimer_hi": {srGlobaltimerHi, tU32},
	"%dynamic_smem_size": {srDynamicShared, tU32}, "%total_smem_size": {srTotalShared, tU32},
	"%cluster_ctarank": {srZero, tU32}, "%cluster_nctarank": {srOne, tU32},
	"%cluster_ctaid.x": {srZero, tU32}, "%cluster_ctaid.y": {srZero, tU32}, "%cluster_ctaid.z": {srZero, tU32},
	"%cluster_nctaid.x": {srOne, tU32}, "%cluster_nctaid.y": {srOne, tU32}, "%cluster_nctaid.z": {srOne, tU32},
	"%clusterid.x": {srCtaidX, tU32}, "%clusterid.y": {srCtaidY, tU32}, "%clusterid.z": {srCtaidZ, tU32},
	"%nclusterid.x": {srNctaidX, tU32}, "%nclusterid.y": {srNctaidY, tU32}, "%nclusterid.z": {srNctaidZ, tU32},
	"%tid.x": {srTidX, tU32}, "%tid.y": {srTidY, tU32}, "%tid.z": {srTidZ, tU32},
	"%ntid.x": {srNtidX, tU32}, "%ntid.y": {srNtidY, tU32}, "%ntid.z": {srNtidZ, tU32},
	"%ctaid.x": {srCtaidX, tU32}, "%ctaid.y": {srCtaidY, tU32}, "%ctaid.z": {srCtaidZ, tU32},
	"%nctaid.x": {srNctaidX, tU32}, "%nctaid.y": {srNctaidY, tU32}, "%nctaid.z": {srNctaidZ, tU32},
}

func specialRegister(o *operand) (uint8, typ, bool) {
	name := o.name
	if o.suffix != "" {
		name += "." + o.suffix
	}
	s, ok := specials[name]
	return s.sub, s.typ, ok && o.off == 0 && !o.not
}

// checkSpecial insists on the register's width. The thread and grid registers may be read as 16 bits,
// as old code does.
func (b *builder) checkSpecial(o *operand, st, t typ) {
	old16 := strings.HasSuffix(o.name, "tid") || strings.HasSuffix(o.name, "ctaid")
	if t.float() || t.size() != st.size() && !(old16 && t.size() == 2) {
		b.fail("special register `%s` is %v, `%s` needs %v here", o.name, st, b.in.name, t)
	}
}

// special reads a special register into a temporary.
func (b *builder) special(o *operand, t typ) (int32, bool) {
	sub, st, ok := specialRegister(o)
	if !ok {
		return noReg, false
	}
	b.checkSpecial(o, st, t)
	r := b.newReg(t.kind())
	b.emit(op{code: opSpecial, sub: sub, size: uint8(t.size()), kd: t.kind(), d: r})
	return r, true
}
