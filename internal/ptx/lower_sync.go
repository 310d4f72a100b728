package ptx

// Kinds of barrier operation, in op.sub.
const (
	barSync uint8 = iota
	barArrive
	barAnd
	barOr
	barPopc
)

// lowerBar is bar and barrier, which differ in what they promise about the warp: .aligned and bar
// ask that all threads of the warp run it together, which a Block does not rely on. imm is 1 for these.
func lowerBar(b *builder) {
	if b.take("warp") != "" {
		b.needMod("sync")
		b.nargs(1)
		b.emit(op{code: opWarpSync, kb: k32, b: b.src(0, tB32)})
		return
	}
	o := op{code: opBarrier, imm: 1}
	if b.in.name == "barrier" {
		if b.has("cluster") {
			b.fail("cluster barriers are not supported")
		}
		o.imm = b2i(b.has("aligned"))
	}
	b.has("cta")
	kind := b.needMod("sync", "arrive", "red")
	arg := 0
	switch kind {
	case "arrive":
		o.sub = barArrive
		b.nargs(2)
	case "sync":
		b.nargs(1, 2)
	case "red":
		b.nargs(3, 4)
		arg = 1
		dt := tPred
		switch b.needMod("and", "or", "popc") {
		case "and":
			o.sub = barAnd
		case "or":
			o.sub = barOr
		case "popc":
			o.sub, dt = barPopc, tU32
		}
		if b.typ(tPred, tU32) != dt {
			b.fail("this barrier reduction gives %v", dt)
		}
		last := &b.in.args[len(b.in.args)-1]
		o.kc, o.c = kPred, b.read(last, tPred, false)
		o.kd, o.d = dt.kind(), b.dst(0, dt)
	}
	if id := b.in.args[arg]; id.kind == argInt && id.val > 15 {
		b.fail("barrier %d: there are 16", id.val)
	}
	o.ka, o.a = k32, b.src(arg, tU32)
	counted := len(b.in.args) - arg
	if kind == "red" {
		counted--
	}
	if counted == 2 {
		if n := b.in.args[arg+1]; n.kind == argInt && (n.val == 0 || n.val%32 != 0 || n.val > 1024) {
			b.fail("a barrier's thread count is a multiple of 32 up to 1024")
		}
		o.kb, o.b = k32, b.src(arg+1, tU32)
	}
	b.emit(o)
}

// Collective operations read their member mask from b, so that all look alike to the warp.

// Shuffle modes, in op.sub.
const (
	shflUp uint8 = iota
	shflDown
	shflBfly
	shflIdx
)

func lowerShfl(b *builder) {
	b.needMod("sync")
	o := op{code: opShuffle}
	switch b.needMod("up", "down", "bfly", "idx") {
	case "down":
		o.sub = shflDown
	case "bfly":
		o.sub = shflBfly
	case "idx":
		o.sub = shflIdx
	}
	t := b.typ(tB32)
	b.nargs(5)
	o.ka, o.a = k32, b.src(1, t)
	o.kc, o.c = k32, b.src(2, tU32)
	o.ke, o.e = k32, b.src(3, tU32)
	o.kb, o.b = k32, b.src(4, tB32)
	d, p := b.pair(0)
	if d != nil {
		o.kd, o.d = k32, b.write(d, t)
	}
	if p != nil {
		o.kd2, o.d2 = kPred, b.write(p, tPred)
	}
	b.emit(o)
}

// Vote modes, in op.sub.
const (
	voteAll uint8 = iota
	voteAny
	voteUni
	voteBallot
)

func lowerVote(b *builder) {
	if !b.has("sync") {
		b.fail("`vote` without .sync is not supported: it is gone since sm_70")
	}
	o := op{code: opVote}
	dt := tPred
	switch b.needMod("all", "any", "uni", "ballot") {
	case "any":
		o.sub = voteAny
	case "uni":
		o.sub = voteUni
	case "ballot":
		o.sub, dt = voteBallot, tB32
	}
	if b.typ(tPred, tB32) != dt {
		b.fail("this vote gives %v", dt)
	}
	b.nargs(3)
	o.ka, o.a = kPred, b.src(1, tPred)
	o.kb, o.b = k32, b.src(2, tB32)
	o.kd, o.d = dt.kind(), b.dst(0, dt)
	b.emit(o)
}

// lowerMatch: any in sub 0, all in sub 1.
func lowerMatch(b *builder) {
	b.require(70, 60, "match")
	o := op{code: opMatch}
	if b.needMod("any", "all") == "all" {
		o.sub = 1
	}
	b.needMod("sync")
	t := b.typ(words...)
	b.nargs(3)
	o.ka, o.a = t.kind(), b.src(1, t)
	o.kb, o.b = k32, b.src(2, tB32)
	d, p := b.pair(0)
	if d != nil {
		o.kd, o.d = k32, b.write(d, tB32)
	}
	if p != nil {
		if o.sub == 0 {
			b.fail("`match.any` gives no predicate")
		}
		o.kd2, o.d2 = kPred, b.write(p, tPred)
	}
	b.emit(o)
}

func lowerRedux(b *builder) {
	b.require(80, 70, "redux")
	b.needMod("sync")
	name := b.needMod("add", "min", "max", "and", "or", "xor")
	t := b.typ(tU32, tS32, tB32)
	b.nargs(3)
	o := op{code: opReduce, ka: k32, a: b.src(1, t), kb: k32, b: b.src(2, tB32), kd: k32, d: b.dst(0, t)}
	bitwise := name == "and" || name == "or" || name == "xor"
	if bitwise != t.bits() {
		b.fail("`.%s` takes no type `%v`", name, t)
	}
	o.fn = b.atomicFn(atomOps[name], name, map[typ]typ{tS32: tS32, tU32: tU32, tB32: tB32}[t], spShared)
	if name == "add" {
		o.fn = intAdd(t)
	}
	b.emit(o)
}

func lowerElect(b *builder) {
	b.require(90, 80, "elect.sync")
	b.needMod("sync")
	b.nargs(2)
	o := op{code: opElect, kb: k32, b: b.src(1, tB32)}
	d, p := b.pair(0)
	if d != nil {
		o.kd, o.d = k32, b.write(d, tB32)
	}
	if p == nil {
		b.fail("`elect` needs a predicate")
	}
	o.kd2, o.d2 = kPred, b.write(p, tPred)
	b.emit(o)
}

func lowerActivemask(b *builder) {
	b.require(30, 62, "activemask")
	b.typ(tB32)
	b.nargs(1)
	b.emit(op{code: opActive, kd: k32, d: b.dst(0, tB32)})
}

func lowerNanosleep(b *builder) {
	b.require(70, 63, "nanosleep")
	b.typ(tU32)
	b.nargs(1)
	b.emit(op{code: opSleep, ka: k32, a: b.src(0, tU32)})
}

// lowerGriddep: launches are fully ordered here, so there is nothing to wait for or to release.
func lowerGriddep(b *builder) {
	sub := nopGridLaunch
	if b.needMod("wait", "launch_dependents") == "wait" {
		sub = nopGridWait
	}
	b.require(90, 78, "griddepcontrol")
	b.nargs(0)
	b.emit(op{code: opNop, sub: sub})
}
