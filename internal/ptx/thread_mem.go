package ptx

import "fmt"

// access executes a load, store or atomic: private memory at once, other memory by an event.
func (t *Thread) access(o *op) (*Event, error) {
	addr := o.imm
	switch o.ka {
	case k64:
		addr += t.regs[o.a]
	case k32:
		addr = uint64(uint32(t.regs[o.a]) + uint32(o.imm))
	}
	size := uint64(o.size) * uint64(max(o.nv, 1))
	if addr&(size-1) != 0 {
		return t.fail(t.pc, Misaligned, addr, int(size), nil)
	}
	sp, off := o.space, addr
	if sp == spGeneric {
		switch addr >> windowShift {
		case 1:
			sp, off = spShared, addr-sharedWindow
		case 2:
			sp, off = spLocal, addr-localWindow
		case 3:
			sp, off = spParam, addr-paramWindow
		default:
			sp = spGlobal
		}
	}
	limit := t.shared
	switch sp {
	case spLocal:
		limit = uint64(len(t.local))
	case spParam:
		limit = uint64(len(t.launch.Params))
		if o.code != opLoad {
			return t.fail(t.pc, BadAddress, addr, int(size), fmt.Errorf("kernel parameters are read-only"))
		}
	case spGlobal, spConst:
		limit = ^uint64(0)
	}
	if off > limit || size > limit-off {
		return t.fail(t.pc, BadAddress, addr, int(size), fmt.Errorf("outside the %d bytes of .%v memory", limit, sp))
	}
	switch sp {
	case spLocal:
		t.private(o, t.local[off:])
		return nil, nil
	case spParam:
		t.loadPrivate(o, t.launch.Params[off:])
		return nil, nil
	}
	ev, s := Event{Space: Space(sp), Addr: off}, asked
	switch o.code {
	case opStore:
		s = reported
		for i := range int(o.nv) {
			ev.Values[i] = t.regs[o.v[i]] & sizeMask(o.size)
		}
	case opAtomic:
		if o.kd == kNone {
			s = reported
		}
		ev.Values[0] = t.regs[o.b] & sizeMask(o.size)
		if o.kc != kNone {
			ev.Values[1] = t.regs[o.c] & sizeMask(o.size)
		}
	}
	return t.report(t.pc, s, ev)
}

func sizeMask(size uint8) uint64 { return ^uint64(0) >> (64 - 8*uint(size)) }

// private does an access to p, which is local memory.
func (t *Thread) private(o *op, p []byte) {
	switch o.code {
	case opLoad:
		t.loadPrivate(o, p)
	case opStore:
		for i := range int(o.nv) {
			storeBytes(p[i*int(o.size):], o.size, t.regs[o.v[i]])
		}
	default:
		old := loadBytes(p, o.size)
		if v, writes := t.apply(o, old); writes {
			storeBytes(p, o.size, v)
		}
		if o.kd != kNone {
			t.set(o.d, old)
		}
	}
}

func (t *Thread) loadPrivate(o *op, p []byte) {
	for i := range int(o.nv) {
		if r := o.v[i]; r >= 0 {
			t.set(r, o.extend(loadBytes(p[i*int(o.size):], o.size)))
		}
	}
}

// extend widens a loaded element to its register.
func (o *op) extend(v uint64) uint64 {
	v &= sizeMask(o.size)
	if o.code == opAtomic || !o.sx {
		return v
	}
	shift := 64 - 8*uint(o.size)
	v = uint64(int64(v<<shift) >> shift)
	switch {
	case o.sub == 2:
		v &= 0xffff
	case o.kv == k32:
		v &= 0xffffffff
	}
	return v
}

// set writes a register, and forgets what it waited for.
func (t *Thread) set(r int32, v uint64) {
	if len(t.defers) != 0 {
		t.forget(r)
	}
	t.regs[r] = v
}

func (t *Thread) forget(r int32) {
	for i := range t.defers {
		if t.defers[i].reg == r {
			t.defers = append(t.defers[:i], t.defers[i+1:]...)
			return
		}
	}
}

func (t *Thread) token(r int32) uint64 {
	for i := range t.defers {
		if t.defers[i].reg == r {
			return t.defers[i].token
		}
	}
	return 0
}

// blocked is the token of a register that o needs and that waits for its value, else 0.
func (t *Thread) blocked(o *op) uint64 {
	if o.guard >= 0 {
		if token := t.token(o.guard); token != 0 {
			return token
		}
		if (t.regs[o.guard] == 0) != o.gneg {
			return 0
		}
	}
	for _, d := range t.defers {
		r := d.reg
		if o.ka != kNone && o.a == r || o.kb != kNone && o.b == r || o.kc != kNone && o.c == r || o.ke != kNone && o.e == r {
			return d.token
		}
		for i := range int(o.nv) {
			if !o.vdef && o.v[i] == r {
				return d.token
			}
		}
	}
	return 0
}

// overwrite forgets what the destinations of o waited for.
func (t *Thread) overwrite(o *op) {
	if o.kd != kNone {
		t.forget(o.d)
	}
	if o.kd2 != kNone {
		t.forget(o.d2)
	}
	for i := range int(o.nv) {
		if o.vdef && o.v[i] >= 0 {
			t.forget(o.v[i])
		}
	}
}

// Load answers a Load or Atomic event with the elements' values, of which Size bytes count. An element of 16 bytes takes two.
func (t *Thread) Load(values *[4]uint64) { t.answer(&[4]uint64{}, values[:]) }

// Defer answers a Load or Atomic event, element by element: one with a token gets its value later, by Fill; one with
// token 0 gets it now, from values at its index. Until then the thread runs on as far as it can without the value. An element of
// 16 bytes has one token.
func (t *Thread) Defer(tokens [4]uint64, values ...uint64) { t.answer(&tokens, values) }

func (t *Thread) answer(tokens *[4]uint64, values []uint64) {
	if t.state != asked || t.ev.Kind != Load && t.ev.Kind != Atomic {
		panic("ptx: the thread is at no load")
	}
	o := &t.prog.ops[t.pc]
	n, dest := int(o.nv), o.v
	if o.code == opAtomic {
		n, dest[0] = 1, o.d
	}
	for i := range n {
		r, token, part := dest[i], tokens[i], 0
		if o.whole {
			token, part = tokens[0], i
		}
		switch {
		case r < 0: // `_`
		case token == 0:
			t.set(r, o.extend(values[i]))
		default:
			t.set(r, 0)
			t.defers = append(t.defers, deferred{reg: r, from: t.pc, part: int32(part), token: token})
		}
	}
	t.pc++
	t.state = runs
}

// Fill gives the registers that wait for a token their value: of an element of 16 bytes the low half, then the high one. It does
// nothing when none does any more.
func (t *Thread) Fill(token uint64, value ...uint64) {
	left := t.defers[:0]
	for _, d := range t.defers {
		if d.token == token {
			t.regs[d.reg] = t.prog.ops[d.from].extend(value[d.part])
		} else {
			left = append(left, d)
		}
	}
	t.defers = left
}

// Apply computes what the current Atomic event makes of the old value. A cas that fails writes nothing.
func (t *Thread) Apply(old uint64) (value uint64, writes bool) {
	if t.ev.Kind != Atomic || t.state != asked && t.state != reported {
		panic("ptx: the thread is at no atomic")
	}
	return t.apply(&t.prog.ops[t.pc], old)
}

func (t *Thread) apply(o *op, old uint64) (value uint64, writes bool) {
	m := sizeMask(o.size)
	old &= m
	y := t.regs[o.b] & m
	if o.sub == atomCas && old != y {
		return old, false
	}
	return o.fn(old, y, t.regs[o.c]&m) & m, true
}

// BarrierResult answers the Barrier event of a bar.red: 0 or 1, or the count for popc.
func (t *Thread) BarrierResult(value uint64) {
	if t.state != asked || t.ev.Kind != Barrier {
		panic("ptx: the thread is at no reducing barrier")
	}
	o := &t.prog.ops[t.pc]
	if o.kd == kPred {
		value = b2i(value != 0)
	}
	t.set(o.d, value&0xffffffff)
	t.pc++
	t.state = runs
}
