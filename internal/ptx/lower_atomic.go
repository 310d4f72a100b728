package ptx

// Atomic operations, in op.sub.
const (
	atomAdd uint8 = iota
	atomExch
	atomCas
	atomMin
	atomMax
	atomInc
	atomDec
	atomAnd
	atomOr
	atomXor
)

var atomOps = map[string]uint8{"add": atomAdd, "exch": atomExch, "cas": atomCas, "min": atomMin, "max": atomMax,
	"inc": atomInc, "dec": atomDec, "and": atomAnd, "or": atomOr, "xor": atomXor}

func lowerAtom(b *builder) { lowerAtomic(b, true) }
func lowerRed(b *builder)  { lowerAtomic(b, false) }

func lowerAtomic(b *builder, returns bool) {
	if n := len(b.mods); n > 0 && b.mods[n-1] == "b128" {
		b.fail("`%s` of .b128 is not supported: exchange 64 bits, or let them guard the 16 bytes", b.in.name)
	}
	t := b.typ(tB16, tB32, tB64, tU32, tS32, tU64, tS64, tF32, tF64, tF16, tF16x2, tBF16, tBF16x2)
	o := op{code: opAtomic, size: uint8(t.size())}
	if returns {
		b.order(&o, "relaxed", "acquire", "release", "acq_rel")
	} else {
		b.order(&o, "relaxed", "release")
	}
	if o.sem == semWeak { // atomics without a qualifier are relaxed at device scope
		o.sem, o.scope = semRelaxed, scopeGPU
		if s := b.scopeMod(); s != scopeNone {
			o.scope = s
		}
	}
	o.space = b.stateSpace(spGlobal, spShared)
	name := b.needMod("add", "exch", "cas", "min", "max", "inc", "dec", "and", "or", "xor")
	o.sub = atomOps[name]
	if !returns && (o.sub == atomExch || o.sub == atomCas) {
		b.fail("`red` has no .%s", name)
	}
	b.noPolicy()
	noftz := b.has("noftz")
	if noftz != (name == "add" && t.size() <= 4 && t.float() && t != tF32) {
		b.fail("`.noftz` belongs to .add of 16-bit floats, and is required there")
	}
	o.fn = b.atomicFn(o.sub, name, t, o.space)
	base := 0
	if returns {
		base = 1
	}
	operands := base + 2
	if o.sub == atomCas {
		operands++
	}
	b.nargs(operands)
	b.place(&o, &b.in.args[base])
	o.kb, o.b = t.kind(), b.src(base+1, t)
	if o.sub == atomCas {
		o.kc, o.c = t.kind(), b.src(base+2, t)
	}
	if returns && b.in.args[0].kind != argSink {
		o.kd, o.d = t.kind(), b.dst(0, t)
	}
	b.emit(o)
}

// atomicFn gives the new value from the old one (a), the operand (b) and cas's new value (c).
func (b *builder) atomicFn(code uint8, name string, t typ, sp space) scalar {
	m := t.mask()
	bad := false
	var fn scalar
	switch code {
	case atomAdd:
		bad = t.bits() || t == tS64
		switch {
		case t.packed():
			b.require(sm16(t), 62, "atomic add of pairs")
			fn = pairwise(newFloatOp(t).add())
		case t.float():
			if t == tF16 || t == tBF16 {
				b.require(sm16(t), 63, "atomic add of 16-bit floats")
			}
			f := newFloatOp(t)
			// The ISA: f32 in global memory flushes subnormals, in shared memory it does not. A generic
			// address is taken for a global one.
			f.ftz = t == tF32 && sp != spShared
			fn = f.add()
		default:
			fn = intAdd(t)
		}
	case atomExch:
		bad = !t.bits() || t == tB16
		fn = func(_, v, _ uint64) uint64 { return v }
	case atomCas:
		bad = !t.bits()
		fn = func(old, want, v uint64) uint64 {
			if old == want {
				return v
			}
			return old
		}
	case atomMin, atomMax:
		bad = t.bits() || t.float()
		fn = intMinMax(t, code == atomMax)
	case atomInc:
		bad = t != tU32
		fn = func(old, limit, _ uint64) uint64 {
			if old >= limit {
				return 0
			}
			return old + 1
		}
	case atomDec:
		bad = t != tU32
		fn = func(old, limit, _ uint64) uint64 {
			if old == 0 || old > limit {
				return limit
			}
			return old - 1
		}
	default:
		bad = !t.bits() || t == tB16
		fn = map[uint8]scalar{
			atomAnd: func(x, y, _ uint64) uint64 { return x & y },
			atomOr:  func(x, y, _ uint64) uint64 { return x | y },
			atomXor: func(x, y, _ uint64) uint64 { return x ^ y },
		}[code]
	}
	if bad {
		b.fail("`.%s` takes no type `%v`", name, t)
	}
	return func(x, y, z uint64) uint64 { return fn(x, y, z) & m }
}

func sm16(t typ) int {
	switch t {
	case tF16x2:
		return 60
	case tF16:
		return 70
	}
	return 90
}
