package ptx

// opcode selects what the interpreter does. The order matters: see opFirstMem and its like.
type opcode uint8

const (
	opNop opcode = iota // fences, prefetches: nothing to do in a machine that runs one warp at a time

	// Arithmetic: no side effect but the destination.
	opScalar  // d = fn(a, b, c), lane by lane
	opCompare // d, d2 = fn(a, b) combined with c
	opCarry   // d, d2 = carry(a, b, c, e)
	opMov32
	opMov64
	opAdd32
	opAdd64
	opSub32
	opSub64
	opMulLo32
	opMulLo64
	opMulWideU32
	opMulWideS32
	opMad32
	opAnd32
	opOr32
	opXor32
	opAnd64
	opOr64
	opNot32
	opShl32
	opShl64
	opShrU32
	opShrS32
	opShrU64
	opSel32
	opSel64
	opZext     // d64 = a32
	opSext     // d64 = int32(a32)
	opTrunc    // d32 = a64
	opLow16    // d32 = a32 & 0xffff
	opPermute  // prmt in its general mode
	opLogic3   // lop3, table in imm
	opAddF32   // to nearest, subnormals kept
	opSubF32   //
	opMulF32   //
	opFmaF32   //
	opHalfF32  // f16 to f32
	opBrainF32 // bf16 to f32
	opF32Half  // f32 to f16, to nearest
	opF32Brain // f32 to bf16, to nearest
	opF32Halves
	opF32Brains
	opCmp32 // d, d2 = a ? b by imm, combined with c; cmp in sub
	opCmp64
	opCmpF32
	opPack32   // d32 = v[1]:v[0], 16 bits each
	opPack64   // d64 = v[1]:v[0], 32 bits each
	opPack4    // d64 = v[3]:…:v[0], 16 bits each
	opUnpack32 // and back, absent destinations skipped
	opUnpack64
	opUnpack4
	opMovPred
	opNotPred
	opAndPred
	opOrPred
	opXorPred
	opSpecial // special register sub
	opActive  // activemask

	// Memory.
	opLoadParam // launch-time constant at imm
	opLoad
	opStore
	opAtomic

	// Control and synchronisation: these look at the warp as a whole.
	opJump // unconditional, put in by the layout: not counted
	opBranch
	opBranchIndex
	opExit
	opTrap
	opBarrier
	opWarpSync
	opShuffle
	opVote
	opMatch
	opReduce
	opElect
	opSleep
)

const (
	opFirstMem  = opLoadParam
	opFirstFlow = opJump
)

// Comparisons in op.sub of opCmp…
const (
	cmpEq uint8 = iota
	cmpNe
	cmpLtU
	cmpLeU
	cmpLtS
	cmpLeS
	cmpLtF // ordered
	cmpLeF
	cmpEqF
	cmpNeuF // not equal or unordered
)

// What an opNop stands for, in op.sub: a Block skips them all, a Thread reports some.
const (
	nopHint uint8 = iota
	nopFence
	nopGridWait
	nopGridLaunch
)

// How a comparison combines with the predicate c, in op.comb.
const (
	combNone uint8 = iota
	combAnd
	combOr
	combXor
)

// Strength and scope of a memory access, in op.sem and op.scope.
const (
	semWeak uint8 = iota
	semVolatile
	semRelaxed
	semAcquire
	semRelease
	semAcqRel
	semSC // fences
)

const (
	scopeNone uint8 = iota
	scopeCTA
	scopeCluster
	scopeGPU
	scopeSys
)

// op is one operation, fixed in size. Register operands are indices in the file of their kind;
// absent ones have kind kNone.
type op struct {
	code  opcode
	gneg  bool
	kd    kind // of d
	kd2   kind
	ka    kind
	kb    kind
	kc    kind
	ke    kind
	kv    kind  // of v
	nv    uint8 // how many of v
	vdef  bool  // v are destinations
	size  uint8 // memory: bytes of one element
	sx    bool  // memory: sign-extend on load
	space space
	sem   uint8
	scope uint8
	sub   uint8
	comb  uint8
	bsel  bool // c of a comparison is negated
	nc    bool // load: through the non-coherent cache
	whole bool // memory: the two elements are the halves of one .b128, and one access
	guard int32

	d, d2, a, b, c, e int32
	v                 [4]int32
	target            int32 // branch target, or index into the kernel's tables
	stmt              int32
	imm               uint64
	fn                scalar
	carry             func(a, b, c uint64, in bool) (uint64, bool)
}

// noReg marks an absent register; constBase and up are virtual numbers of constants.
const (
	noReg     = int32(-1)
	constBase = int32(1) << 28
)

// each visits the register operands.
func (o *op) each(visit func(r *int32, k kind, def bool)) {
	if o.guard >= 0 {
		visit(&o.guard, kPred, false)
	}
	if o.ka != kNone {
		visit(&o.a, o.ka, false)
	}
	if o.kb != kNone {
		visit(&o.b, o.kb, false)
	}
	if o.kc != kNone {
		visit(&o.c, o.kc, false)
	}
	if o.ke != kNone {
		visit(&o.e, o.ke, false)
	}
	for i := range o.nv {
		if o.v[i] != noReg {
			visit(&o.v[i], o.kv, o.vdef)
		}
	}
	if o.kd != kNone {
		visit(&o.d, o.kd, true)
	}
	if o.kd2 != kNone {
		visit(&o.d2, o.kd2, true)
	}
}
