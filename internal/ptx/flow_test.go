package ptx

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each body below leaves one word per thread: %rd1 is where, %r0 the thread's number.
const perThread = `
	mov.u32 %r0, %tid.x;
	mul.wide.u32 %rd1, %r0, 4;
	add.s64 %rd1, %rd0, %rd1;
`

// runThreads runs a body on n threads of one block and returns a word per thread.
func runThreads(t *testing.T, n int, body string) []uint32 {
	t.Helper()
	mem := newFlat(4*n + 4096)
	var first []uint32
	for seed := range uint64(3) { // the schedule must not matter
		clear(mem.data)
		mustRun(t, perThread+body, mem, runOpts{block: [3]uint32{uint32(n), 1, 1}, seed: seed})
		if seed == 0 {
			first = mem.words(n)
		}
		require.Equal(t, first, mem.words(n), "seed %d", seed)
	}
	return first
}

func TestDivergence(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		threads    int
		want       func(i uint32) uint32
	}{
		{"if-else meets at its end", `
			and.b32 %r1, %r0, 1; setp.ne.u32 %p1, %r1, 0;
			@%p1 bra ODD;
			mov.u32 %r2, 10; bra END;
		ODD: mov.u32 %r2, 20;
		END: activemask.b32 %r3; popc.b32 %r3, %r3; add.u32 %r2, %r2, %r3;
			st.global.u32 [%rd1], %r2;`, 32, func(i uint32) uint32 { return 42 + i%2*10 }},
		{"else at the end of the code", `
			setp.lt.u32 %p1, %r0, 7;
			@%p1 bra FAR;
			mov.u32 %r2, 1;
		BACK: activemask.b32 %r3; popc.b32 %r3, %r3;
			mad.lo.u32 %r2, %r3, 100, %r2;
			st.global.u32 [%rd1], %r2;
			ret;
		FAR: mov.u32 %r2, 2;
			bra.uni BACK;`, 32, func(i uint32) uint32 {
			if i < 7 {
				return 3202
			}
			return 3201
		}},
		{"loop of lane-dependent length meets behind it", `
			mov.u32 %r2, 0; mov.u32 %r3, 0;
		LOOP: add.u32 %r2, %r2, %r3; add.u32 %r3, %r3, 1;
			setp.le.u32 %p1, %r3, %r0;
			@%p1 bra LOOP;
			activemask.b32 %r4; popc.b32 %r4, %r4; shl.b32 %r4, %r4, 16; or.b32 %r2, %r2, %r4;
			st.global.u32 [%rd1], %r2;`, 32, func(i uint32) uint32 { return 32<<16 | i*(i+1)/2 }},
		{"nested loops", `
			mov.u32 %r2, 0; mov.u32 %r3, 0;
		OUTER: mov.u32 %r4, 0;
		INNER: add.u32 %r2, %r2, 1; add.u32 %r4, %r4, 1;
			setp.le.u32 %p1, %r4, %r3;
			@%p1 bra INNER;
			add.u32 %r3, %r3, 1;
			setp.le.u32 %p2, %r3, %r0;
			@%p2 bra OUTER;
			activemask.b32 %r4; popc.b32 %r4, %r4; shl.b32 %r4, %r4, 16; or.b32 %r2, %r2, %r4;
			st.global.u32 [%rd1], %r2;`, 32, func(i uint32) uint32 { return 32<<16 | (i+1)*(i+2)/2 }},
		{"break out of a loop", `
			mov.u32 %r2, 0;
		L: add.u32 %r2, %r2, 1;
			setp.eq.u32 %p1, %r2, %r0; @%p1 bra OUT;
			setp.lt.u32 %p2, %r2, 20; @%p2 bra L;
			add.u32 %r2, %r2, 100;
		OUT: activemask.b32 %r4; popc.b32 %r4, %r4; shl.b32 %r4, %r4, 16; or.b32 %r2, %r2, %r4;
			st.global.u32 [%rd1], %r2;`, 32, func(i uint32) uint32 {
			if i >= 1 && i <= 20 {
				return 32<<16 | i
			}
			return 32<<16 | 120
		}},
		{"early exit of some lanes", `
			st.global.u32 [%rd1], 5;
			and.b32 %r1, %r0, 3; setp.eq.u32 %p1, %r1, 0;
			@%p1 exit;
			activemask.b32 %r3; popc.b32 %r3, %r3;
			st.global.u32 [%rd1], %r3;`, 32, func(i uint32) uint32 {
			if i%4 == 0 {
				return 5
			}
			return 24
		}},
		{"guarded ret and a block that is no multiple of a warp", `
			setp.ge.u32 %p1, %r0, 40;
			@%p1 ret;
			st.global.u32 [%rd1], %r0;`, 50, func(i uint32) uint32 {
			if i >= 40 {
				return 0
			}
			return i
		}},
		{"branch by index", `
			TS: .branchtargets A, B, C;
			rem.u32 %r1, %r0, 3;
			brx.idx %r1, TS;
		A: mov.u32 %r2, 7; bra END;
		B: mov.u32 %r2, 8; bra END;
		C: mov.u32 %r2, 9;
		END: activemask.b32 %r4; popc.b32 %r4, %r4; shl.b32 %r4, %r4, 16; or.b32 %r2, %r2, %r4;
			st.global.u32 [%rd1], %r2;`, 32, func(i uint32) uint32 { return 32<<16 | (7 + i%3) }},
		{"irreducible: two ways into a loop", `
			mov.u32 %r2, 0;
			and.b32 %r1, %r0, 1; setp.ne.u32 %p1, %r1, 0;
			@%p1 bra B;
		A: add.u32 %r2, %r2, 1;
		B: add.u32 %r2, %r2, 16;
			setp.lt.u32 %p2, %r2, 64; @%p2 bra A;
			st.global.u32 [%rd1], %r2;`, 32, func(i uint32) uint32 {
			v := uint32(0)
			if i%2 == 1 {
				v = 16
			} else {
				v = 17
			}
			for v < 64 {
				v += 17
			}
			return v
		}},
		{"spin on a lane of the same warp", `
			setp.eq.u32 %p1, %r0, 31;
			@%p1 bra RELEASE;
		SPIN: ld.volatile.global.u32 %r2, [%rd0+1024];
			setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
			st.global.u32 [%rd1], %r2;
			ret;
		RELEASE: st.volatile.global.u32 [%rd0+1024], 9;
			st.global.u32 [%rd1], 1;`, 32, func(i uint32) uint32 {
			if i == 31 {
				return 1
			}
			return 9
		}},
		{"spin without marking the load", `
			setp.eq.u32 %p1, %r0, 31;
			@%p1 bra RELEASE;
		SPIN: ld.global.u32 %r2, [%rd0+1024];
			setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
			st.global.u32 [%rd1], %r2;
			ret;
		RELEASE: st.global.u32 [%rd0+1024], 9;
			st.global.u32 [%rd1], 1;`, 32, func(i uint32) uint32 {
			if i == 31 {
				return 1
			}
			return 9
		}},
		{"a lock that every lane takes", `
		TRY: atom.acquire.gpu.global.cas.b32 %r2, [%rd0+1024], 0, 1;
			setp.ne.u32 %p1, %r2, 0; @%p1 bra TRY;
			ld.global.u32 %r3, [%rd0+1028]; add.u32 %r3, %r3, 1; st.global.u32 [%rd0+1028], %r3;
			st.release.gpu.global.u32 [%rd0+1024], 0;
			bar.sync 0;
			ld.global.u32 %r3, [%rd0+1028]; st.global.u32 [%rd1], %r3;`, 96, func(uint32) uint32 { return 96 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, got := range runThreads(t, tt.threads, tt.body) {
				require.Equalf(t, tt.want(uint32(i)), got, "thread %d", i)
			}
		})
	}
}

func TestBarriers(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		threads    int
		want       func(i uint32) uint32
	}{
		{"orders shared memory between warps", `
			.shared .b32 s[256];
			mov.u32 %r2, s; mad.lo.u32 %r3, %r0, 4, %r2;
			st.shared.u32 [%r3], %r0;
			bar.sync 0;
			sub.u32 %r4, 199, %r0; mad.lo.u32 %r3, %r4, 4, %r2;
			ld.shared.u32 %r5, [%r3]; st.global.u32 [%rd1], %r5;`, 200, func(i uint32) uint32 { return 199 - i }},
		{"does not wait for threads that have exited", `
			and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; @%p1 exit;
			bar.sync 0;
			st.global.u32 [%rd1], 1;`, 64, func(i uint32) uint32 { return i % 2 }},
		{"waits for all sides of a divergence", `
			.shared .b32 n;
			setp.ne.u32 %p2, %r0, 0; @%p2 bra GO; st.shared.u32 [n], 0;
		GO: bar.sync 0;
			and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra EVEN;
			red.shared.add.u32 [n], 1; bar.sync 0; bra END;
		EVEN: red.shared.add.u32 [n], 100; bar.sync 0;
		END: ld.shared.u32 %r2, [n]; st.global.u32 [%rd1], %r2;`, 64, func(uint32) uint32 { return 3232 }},
		{"reductions", `
			setp.lt.u32 %p1, %r0, 40;
			bar.red.popc.u32 %r2, 0, %p1;
			bar.red.and.pred %p2, 0, %p1;
			bar.red.or.pred %p3, 0, %p1;
			bar.red.or.pred %p4, 0, !%p1;
			selp.u32 %r3, 100, 0, %p2; selp.u32 %r4, 1000, 0, %p3; selp.u32 %r5, 10000, 0, %p4;
			add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; add.u32 %r2, %r2, %r5;
			st.global.u32 [%rd1], %r2;`, 64, func(uint32) uint32 { return 11040 }},
		{"producer and consumer by named barriers", `
			.shared .b32 s;
			setp.ge.u32 %p1, %r0, 32; @%p1 bra CONSUME;
			setp.ne.u32 %p2, %r0, 0; @%p2 bra A; st.shared.u32 [s], 77;
		A: barrier.sync.aligned 3, 32;
			barrier.arrive 1, 64; ret;
		CONSUME: barrier.sync 1, 64;
			ld.shared.u32 %r2, [s]; st.global.u32 [%rd1], %r2;`, 64, func(i uint32) uint32 {
			if i >= 32 {
				return 77
			}
			return 0
		}},
		{"counts a partial warp whole", `
			.shared .b32 s;
			setp.eq.u32 %p1, %r0, 32; @%p1 bra LAST;
			bar.sync 2, 64; ld.shared.u32 %r2, [s]; st.global.u32 [%rd1], %r2; ret;
		LAST: st.shared.u32 [s], 5; bar.sync 2, 64;`, 33, func(i uint32) uint32 {
			if i < 32 {
				return 5
			}
			return 0
		}},
		{"many rounds", `
			.shared .b32 s[2];
			setp.eq.u32 %p1, %r0, 0; mov.u32 %r2, 0;
			@%p1 st.shared.v2.u32 [s], {0, 0};
		L: bar.sync 0;
			red.shared.add.u32 [s], 1;
			barrier.cta.sync 0;
			add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 50; @%p2 bra L;
			bar.sync 0;
			ld.shared.u32 %r3, [s]; st.global.u32 [%rd1], %r3;`, 96, func(uint32) uint32 { return 4800 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, got := range runThreads(t, tt.threads, tt.body) {
				require.Equalf(t, tt.want(uint32(i)), got, "thread %d", i)
			}
		})
	}
}

func TestCollectives(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       func(i uint32) uint32
	}{
		{"shfl up", "shfl.sync.up.b32 %r2|%p1, %r0, 3, 0, -1; selp.u32 %r3, 100, 0, %p1; add.u32 %r2, %r2, %r3; st.global.u32 [%rd1], %r2;",
			func(i uint32) uint32 {
				if i < 3 {
					return i
				}
				return i - 3 + 100
			}},
		{"shfl down in halves", "shfl.sync.down.b32 %r2, %r0, 1, 0x100f, -1; st.global.u32 [%rd1], %r2;",
			func(i uint32) uint32 {
				if i%16 == 15 {
					return i
				}
				return i + 1
			}},
		{"shfl bfly", "shfl.sync.bfly.b32 %r2, %r0, 5, 31, 0xffffffff; st.global.u32 [%rd1], %r2;", func(i uint32) uint32 { return i ^ 5 }},
		{"shfl idx", "shfl.sync.idx.b32 %r2|_, %r0, 7, 0x181f, 0xffffffff; st.global.u32 [%rd1], %r2;", func(i uint32) uint32 { return i&^7 | 7 }},
		{"shfl with lane-dependent source", "sub.u32 %r4, 31, %r0; shfl.sync.idx.b32 %r2, %r0, %r4, 31, -1; st.global.u32 [%rd1], %r2;", func(i uint32) uint32 { return 31 - i }},
		{"shfl into its own source", "shfl.sync.bfly.b32 %r0, %r0, 1, 31, -1; st.global.u32 [%rd1], %r0;", func(i uint32) uint32 { return i ^ 1 }},
		{"ballot", "setp.lt.u32 %p1, %r0, 9; vote.sync.ballot.b32 %r2, %p1, -1; st.global.u32 [%rd1], %r2;", func(uint32) uint32 { return 0x1ff }},
		{"ballot of a negated predicate", "setp.lt.u32 %p1, %r0, 9; vote.sync.ballot.b32 %r2, !%p1, -1; st.global.u32 [%rd1], %r2;", func(uint32) uint32 { return ^uint32(0x1ff) }},
		{"votes", `setp.lt.u32 %p1, %r0, 9;
			vote.sync.all.pred %p2, %p1, -1; vote.sync.any.pred %p3, %p1, -1; vote.sync.uni.pred %p4, %p1, -1;
			selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 2, 0, %p3; selp.u32 %r4, 4, 0, %p4; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;
			st.global.u32 [%rd1], %r2;`, func(uint32) uint32 { return 2 }},
		{"match any", "shr.u32 %r2, %r0, 3; match.any.sync.b32 %r3, %r2, -1; st.global.u32 [%rd1], %r3;", func(i uint32) uint32 { return 0xff << (i &^ 7) }},
		{"match all", `mov.u64 %rd2, 5; match.all.sync.b64 %r3|%p1, %rd2, -1; match.all.sync.b32 %r4|%p2, %r0, -1;
			selp.u32 %r5, %r3, 0, %p1; selp.u32 %r6, 1, %r4, %p2; xor.b32 %r5, %r5, %r6; st.global.u32 [%rd1], %r5;`, func(uint32) uint32 { return all32 }},
		{"redux", `redux.sync.add.u32 %r2, %r0, -1; redux.sync.max.s32 %r3, %r0, -1; redux.sync.xor.b32 %r4, %r0, -1;
			shl.b32 %r3, %r3, 16; add.u32 %r2, %r2, %r3; shl.b32 %r4, %r4, 24; add.u32 %r2, %r2, %r4; st.global.u32 [%rd1], %r2;`,
			func(uint32) uint32 { return 496 + 31<<16 }},
		{"a mask of half the warp, the other half elsewhere", `
			setp.ge.u32 %p1, %r0, 16; mov.u32 %r2, 99;
			@%p1 bra DONE;
			shfl.sync.bfly.b32 %r2, %r0, 1, 31, 0xffff;
		DONE: st.global.u32 [%rd1], %r2;`, func(i uint32) uint32 {
			if i < 16 {
				return i ^ 1
			}
			return 99
		}},
		{"two groups by mask at one instruction", `
			setp.ge.u32 %p1, %r0, 16; selp.u32 %r3, 0xffff0000, 0xffff, %p1;
			redux.sync.add.u32 %r2, 1, %r3; vote.sync.ballot.b32 %r4, %p1, %r3; add.u32 %r2, %r2, %r4;
			st.global.u32 [%rd1], %r2;`, func(i uint32) uint32 {
			if i < 16 {
				return 16
			}
			return 16 + 0xffff0000
		}},
		{"lanes meet from two sides of a branch", `
			and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0;
			@%p1 bra EVEN;
			shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1; add.u32 %r2, %r2, 1000; bra END;
		EVEN: shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1; add.u32 %r2, %r3, 2000;
		END: st.global.u32 [%rd1], %r2;`, func(i uint32) uint32 {
			if i%2 == 0 {
				return i + 1 + 2000
			}
			return i - 1 + 1000
		}},
		{"warp barrier across a branch orders memory", `
			setp.lt.u32 %p1, %r0, 16;
			@%p1 bra LOW;
			bar.warp.sync -1; ld.global.u32 %r2, [%rd0+1024]; bra END;
		LOW: mov.u32 %r2, 3; st.global.u32 [%rd0+1024], 8; bar.warp.sync 0xffffffff;
		END: st.global.u32 [%rd1], %r2;`, func(i uint32) uint32 {
			if i < 16 {
				return 3
			}
			return 8
		}},
		{"members that have exited are not waited for", `
			setp.lt.u32 %p1, %r0, 4; @%p1 exit;
			vote.sync.ballot.b32 %r2, 1, -1; st.global.u32 [%rd1], %r2;`, func(i uint32) uint32 {
			if i < 4 {
				return 0
			}
			return 0xfffffff0
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, got := range runThreads(t, 32, tt.body) {
				require.Equalf(t, tt.want(uint32(i)), got, "thread %d", i)
			}
		})
	}
	got := runThreads(t, 32, `setp.lt.u32 %p2, %r0, 4; @%p2 exit;
		elect.sync %r2|%p1, -1; selp.u32 %r3, 50, 0, %p1; add.u32 %r2, %r2, %r3; st.global.u32 [%rd1], %r2;`)
	require.EqualValues(t, 54, got[4])
	require.EqualValues(t, 4, got[5])
}

// Blocks that wait for one another make progress however they are scheduled.
func TestBlocksSpinOnEachOther(t *testing.T) {
	body := `
	mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;
	mul.wide.u32 %rd1, %r1, 4; add.s64 %rd1, %rd0, %rd1;
	setp.ne.u32 %p1, %r2, 0; @%p1 bra WAIT;
	st.release.gpu.global.u32 [%rd1], 1;
WAIT:
	mov.u32 %r5, 0;
NEXT: mul.wide.u32 %rd2, %r5, 4; add.s64 %rd2, %rd0, %rd2;
SPIN: ld.acquire.gpu.global.u32 %r6, [%rd2]; setp.eq.u32 %p2, %r6, 0; @%p2 bra SPIN;
	add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 8; @%p3 bra NEXT;
	red.global.add.u32 [%rd0+1024], 1;`
	for seed := range uint64(10) {
		mem := newFlat(4096)
		mustRun(t, body, mem, runOpts{grid: [3]uint32{8, 1, 1}, block: [3]uint32{48, 1, 1}, seed: seed})
		require.EqualValues(t, 8*48, mem.u32(256))
	}
}

func newTestBlock(t *testing.T, body string, mem Memory, threads uint32, clock func() uint64, limit uint64) *Block {
	t.Helper()
	k := parse(t, entry(body))
	b, err := NewBlock(&Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{threads, 1, 1}, Memory: mem, Clock: clock,
		Params: binary.LittleEndian.AppendUint64(nil, flatBase), StepLimit: limit}, [3]uint32{})
	require.NoError(t, err)
	return b
}

func TestNanosleep(t *testing.T) {
	now := uint64(1000)
	mem := newFlat(4096)
	b := newTestBlock(t, `mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 32; @%p1 bra SLEEP;
		st.global.u32 [%rd0], 1; ret;
	SLEEP: nanosleep.u32 500; mov.u64 %rd2, %globaltimer; st.global.u64 [%rd0+8], %rd2;`, mem, 64, func() uint64 { return now }, 0)
	for range 3 {
		s, err := b.Run(Quantum{Warps: 1000})
		require.NoError(t, err)
		require.Equal(t, Sleeping, s)
	}
	require.EqualValues(t, 1, mem.u32(0), "the other warp ran on")
	now = 1499
	s, _ := b.Run(Quantum{Warps: 1000})
	require.Equal(t, Sleeping, s)
	now = 1500
	s, err := b.Run(Quantum{Warps: 1000})
	require.NoError(t, err)
	require.Equal(t, Done, s)
	require.EqualValues(t, 1500, mem.u64(1))
	s, err = b.Run(Quantum{Warps: 1})
	require.NoError(t, err)
	require.Equal(t, Done, s)
	w, threads := b.Counts()
	require.EqualValues(t, 8+6, w)
	require.EqualValues(t, 14*32, threads)
}

func TestQuantum(t *testing.T) {
	mem := newFlat(4096)
	b := newTestBlock(t, "mov.u32 %r1, 0; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 1000; @%p1 bra L; st.global.u32 [%rd0], %r1;", mem, 32, nil, 0)
	last := uint64(0)
	for {
		s, err := b.Run(Quantum{Warps: 100, Rand: rand.New(rand.NewPCG(1, 1))})
		require.NoError(t, err)
		w, _ := b.Counts()
		require.LessOrEqual(t, w-last, uint64(100))
		last = w
		if s == Done {
			break
		}
		require.Equal(t, Ready, s)
	}
	require.EqualValues(t, 3000+4, last)
	require.EqualValues(t, 1000, mem.u32(0))
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		kind       FaultKind
		line       int // within the body, from 1
		thread     [3]uint32
		addr       uint64
		size       int
		text       string
		why        string
	}{
		{"unmapped", "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd1, %r1, 1024;\nadd.s64 %rd1, %rd0, %rd1;\nld.global.v2.u32 {%r2, %r3}, [%rd1+8];",
			BadAddress, 4, [3]uint32{4, 0, 0}, flatBase + 4096 + 8, 8, "ld.global.v2.u32 {%r2, %r3}, [%rd1+8];", "memory is"},
		{"null", "mov.u64 %rd1, 0;\n\nst.u32 [%rd1], 1;", BadAddress, 3, [3]uint32{}, 0, 4, "st.u32 [%rd1], 1;", "memory is"},
		{"misaligned", "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd1, %r1, 1;\nadd.s64 %rd1, %rd0, %rd1;\nld.global.u16 %h1, [%rd1];",
			Misaligned, 4, [3]uint32{1, 0, 0}, flatBase + 1, 2, "ld.global.u16 %h1, [%rd1];", ""},
		{"vectors align as a whole", "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd0+8];", Misaligned, 1, [3]uint32{}, flatBase + 8, 16, "ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd0+8];", ""},
		{"shared out of bounds", ".shared .b32 s[4];\nmov.u32 %r1, %tid.x;\nmul.lo.u32 %r1, %r1, 4;\nst.shared.u32 [%r1], 1;",
			BadAddress, 4, [3]uint32{4, 0, 0}, 16, 4, "st.shared.u32 [%r1], 1;", "outside the 16 bytes of .shared"},
		{"local out of bounds", ".local .b32 s[4];\nmov.u64 %rd1, s;\ncvta.local.u64 %rd1, %rd1;\nst.u32 [%rd1+16], 1;",
			BadAddress, 4, [3]uint32{}, localWindow + 16, 4, "st.u32 [%rd1+16], 1;", "outside the 16 bytes of .local"},
		{"global access to a shared address", ".shared .b32 s;\nmov.u64 %rd1, s;\ncvta.shared.u64 %rd1, %rd1;\nst.global.u32 [%rd1], 1;",
			BadAddress, 4, [3]uint32{}, sharedWindow, 4, "st.global.u32 [%rd1], 1;", "memory is"},
		{"parameters are read-only", "mov.b64 %rd1, p;\ncvta.param.u64 %rd1, %rd1;\nst.u32 [%rd1], 1;", BadAddress, 3, [3]uint32{}, paramWindow, 4, "st.u32 [%rd1], 1;", "read-only"},
		{"trap", "mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 33;\n@%p1 trap;", Trap, 3, [3]uint32{33, 0, 0}, 0, 0, "@%p1 trap;", "trap"},
		{"bad index", "T: .branchtargets A;\nmov.u32 %r1, 1;\nbrx.idx %r1, T;\nA:", Trap, 3, [3]uint32{}, 0, 0, "brx.idx %r1, T;", "outside"},
		{"bad barrier", "mov.u32 %r1, 16;\nbar.sync %r1;", Trap, 2, [3]uint32{}, 0, 0, "bar.sync %r1;", "there are 16"},
		{"a spin that never ends names its load", "L:\nld.acquire.sys.global.u32 %r1, [%rd0];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;",
			Deadlock, 2, [3]uint32{}, 0, 0, "ld.acquire.sys.global.u32 %r1, [%rd0];", "no end"},
		{"so does one that looks at the clock", "L:\nld.relaxed.sys.global.u32 %r1, [%rd0];\nmov.u64 %rd2, %globaltimer;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;",
			Deadlock, 2, [3]uint32{}, 0, 0, "ld.relaxed.sys.global.u32 %r1, [%rd0];", "no end"},
		{"an empty loop names its branch", "L:\nbra L;", Deadlock, 2, [3]uint32{}, 0, 0, "bra L;", "no end"},
		{"barrier that nobody else reaches", "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 32;\n@%p1 bra L;\nbar.sync 1;\nL:\nbar.sync 2;",
			Deadlock, 6, [3]uint32{}, 0, 0, "bar.sync 2;", "barrier"},
		{"collective that nobody else reaches", "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 8;\n@%p1 bra L;\nbar.sync 1;\nL:\nvote.sync.ballot.b32 %r2, 1, -1;",
			Deadlock, 6, [3]uint32{}, 0, 0, "vote.sync.ballot.b32 %r2, 1, -1;", "barrier"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := parse(t, entry(tt.body))
			_, _, err := run(t, k, newFlat(4096), runOpts{block: [3]uint32{64, 1, 1}, limit: 20000})
			var f *Fault
			require.ErrorAs(t, err, &f)
			require.Equal(t, tt.kind, f.Kind, f.Error())
			require.Equal(t, tt.line+6, f.Line, f.Error())
			require.Equal(t, tt.text, f.Text)
			require.Equal(t, "test.ptx", f.File)
			if tt.why == "no end" {
				require.Zero(t, f.Thread[0]%32, "first lane of either warp")
			} else {
				require.Equal(t, tt.thread, f.Thread)
			}
			require.Equal(t, tt.addr, f.Addr)
			require.Equal(t, tt.size, f.Size)
			if tt.why != "" {
				require.ErrorContains(t, f, tt.why)
			}
		})
	}
}

func TestFaultStays(t *testing.T) {
	b := newTestBlock(t, "trap;", newFlat(64), 1, nil, 0)
	_, err := b.Run(Quantum{Warps: 10})
	_, again := b.Run(Quantum{Warps: 10})
	require.Error(t, err)
	require.Equal(t, err, again)
	require.Equal(t, "trap in block (0,0,0) thread (0,0,0) at test.ptx:7 `trap;`: the kernel executed trap", err.Error())
	var f *Fault
	require.True(t, errors.As(err, &f))
}

// Segments are dropped when the generation changes.
func TestGeneration(t *testing.T) {
	mem := newFlat(4096)
	b := newTestBlock(t, "st.global.u32 [%rd0], 1; nanosleep.u32 10; st.global.u32 [%rd0], 2;", mem, 32, func() uint64 { return mem.gen * 100 }, 0)
	s, err := b.Run(Quantum{Warps: 100})
	require.NoError(t, err)
	require.Equal(t, Sleeping, s)
	old := mem.data
	mem.data, mem.gen = make([]byte, 4096), 1
	s, err = b.Run(Quantum{Warps: 100})
	require.NoError(t, err)
	require.Equal(t, Done, s)
	require.EqualValues(t, 1, old[0])
	require.EqualValues(t, 2, mem.data[0])
}

// A host that uses sync/atomic on a word while a kernel polls it with a strong load is no data race.
func TestHostWrites(t *testing.T) {
	mem := newFlat(4096)
	b := newTestBlock(t, `L: ld.relaxed.sys.global.u32 %r1, [%rd0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;
		st.relaxed.sys.global.u32 [%rd0+4], %r1; atom.relaxed.sys.global.add.u32 %r2, [%rd0+8], 3;`, mem, 32, nil, 0)
	word := func(i int) *uint32 { return (*uint32)(unsafe.Pointer(&mem.data[4*i])) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			atomic.AddUint32(word(2), 1)
		}
		atomic.StoreUint32(word(0), 7)
		for atomic.LoadUint32(word(1)) == 0 {
		}
	}()
	for {
		s, err := b.Run(Quantum{Warps: 100})
		require.NoError(t, err)
		if s == Done {
			break
		}
	}
	<-done
	require.EqualValues(t, 7, mem.u32(1))
	require.EqualValues(t, 100+32*3, mem.u32(2))
}

// Kernels may run on many goroutines at once, and memory kept for the next block starts out zeroed.
func TestConcurrentBlocks(t *testing.T) {
	k := parse(t, entry(perThread+`
		.shared .b32 s; .local .b32 v;
		ld.shared.u32 %r2, [s]; ld.local.u32 %r3, [v]; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r20;
		bar.sync 0;
		st.global.u32 [%rd1], %r2; st.shared.u32 [s], 5; st.local.u32 [v], 6; mov.u32 %r20, 9;`))
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			for range 50 {
				mem := newFlat(1024)
				mem.set32(3, 77)
				_, _, err := run(t, k, mem, runOpts{block: [3]uint32{64, 1, 1}, seed: g, racy: true})
				assert.NoError(t, err)
				assert.Equal(t, make([]byte, 256), mem.data[:256])
			}
		})
	}
	wg.Wait()
}
