package ptx

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Warps that are not whole, lanes that have exited, members that arrive from different places: the same as in a Block,
// which run compares.
func TestThreadCollectives(t *testing.T) {
	for _, threads := range []uint32{3, 20, 32, 45} {
		for _, text := range []string{
			"shfl.sync.up.b32 %r3|%p2, %r1, 1, 0, -1; @%p2 add.u32 %r3, %r3, 100",
			"shfl.sync.down.b32 %r3|%p2, %r1, 2, 31, -1; @%p2 add.u32 %r3, %r3, 100",
			"vote.sync.ballot.b32 %r3, %p1, -1",
			"vote.sync.all.pred %p2, %p1, -1; selp.u32 %r3, 1, 2, %p2",
			"shr.u32 %r4, %r1, 2; match.any.sync.b32 %r3, %r4, -1",
			"match.all.sync.b32 %r3|%p2, 4, -1; @%p2 add.u32 %r3, %r3, 1",
			"redux.sync.add.u32 %r3, %r1, -1",
			"elect.sync %r3|%p2, -1; @%p2 add.u32 %r3, %r3, 100",
			"bar.warp.sync -1; mov.u32 %r3, 4",
			"bar.red.popc.u32 %r3, 0, %p1",
			"@!%p1 bra ODD; shfl.sync.bfly.b32 %r3, %r1, 2, 31, 0x55555555; bra END; ODD: shfl.sync.bfly.b32 %r3, %r1, 2, 31, 0xaaaaaaaa; END:",
			"@%p1 bra OUT; redux.sync.max.u32 %r3, %r1, -1; bra END; OUT: ret; END:",
		} {
			t.Run(text, func(t *testing.T) {
				mustRun(t, `
	mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0;
	mul.wide.u32 %rd1, %r1, 4; add.s64 %rd1, %rd1, %rd0; mov.u32 %r3, 0;
	`+text+`;
	st.global.u32 [%rd1], %r3;`, newFlat(4096), runOpts{block: [3]uint32{threads, 1, 1}})
			})
		}
	}
}

// Collect leaves alone who takes no part, and overwrites what was deferred.
func TestCollect(t *testing.T) {
	body := "ld.global.u32 %r2, [%rd0]; mov.u32 %r1, %tid.x; add.u32 %r1, %r1, 10; shfl.sync.bfly.b32 %r2, %r1, 1, 31, 3;"
	a := observed(t, body)
	threads := make([]*Thread, 32)
	for lane := range uint32(2) {
		th := &Thread{}
		th.Copy(a)
		th.Reset([3]uint32{}, [3]uint32{lane, 0, 0})
		next(t, th)
		th.Defer([4]uint64{5})
		ev := next(t, th)
		require.Equal(t, Collective, ev.Kind)
		require.EqualValues(t, 3, ev.Mask)
		require.Equal(t, CodeShuffle, ev.Inst.Code)
		threads[lane] = th
	}
	threads[2] = a // at no collective, and outside exist
	Collect(threads, 3)
	require.EqualValues(t, 11, register(t, threads[0], "%r2"))
	require.EqualValues(t, 10, register(t, threads[1], "%r2"))
	require.Equal(t, Exit, next(t, threads[0]).Kind)
	require.Panics(t, func() { Collect(threads, 4) })
}

func BenchmarkThread(b *testing.B) {
	th := observed(b, `
	mov.u32 %r1, 0; mov.u32 %r2, 17;
LOOP:
	add.u32 %r1, %r1, 1; mul.lo.u32 %r3, %r2, 1664525; add.u32 %r2, %r3, 1013904223;
	xor.b32 %r4, %r2, %r1; shr.u32 %r5, %r4, 3; cvt.u64.u32 %rd1, %r5; add.u64 %rd2, %rd2, %rd1;
	mul.f32 %f1, %f2, %f3; setp.lt.u32 %p1, %r1, 100000; @%p1 bra LOOP;`)
	th.limit = ^uint64(0)
	var steps uint64
	for b.Loop() {
		th.Reset([3]uint32{}, [3]uint32{})
		if ev, err := th.Next(); err != nil || ev.Kind != Exit {
			b.Fatal(ev, err)
		}
		steps += th.Steps()
	}
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds()/1e6, "Minst/s")
}

// A load and its answer.
func BenchmarkThreadLoad(b *testing.B) {
	th := observed(b, "LOOP: ld.global.u32 %r1, [%rd0]; setp.ne.u32 %p1, %r1, 1; @%p1 bra LOOP;")
	th.limit = ^uint64(0)
	for b.Loop() {
		if ev, err := th.Next(); err != nil || ev.Kind != Load {
			b.Fatal(ev, err)
		}
		th.Load(&[4]uint64{})
	}
}

func BenchmarkThreadCopy(b *testing.B) {
	th := observed(b, "ld.global.u32 %r1, [%rd0];")
	if _, err := th.Next(); err != nil {
		b.Fatal(err)
	}
	th.Defer([4]uint64{1})
	var to Thread
	for b.Loop() {
		to.Copy(th)
	}
	b.ReportMetric(float64(th.prog.regs), "registers")
}
