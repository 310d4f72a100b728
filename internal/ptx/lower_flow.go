package ptx

// label resolves a branch target.
func (b *builder) label(name string) int32 {
	y, ok := b.scope.lookup(name)
	if !ok || y.kind != symLabel {
		b.fail("unknown label `%s`", name)
	}
	return y.label
}

func lowerBra(b *builder) {
	b.has("uni")
	b.nargs(1)
	if b.in.args[0].kind != argName {
		b.fail("`bra` needs a label")
	}
	b.emit(op{code: opBranch, target: b.label(b.in.args[0].name)})
}

func lowerBrx(b *builder) {
	b.needMod("idx")
	b.has("uni")
	b.require(30, 60, "brx.idx")
	b.nargs(2)
	y, ok := b.scope.lookup(b.in.args[1].name)
	if !ok || y.kind != symTargets {
		b.fail("unknown branch targets `%s`", b.in.args[1].name)
	}
	table := make([]int32, len(y.names))
	for i, name := range y.names {
		table[i] = b.label(name)
	}
	b.tables = append(b.tables, table)
	b.emit(op{code: opBranchIndex, ka: k32, a: b.src(0, tU32), target: int32(len(b.tables) - 1)})
}

func lowerExit(b *builder) {
	b.nargs(0)
	b.emit(op{code: opExit})
}

func lowerTrap(b *builder) {
	b.nargs(0)
	b.emit(op{code: opTrap})
}

func lowerRet(b *builder) {
	b.has("uni")
	b.nargs(0)
	if b.ret < 0 {
		b.emit(op{code: opExit})
		return
	}
	b.emit(op{code: opBranch, target: b.ret})
}

const maxCalls = 1 << 16 // inlined calls of one kernel

// lowerCall inlines a .func. There is no recursion in what can be inlined, so registers and local
// memory of the callee may be fixed.
func lowerCall(b *builder) {
	b.has("uni")
	args := b.in.args
	var rets, actual []operand
	if len(args) > 0 && args[0].kind == argList {
		rets, args = args[0].sub, args[1:]
	}
	if len(args) == 0 || args[0].kind != argName || args[0].suffix != "" {
		b.fail("`call` needs a function")
	}
	name := args[0].name
	if _, isReg := b.register(&args[0]); isReg || len(args) > 2 {
		b.fail("indirect calls are not supported")
	}
	if len(args) == 2 {
		if args[1].kind != argList {
			b.fail("`call` needs its arguments in parentheses")
		}
		actual = args[1].sub
	}
	fn := b.funcs[name]
	switch {
	case fn == nil || fn.entry:
		b.fail("call of `%s`, which is no function of this file", name)
	case !fn.hasBody:
		b.fail("call of `%s`, which has no body in this file: linking is not supported", name)
	case len(actual) != len(fn.params) || len(rets) != len(fn.rets):
		b.fail("`%s` takes %d arguments and returns %d values", name, len(fn.params), len(fn.rets))
	}
	for _, f := range b.calls {
		if f == fn {
			b.fail("`%s` calls itself: recursion is not supported", name)
		}
	}
	if b.inline++; b.inline > maxCalls || len(b.calls) > maxNesting {
		b.fail("too many or too deeply nested calls")
	}
	b.inlineCall(fn, rets, actual)
}

func (b *builder) inlineCall(fn *function, rets, actual []operand) {
	b.used[fn.name] = true
	caller, cur, in, ret := b.scope, b.cur, b.in, b.ret
	end, skip := b.newLabel(), b.newLabel() // where ret goes, where a false guard goes
	if in.guard != "" {
		o := b.emit(op{code: opBranch, target: skip})
		o.gneg = !o.gneg
	}
	b.in = &inst{name: in.name}
	callee := newScope(b.root)
	formals := make([]symbol, len(fn.params))
	results := make([]symbol, len(fn.rets))
	for i, v := range fn.params {
		formals[i] = b.formal(v)
		b.transfer(v, formals[i], &actual[i], true)
		callee.names[v.name] = formals[i]
	}
	for i, v := range fn.rets {
		results[i] = b.formal(v)
		callee.names[v.name] = results[i]
	}
	b.scope, b.ret = callee, end
	b.calls = append(b.calls, fn)
	b.body(fn.body)
	b.calls = b.calls[:len(b.calls)-1]
	b.scope, b.cur, b.ret = caller, cur, ret
	b.in = &inst{name: in.name}
	b.labels[end] = int32(len(b.ops))
	for i, v := range fn.rets {
		b.transfer(v, results[i], &rets[i], false)
	}
	b.labels[skip] = int32(len(b.ops))
	b.in, b.mods = in, b.mods[:0]
}

// transfer copies between a formal parameter and the caller's operand.
func (b *builder) transfer(v *variable, y symbol, actual *operand, in bool) {
	if y.kind == symReg {
		code := pick(v.typ, opMov32, opMov64)
		if v.typ == tPred {
			code = opMovPred
		} else if code == opScalar {
			code = opMov32
		}
		o := op{code: code, ka: v.typ.kind(), kd: v.typ.kind(), fn: func(a, _, _ uint64) uint64 { return a }}
		if in {
			o.a, o.d = b.read(actual, v.typ, false), y.reg
		} else {
			o.a, o.d = y.reg, b.write(actual, v.typ)
		}
		b.emit(o)
		return
	}
	z, ok := symbol{}, false
	if actual.kind == argName {
		z, ok = b.scope.lookup(actual.name)
	}
	if !ok || z.kind != symVar {
		// A register or constant passed for a scalar parameter in memory.
		k := v.typ.kind()
		o := op{space: spLocal, imm: uint64(y.off), size: uint8(v.typ.size()), nv: 1, kv: k, sub: uint8(v.typ.size())}
		if v.array {
			b.fail("`%s` needs a .param variable", v.name)
		}
		if in {
			o.code, o.v[0] = opStore, b.read(actual, v.typ, false)
		} else {
			o.code, o.vdef, o.v[0] = opLoad, true, b.write(actual, v.typ)
		}
		b.emit(o)
		return
	}
	if !z.formal || z.size != y.size {
		b.fail("`%s` and parameter `%s` differ in size or space", actual.name, v.name)
	}
	from, to := z.off, y.off
	if !in {
		from, to = to, from
	}
	b.copyLocal(to, from, y.size)
}

// copyLocal copies n bytes of local memory in the largest aligned pieces.
func (b *builder) copyLocal(to, from int64, n int) {
	for n > 0 {
		size := int64(8)
		for size > 1 && (int64(n) < size || to%size != 0 || from%size != 0) {
			size /= 2
		}
		k := k32
		if size == 8 {
			k = k64
		}
		r := b.newReg(k)
		o := op{code: opLoad, space: spLocal, imm: uint64(from), size: uint8(size), nv: 1, kv: k, sub: 4, vdef: true}
		o.v[0] = r
		b.emit(o)
		o.code, o.imm, o.vdef = opStore, uint64(to), false
		b.emit(o)
		to, from, n = to+size, from+size, n-int(size)
	}
}
