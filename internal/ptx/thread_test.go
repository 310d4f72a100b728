package ptx

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// observed makes one thread of the kernel that entry gives, of a block of 8, with p at 0x1000.
func observed(t testing.TB, body string) *Thread {
	t.Helper()
	m, err := ParseObserved("test.ptx", []byte(entry(body)))
	require.NoError(t, err)
	k, _ := m.Kernel("k")
	var a args
	a.u64(0x1000)
	th, err := NewThread(&Launch{Kernel: k, Grid: [3]uint32{2, 1, 1}, Block: [3]uint32{8, 1, 1}, Params: a, StepLimit: 1000},
		[3]uint32{1, 0, 0}, [3]uint32{3, 0, 0})
	require.NoError(t, err)
	return th
}

func next(t testing.TB, th *Thread) *Event {
	t.Helper()
	ev, err := th.Next()
	require.NoError(t, err)
	return ev
}

func register(t testing.TB, th *Thread, name string) uint64 {
	t.Helper()
	v, ok := th.Register(name)
	require.True(t, ok, name)
	return v
}

func TestThreadEvents(t *testing.T) {
	type seen struct {
		kind    EventKind
		sem     Sem
		scope   Scope
		space   Space
		addr    uint64
		size, n int
	}
	for _, tt := range []struct {
		text string
		want seen
	}{
		{"ld.global.u32 %r1, [%rd0+8]", seen{Load, Weak, ScopeNone, SpaceGlobal, 0x1008, 4, 1}},
		{"ld.u16 %h1, [%rd0+6]", seen{Load, Weak, ScopeNone, SpaceGlobal, 0x1006, 2, 1}},
		{"ld.volatile.global.u32 %r1, [%rd0]", seen{Load, Volatile, ScopeNone, SpaceGlobal, 0x1000, 4, 1}},
		{"ld.relaxed.sys.global.u64 %rd1, [%rd0]", seen{Load, Relaxed, ScopeSys, SpaceGlobal, 0x1000, 8, 1}},
		{"ld.acquire.cta.global.u32 %r1, [%rd0]", seen{Load, Acquire, ScopeCTA, SpaceGlobal, 0x1000, 4, 1}},
		{"ld.acquire.cluster.global.u32 %r1, [%rd0]", seen{Load, Acquire, ScopeCluster, SpaceGlobal, 0x1000, 4, 1}},
		{"ld.global.v4.f32 {%f1, %f2, _, %f3}, [%rd0]", seen{Load, Weak, ScopeNone, SpaceGlobal, 0x1000, 4, 4}},
		{"ld.global.v2.u32 {_, _}, [%rd0]", seen{Load, Weak, ScopeNone, SpaceGlobal, 0x1000, 4, 2}},
		{"st.release.gpu.global.u32 [%rd0], 7", seen{Store, Release, ScopeGPU, SpaceGlobal, 0x1000, 4, 1}},
		{"st.weak.global.v2.u64 [%rd0+16], {%rd0, %rd0}", seen{Store, Weak, ScopeNone, SpaceGlobal, 0x1010, 8, 2}},
		{".shared .align 8 .b8 s[64]; st.shared.u32 [s+4], 1", seen{Store, Weak, ScopeNone, SpaceShared, 4, 4, 1}},
		{".shared .align 8 .b8 s[64]; mov.u64 %rd1, s; cvta.shared.u64 %rd1, %rd1; ld.u32 %r1, [%rd1+8]", seen{Load, Weak, ScopeNone, SpaceShared, 8, 4, 1}},
		{"ld.const.u32 %r1, [%rd0]", seen{Load, Weak, ScopeNone, SpaceConst, 0x1000, 4, 1}},
		{"atom.global.add.u32 %r1, [%rd0], 1", seen{Atomic, Relaxed, ScopeGPU, SpaceGlobal, 0x1000, 4, 1}},
		{"atom.sys.global.add.u32 %r1, [%rd0], 1", seen{Atomic, Relaxed, ScopeSys, SpaceGlobal, 0x1000, 4, 1}},
		{"atom.acq_rel.sys.global.cas.b64 %rd1, [%rd0], 1, 2", seen{Atomic, AcqRel, ScopeSys, SpaceGlobal, 0x1000, 8, 1}},
		{"red.release.cta.global.add.u64 [%rd0], 1", seen{Atomic, Release, ScopeCTA, SpaceGlobal, 0x1000, 8, 1}},
		{"fence.acq_rel.sys", seen{kind: Fence, sem: AcqRel, scope: ScopeSys}},
		{"fence.cta", seen{kind: Fence, sem: AcqRel, scope: ScopeCTA}},
		{"fence.sc.gpu", seen{kind: Fence, sem: SC, scope: ScopeGPU}},
		{"membar.cta", seen{kind: Fence, sem: SC, scope: ScopeCTA}},
		{"membar.gl", seen{kind: Fence, sem: SC, scope: ScopeGPU}},
		{"membar.sys", seen{kind: Fence, sem: SC, scope: ScopeSys}},
		{"bar.sync 3", seen{kind: Barrier}},
		{"shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1", seen{kind: Collective}},
		{"bar.warp.sync 15", seen{kind: Collective}},
		{"nanosleep.u32 50", seen{kind: Sleep}},
		{"griddepcontrol.wait", seen{kind: GridWait}},
		{"griddepcontrol.launch_dependents", seen{kind: GridLaunch}},
		{"prefetch.global.L2 [%rd0]", seen{kind: Exit}},
		{".local .b32 l; st.local.u32 [l], 1; ld.local.u32 %r1, [l]", seen{kind: Exit}},
		{"setp.eq.u32 %p1, 1, 2; @%p1 st.global.u32 [%rd0], 1", seen{kind: Exit}},
	} {
		t.Run(tt.text, func(t *testing.T) {
			th := observed(t, tt.text+";")
			ev := next(t, th)
			in := ev.Inst
			require.Same(t, in, th.At())
			require.Same(t, ev, th.Event())
			require.Equal(t, tt.want, seen{ev.Kind, in.Sem, in.Scope, ev.Space, ev.Addr, in.Size, in.Elements})
			if ev.Kind == Exit {
				require.Equal(t, Exit, next(t, th).Kind)
				return
			}
			require.Equal(t, []*Inst{in}, th.launch.Kernel.Insts())
			require.Equal(t, ev.Kind, in.Kind)
			require.NotZero(t, in.Line)
			require.False(t, in.Loop)
		})
	}
}

func TestThreadInst(t *testing.T) {
	th := observed(t, `
	ld.global.nc.u32 %r1, [%rd0];
	ld.global.u32 %r1, [%rd0];
LOOP:
	ld.acquire.sys.global.u32 %r1, [%rd0];
	setp.ne.u32 %p1, %r1, 3;
	@%p1 bra LOOP;
	red.global.max.u32 [%rd0], 1;
	atom.global.exch.b32 %r2, [%rd0], 1;
	bar.red.popc.u32 %r3, 1, 32, %p1;
	bar.arrive 2, 64;
SELF:
	@%p1 bra SELF;
	vote.sync.any.pred %p2, %p1, 1;`)
	list := th.launch.Kernel.Insts()
	require.Len(t, list, 8)
	require.True(t, list[0].NonCoherent)
	require.False(t, list[1].NonCoherent)
	for i, in := range list {
		require.Equal(t, i == 2, in.Loop, in.Text)
	}
	require.True(t, list[2].Sem.Acquires())
	require.False(t, list[2].Sem.Releases())
	require.True(t, list[3].Red)
	require.Equal(t, "max", list[3].Atomic)
	require.False(t, list[4].Red)
	require.Equal(t, BarrierPopc, list[5].Barrier)
	require.True(t, list[5].Barrier.Reduces())
	require.Equal(t, BarrierArrive, list[6].Barrier)
	require.Equal(t, CodeVote, list[7].Code)
	require.Equal(t, "ld.acquire.sys.global.u32 %r1, [%rd0];", list[2].Text)
	require.Equal(t, "acquire.sys", list[2].Sem.String()+"."+list[2].Scope.String())

	loop := next(t, observed(t, "L: setp.eq.u32 %p1, %r1, 1; @%p1 bra END; st.volatile.global.u32 [%rd0], 1; bra L; END:")).Inst
	require.True(t, loop.Loop)
}

func TestThreadAnswers(t *testing.T) {
	th := observed(t, `
	ld.global.s8 %r1, [%rd0];
	ld.global.v4.u16 {%h1, _, %h2, %h3}, [%rd0];
	ld.global.s32 %rd2, [%rd0];
	st.global.u8 [%rd0], %r1;
	atom.global.cas.b32 %r2, [%rd0], 5, 6;
	atom.global.cas.b32 %r3, [%rd0], 5, 6;
	red.global.add.u32 [%rd0], 2;
	setp.eq.u32 %p1, %r2, 4;
	bar.red.or.pred %p2, 4, 32, %p1;
	nanosleep.u32 77;`)
	require.Nil(t, th.Event())
	ev := next(t, th)
	require.Same(t, ev, next(t, th), "a load without an answer is reported again")
	th.Load(&[4]uint64{0xff80})
	require.Nil(t, th.Event())
	require.EqualValues(t, 0xffffff80, register(t, th, "%r1"))
	next(t, th)
	th.Load(&[4]uint64{0xabcd1234, 2, 3, 4})
	require.EqualValues(t, 0x1234, register(t, th, "%h1"))
	require.EqualValues(t, 4, register(t, th, "%h3"))
	next(t, th)
	th.Load(&[4]uint64{0x80000000})
	require.Equal(t, uint64(0xffffffff80000000), register(t, th, "%rd2"))
	require.Equal(t, [4]uint64{0x80}, next(t, th).Values)
	ev = next(t, th)
	require.Equal(t, [4]uint64{5, 6}, ev.Values)
	v, writes := th.Apply(5)
	require.True(t, writes)
	require.EqualValues(t, 6, v)
	th.Load(&[4]uint64{5})
	next(t, th)
	_, writes = th.Apply(4)
	require.False(t, writes)
	th.Load(&[4]uint64{4})
	require.EqualValues(t, 4, register(t, th, "%r3"))
	next(t, th)
	v, writes = th.Apply(0xffffffff)
	require.True(t, writes)
	require.EqualValues(t, 1, v)
	ev = next(t, th)
	require.Equal(t, Event{Kind: Barrier, Inst: ev.Inst, Barrier: 4, Threads: 32}, *ev)
	require.Panics(t, func() { th.Load(&[4]uint64{}) })
	th.BarrierResult(1)
	require.EqualValues(t, 1, register(t, th, "%p2"))
	require.EqualValues(t, 77, next(t, th).Values[0])
	require.Equal(t, Exit, next(t, th).Kind)
	_, ok := th.Register("%r99")
	require.False(t, ok)
	_, ok = th.Register("LOOP")
	require.False(t, ok)
}

func TestThreadDefer(t *testing.T) {
	th := observed(t, `
	ld.global.v2.s16 {%r1, %r2}, [%rd0];
	mov.u32 %r3, 5;
	ld.global.u32 %r4, [%rd0+8];
	mov.u32 %r4, 9;
	@%p1 add.u32 %r3, %r3, %r1;
	ld.global.u64 %rd1, [%rd0+16];
	add.u32 %r3, %r3, %r2;
	add.u32 %r5, %r1, %r3;
	setp.eq.u32 %p2, %r1, 5;
	st.global.u32 [%rd1], %r5;`)
	next(t, th)
	th.Defer([4]uint64{11, 0}, 1, 2)
	_, ok := th.Register("%r1")
	require.False(t, ok)
	require.EqualValues(t, 11, th.RegisterToken("%r1"))
	require.EqualValues(t, 2, register(t, th, "%r2"))
	require.EqualValues(t, 0x1008, next(t, th).Addr)
	th.Defer([4]uint64{12})
	require.Equal(t, []uint64{11, 12}, th.Pending(nil))
	require.EqualValues(t, 0x1010, next(t, th).Addr, "the guard is false")
	require.Equal(t, []uint64{11}, th.Pending(nil), "overwritten")
	th.Fill(12, 1)
	require.EqualValues(t, 9, register(t, th, "%r4"))
	th.Defer([4]uint64{13})

	ev := next(t, th)
	require.Equal(t, Use, ev.Kind)
	require.EqualValues(t, 11, ev.Token)
	require.Equal(t, "add.u32 %r5, %r1, %r3;", ev.Inst.Text)
	var copied Thread
	copied.Copy(th)
	require.Equal(t, Use, next(t, th).Kind, "still")
	th.Fill(11, 0x1fffe)
	ev = next(t, th)
	require.Equal(t, Use, ev.Kind)
	require.EqualValues(t, 13, ev.Token)
	th.Fill(13, 0x3000)
	ev = next(t, th)
	require.EqualValues(t, 0x3000, ev.Addr)
	require.EqualValues(t, 5, ev.Values[0], "5 + 2 - 2")

	require.EqualValues(t, Use, copied.Event().Kind)
	copied.Fill(11, 1)
	copied.Fill(13, 0x2000)
	ev = next(t, &copied)
	require.EqualValues(t, 0x2000, ev.Addr)
	require.EqualValues(t, 8, ev.Values[0])

	for _, tt := range []string{"add.u32 %r2, %r1, 1", "@%p1 bra END", "@!%p1 mov.u32 %r2, 3", "mov.b32 {%h1, %h2}, %r1", "st.global.u32 [%rd0], %r1",
		"cvt.u64.u32 %rd1, %r1; ld.global.u32 %r2, [%rd1]", "atom.global.add.u32 %r2, [%rd0], %r1", "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1",
		"vote.sync.any.pred %p2, %p1, -1", "bar.sync %r1", "nanosleep.u32 %r1", "madc.lo.u32 %r2, %r3, %r4, %r1", "selp.u32 %r2, 1, 2, %p1",
		"setp.eq.and.u32 %p2, 1, 1, %p1", ".local .b32 l; st.local.u32 [l], %r1", "@%p1 trap", "mov.b64 %rd1, {%r2, %r1}"} {
		t.Run(tt, func(t *testing.T) {
			th := observed(t, "atom.global.exch.b32 %r1, [%rd0], 1; @%p9 mov.u32 %r1, 1; "+tt+"; END:")
			// A predicate is never loaded: it stands in for a register that is.
			p, _ := th.named("%p1")
			next(t, th)
			th.Defer([4]uint64{7})
			th.defers = append(th.defers, deferred{reg: p, token: 8})
			ev := next(t, th)
			require.Equal(t, Use, ev.Kind)
			require.Contains(t, []uint64{7, 8}, ev.Token)
			th.Fill(ev.Token, 0)
			require.NotContains(t, th.Pending(nil), ev.Token)
		})
	}
}

func TestThreadCopy(t *testing.T) {
	th := observed(t, `
	.local .align 8 .b8 l[64];
	mov.u32 %r1, %tid.x; add.u32 %r2, %ctaid.x, 40;
	st.local.u32 [l+8], %r2;
	ld.global.u32 %r3, [%rd0];
	ld.local.u32 %r4, [l+8];
	add.u32 %r1, %r1, %r3;
	st.local.u32 [l+8], %r1;
	st.global.u32 [%rd0], %r1;
	ld.local.u32 %r4, [l+8];`)
	next(t, th)
	var a Thread
	a.Copy(th)
	require.Equal(t, Load, a.Event().Kind)
	end := func(th *Thread, v uint64) (uint64, uint64) {
		th.Load(&[4]uint64{v})
		require.EqualValues(t, 3+v, next(t, th).Values[0])
		require.Equal(t, Exit, next(t, th).Kind)
		return register(t, th, "%r2"), register(t, th, "%r4")
	}
	for _, tt := range []struct {
		th *Thread
		v  uint64
	}{{th, 1}, {&a, 20}} {
		r2, r4 := end(tt.th, tt.v)
		require.EqualValues(t, 41, r2)
		require.EqualValues(t, 3+tt.v, r4)
	}
	require.Zero(t, testing.AllocsPerRun(10, func() { a.Copy(th) }))

	th.Reset([3]uint32{0, 0, 0}, [3]uint32{7, 0, 0})
	require.Zero(t, register(t, th, "%r4"))
	require.EqualValues(t, 0, th.Steps())
	next(t, th)
	require.EqualValues(t, 7, register(t, th, "%r1"))
	require.EqualValues(t, 40, register(t, th, "%r2"))
	require.EqualValues(t, 7, th.Lane())
	require.EqualValues(t, 0, th.Warp())
	require.EqualValues(t, 0xff, th.Exist())

	other := observed(t, "mov.u32 %r1, 1;") // of another launch
	other.Copy(&a)
	require.EqualValues(t, 4, register(t, other, "%r4"))
}

func TestThreadFaults(t *testing.T) {
	for _, tt := range []struct {
		text string
		kind FaultKind
		msg  string
	}{
		{"trap", Trap, "executed trap"},
		{"L: bra L", Deadlock, "no end"},
		{"ld.global.u32 %r1, [%rd0+2]", Misaligned, "4 bytes at 0x1002"},
		{".local .b32 l; mov.u32 %r1, 64; st.local.u32 [%r1], 1", BadAddress, "outside the 8 bytes of .local"},
		{".shared .b32 s; mov.u32 %r1, 64; st.shared.u32 [%r1], 1", BadAddress, "outside the 4 bytes of .shared"},
		{"mov.u64 %rd1, p; st.u64 [%rd1], %rd0", BadAddress, "read-only"},
		{"mov.u32 %r1, 16; bar.sync %r1", Trap, "there are 16"},
		{"mov.u32 %r1, 16; bar.sync 1, %r1", Trap, "multiple of 32"},
	} {
		t.Run(tt.text, func(t *testing.T) {
			th := observed(t, tt.text+";")
			_, err := th.Next()
			var f *Fault
			require.ErrorAs(t, err, &f)
			require.Equal(t, tt.kind, f.Kind)
			require.ErrorContains(t, f, tt.msg)
			require.Equal(t, [3]uint32{1, 0, 0}, f.Block)
			require.Equal(t, [3]uint32{3, 0, 0}, f.Thread)
			_, again := th.Next()
			require.Equal(t, err, again)
			require.Nil(t, th.Event())
		})
	}
	l := observed(t, "").launch
	_, err := NewThread(l, [3]uint32{2, 0, 0}, [3]uint32{})
	require.ErrorContains(t, err, "outside the grid")
	_, err = NewThread(&Launch{Kernel: l.Kernel}, [3]uint32{}, [3]uint32{})
	require.Error(t, err)
	_, err = NewBlock(l, [3]uint32{})
	require.ErrorContains(t, err, "no memory")
}

// Registers that Parse would let share a place keep their values for ParseObserved.
func TestThreadRegisters(t *testing.T) {
	body := "mov.u32 %r1, 1; add.u32 %r2, %r1, 1; st.global.u32 [%rd0], %r2; mov.u32 %r3, 3; { .reg .b32 inner; mov.u32 inner, 8; } mov.f32 %f1, 0f3F800000;"
	th := observed(t, body)
	next(t, th)
	require.Equal(t, Exit, next(t, th).Kind)
	for name, want := range map[string]uint64{"%r1": 1, "%r2": 2, "%r3": 3, "%rd0": 0x1000, "%f1": 0x3f800000, "%r39": 0} {
		require.Equal(t, want, register(t, th, name), name)
	}
	_, ok := th.Register("inner")
	require.False(t, ok)
	var a args
	a.u64(0x1000)
	plain, err := NewThread(&Launch{Kernel: parse(t, entry(body)), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: a}, [3]uint32{}, [3]uint32{})
	require.NoError(t, err)
	_, ok = plain.Register("%r1")
	require.False(t, ok)
	require.Less(t, len(plain.regs), len(th.regs))
}

// Each half of a fence has a version and a target of its own.
func TestHalfFences(t *testing.T) {
	text := func(fence, version, target string) string {
		return ".version " + version + "\n.target " + target + "\n.address_size 64\n.visible .entry k()\n{\n\t" + fence + ";\n\tret;\n}\n"
	}
	for fence, sem := range map[string]Sem{"fence.acquire.gpu": Acquire, "fence.release.gpu": Release} {
		m, err := Parse("k.ptx", []byte(text(fence, "8.6", "sm_90")))
		require.NoError(t, err)
		k, _ := m.Kernel("k")
		th, err := NewThread(&Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}, [3]uint32{}, [3]uint32{})
		require.NoError(t, err)
		in := next(t, th).Inst
		require.Equal(t, []any{Fence, sem, ScopeGPU}, []any{in.Kind, in.Sem, in.Scope})
		_, err = Parse("k.ptx", []byte(text(fence, "8.5", "sm_90")))
		require.ErrorContains(t, err, "needs .version 8.6 or later")
		_, err = Parse("k.ptx", []byte(text(fence, "8.6", "sm_80")))
		require.ErrorContains(t, err, "needs .target sm_90 or later")
	}
}

// Allow bounds one stretch, in the place of the launch's limit.
func TestAllow(t *testing.T) {
	th := observed(t, "mov.u32 %r1, 0; A: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 2000; @%p1 bra A; nanosleep.u32 1; bra A;")
	th.Allow(10_000)
	require.Equal(t, Sleep, next(t, th).Kind)
	th.Allow(10_000)
	require.Equal(t, Sleep, next(t, th).Kind)
	th.Allow(2)
	_, err := th.Next()
	var f *Fault
	require.ErrorAs(t, err, &f)
	require.Equal(t, Deadlock, f.Kind)
}

// Which lanes are in step is nothing that a thread on its own can know.
func TestThreadsHaveNoActiveMask(t *testing.T) {
	m := parse(t, entry("mov.u32 %r1, 1;\nactivemask.b32 %r2; st.global.u32 [%rd0], %r2;"))
	_, err := NewThread(&Launch{Kernel: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: make([]byte, 8)}, [3]uint32{}, [3]uint32{})
	var e *Error
	require.ErrorAs(t, err, &e)
	require.NotZero(t, e.Line)
	require.Equal(t, "activemask.b32 %r2;", e.Text)
}

// Local memory that nobody wrote holds something, the same for every thread.
func TestLocalIsNotZero(t *testing.T) {
	th := observed(t, ".local .align 4 .b32 l[2]; ld.local.u32 %r1, [l+4]; st.global.u32 [%rd0], %r1;")
	v := next(t, th).Values[0]
	require.NotZero(t, v)
	th.Reset([3]uint32{}, [3]uint32{})
	require.Equal(t, v, next(t, th).Values[0])
}
