package ptx

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every width of load and store, with extension and truncation, in every space that has them.
func TestLoadsAndStores(t *testing.T) {
	const word = uint64(0x8182838485868788)
	for _, space := range []string{"global", "shared", "local", "generic"} {
		for _, tt := range []struct {
			typ, reg string
			want     uint64 // of a load into a register of that width
		}{
			{"u8", "h", 0x88}, {"s8", "h", 0xff88}, {"b8", "r", 0x88}, {"s8", "r", 0xffffff88}, {"u8", "rd", 0x88}, {"s8", "rd", 0xffffffffffffff88},
			{"u16", "h", 0x8788}, {"s16", "h", 0x8788}, {"b16", "r", 0x8788}, {"s16", "r", 0xffff8788}, {"s16", "rd", 0xffffffffffff8788},
			{"u32", "r", 0x85868788}, {"s32", "r", 0x85868788}, {"u32", "rd", 0x85868788}, {"s32", "rd", 0xffffffff85868788},
			{"f32", "f", 0x85868788}, {"b64", "rd", word}, {"f64", "d", word},
		} {
			for _, threads := range []uint32{32, 5} {
				t.Run(fmt.Sprintf("%s/%s into %s/%d", space, tt.typ, tt.reg, threads), func(t *testing.T) {
					sp, decl, addr := "."+space, "", "%rd0"
					switch space {
					case "shared":
						decl, addr = ".shared .align 8 .b8 v[1024]; mov.u64 %rd5, v; cvt.u64.u32 %rd6, %r0; mad.lo.u64 %rd5, %rd6, 8, %rd5;\n", "%rd5"
					case "local":
						decl, addr = ".local .align 8 .b8 v[16]; mov.u64 %rd5, v;\n", "%rd5"
					case "generic":
						sp = ""
					}
					store := map[string]string{"h": "st.global.u16", "r": "st.global.u32", "rd": "st.global.u64", "f": "st.global.f32", "d": "st.global.f64"}[tt.reg]
					mem := newFlat(4096)
					body := "mov.u32 %r0, %tid.x;\n" + decl + fmt.Sprintf(`
	mov.u64 %%rd7, %#[1]x;
	st%[2]s.u64 [%[3]s], %%rd7;
	ld%[2]s.%[4]s %%%[5]s3, [%[3]s];
	cvt.u64.u32 %%rd6, %%r0; mad.lo.u64 %%rd8, %%rd6, 8, %%rd0;
	%[6]s [%%rd8+1024], %%%[5]s3;
	ld%[2]s.%[4]s %%%[5]s4, [%[3]s];
	st%[2]s.%[4]s [%[3]s+0], %%%[5]s4;
	ld%[2]s.u64 %%rd9, [%[3]s];
	st.global.u64 [%%rd8+2048], %%rd9;`, word, sp, addr, tt.typ, tt.reg, store)
					mustRun(t, body, mem, runOpts{block: [3]uint32{threads, 1, 1}})
					for i := range int(threads) {
						require.Equal(t, tt.want, mem.u64(128+i))
						require.Equal(t, word, mem.u64(256+i), "storing what was loaded changes nothing")
					}
				})
			}
		}
	}
}

func TestVectorAccess(t *testing.T) {
	mem := newFlat(8192)
	for i := range 1024 {
		mem.set32(i, uint32(i)*0x01010101)
	}
	mustRun(t, `
	mov.u32 %r0, %tid.x;
	mul.wide.u32 %rd1, %r0, 16; add.s64 %rd1, %rd0, %rd1;
	ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
	st.global.v4.b32 [%rd1+4096], {%r4, %r3, %r2, %r1};
	ld.global.nc.L1::no_allocate.L2::128B.v2.u64 {%rd2, %rd3}, [%rd1];
	add.s64 %rd2, %rd2, %rd3;
	ld.global.cv.v4.u16 {%h1, %h2, %h3, %h4}, [%rd1];
	ld.global.v2.b8 {%h5, %h6}, [%rd1+4];
	ld.volatile.global.v2.f32 {%f1, _}, [%rd1+8];
	st.global.wt.v4.u16 [%rd1+4608], {%h4, %h5, %h6, %h1};
	st.global.cs.v2.f32 [%rd1+4616], {%f1, %f1};
`, mem, runOpts{block: [3]uint32{32, 1, 1}})
	for i := range 32 {
		w := func(k int) uint32 { return uint32(4*i+k) * 0x01010101 }
		for k := range 4 {
			require.Equal(t, w(3-k), mem.u32(1024+4*i+k))
		}
		require.Equal(t, w(1)>>16|w(1)<<24>>8, mem.u32(1152+4*i))
		require.Equal(t, w(1)>>8&0xff|w(0)<<16, mem.u32(1152+4*i+1))
		require.Equal(t, w(2), mem.u32(1152+4*i+2))
	}
}

func TestVariables(t *testing.T) {
	src := header + `
.visible .global .align 4 .u32 counter = 41;
.const .align 8 .f64 table[4] = {1.0, 0d4000000000000000, 3};
.global .align 2 .b8 text[6] = {104, 0x69};
.global .u16 grid[2][2] = {{1, 2}, {3, 4}};
.global .f32 pi = 0f40490FDB;
.extern .shared .align 16 .b8 dyn[];
.shared .align 4 .b8 fixed[20];
.visible .entry k(.param .u64 p) {
	.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .f64 %d<3>; .reg .b16 %h<3>; .reg .pred %q;
	ld.param.u64 %rd0, [p];
	atom.global.add.u32 %r1, [counter], 1;
	st.global.u32 [%rd0], %r1;
	ld.const.f64 %d1, [table+8];
	st.global.f64 [%rd0+8], %d1;
	mov.u64 %rd1, text; ld.global.u8 %h1, [%rd1+1]; st.global.u16 [%rd0+16], %h1;
	ld.global.u16 %h2, [grid+6]; st.global.u16 [%rd0+18], %h2;
	cvta.global.u64 %rd2, pi; ld.u32 %r2, [%rd2]; st.global.u32 [%rd0+20], %r2;
	mov.u32 %r3, dyn; st.global.u32 [%rd0+24], %r3;
	mov.u32 %r4, %dynamic_smem_size; st.global.u32 [%rd0+28], %r4;
	st.shared.u32 [dyn+4], 9; mov.u64 %rd3, dyn; cvta.shared.u64 %rd3, %rd3; ld.u32 %r5, [%rd3+4]; st.global.u32 [%rd0+32], %r5;
	isspacep.shared %q, %rd3; selp.u32 %r6, 1, 0, %q; isspacep.global %q, %rd0; selp.u32 %r7, 2, 0, %q; add.u32 %r6, %r6, %r7;
	isspacep.global %q, %rd3; selp.u32 %r7, 4, 0, %q; add.u32 %r6, %r6, %r7; st.global.u32 [%rd0+36], %r6;
	cvta.to.shared.u64 %rd4, %rd3; st.global.u32 [%rd0+40], %rd4;
	mov.u32 %r8, fixed; st.global.u32 [%rd0+44], %r8;
	ret;
}`
	m, err := Parse("v.ptx", []byte(src))
	require.NoError(t, err)
	require.Equal(t, []string{"counter", "table", "text", "grid", "pi"}, func() (names []string) {
		for _, g := range m.Globals {
			names = append(names, g.Name)
		}
		return
	}())
	require.True(t, m.Globals[1].Const)
	require.Equal(t, []byte{104, 0x69, 0, 0, 0, 0}, m.Globals[2].Init)
	require.Equal(t, []byte{1, 0, 2, 0, 3, 0, 4, 0}, m.Globals[3].Init)
	mem := newFlat(8192)
	var addrs []uint64
	at := 4096
	for _, g := range m.Globals {
		at = alignUp(at, max(g.Align, 16))
		addrs = append(addrs, flatBase+uint64(at))
		require.Len(t, g.Init, g.Size)
		copy(mem.data[at:], g.Init)
		at += g.Size
	}
	k, _ := m.Kernel("k")
	require.Equal(t, 20, k.StaticShared)
	_, _, err = run(t, k, mem, runOpts{shared: 64, globals: addrs, block: [3]uint32{1, 1, 1}})
	require.NoError(t, err)
	require.EqualValues(t, 41, mem.u32(0))
	require.EqualValues(t, 42, binary.LittleEndian.Uint32(mem.data[addrs[0]-flatBase:]))
	require.Equal(t, f64(2), mem.u64(1))
	require.EqualValues(t, 0x69|4<<16, mem.u32(4))
	require.EqualValues(t, 0x40490fdb, mem.u32(5))
	require.EqualValues(t, 32, mem.u32(6), "dynamic shared memory follows the static part, aligned to 16")
	require.EqualValues(t, 64, mem.u32(7))
	require.EqualValues(t, 9, mem.u32(8))
	require.EqualValues(t, 3, mem.u32(9))
	require.EqualValues(t, 32, mem.u32(10))
	require.EqualValues(t, 0, mem.u32(11))

	_, err = NewBlock(&Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: make([]byte, 8), Memory: mem}, [3]uint32{})
	require.ErrorContains(t, err, "addresses of module variables")
}

func TestParams(t *testing.T) {
	src := header + `.visible .entry k(.param .u64 .ptr .global .align 4 out, .param .u8 a, .param .align 16 .b8 s[24], .param .f32 f, .param .u64 last) .maxntid 64, 2 .minnctapersm 2 {
	.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .b16 %h<3>;
	ld.param.u64 %rd0, [out];
	ld.param.u8 %h1, [a]; cvt.u32.u16 %r1, %h1;
	ld.param.v4.u32 {%r2, %r3, %r4, %r5}, [s];
	ld.param.s8 %r6, [s+16];
	mov.u32 %r7, %tid.x; and.b32 %r7, %r7, 3; mul.wide.u32 %rd2, %r7, 4;
	mov.b64 %rd1, s; add.s64 %rd1, %rd1, %rd2; ld.param.u32 %r8, [%rd1];
	cvta.param.u64 %rd3, %rd1; ld.u32 %r7, [%rd3]; add.u32 %r8, %r8, %r7;
	mov.u32 %r7, %tid.x; mul.wide.u32 %rd4, %r7, 4; add.s64 %rd4, %rd4, %rd0;
	st.global.u32 [%rd4+64], %r8;
	ld.param.b32 %r7, [f];
	ld.param.u64 %rd5, [last];
	add.u32 %r2, %r2, %r5;
	st.global.v4.u32 [%rd0], {%r1, %r2, %r6, %r7}; st.global.u64 [%rd0+16], %rd5;
	ret;
}`
	m, err := Parse("p.ptx", []byte(src))
	require.NoError(t, err)
	sig, ok := m.Info.Entry("k")
	require.True(t, ok)
	require.Equal(t, []Param{
		{"out", "u64", false, 8, 8, 0}, {"a", "u8", false, 1, 1, 8}, {"s", "b8", true, 24, 16, 16},
		{"f", "f32", false, 4, 4, 40}, {"last", "u64", false, 8, 8, 48},
	}, sig.Params)
	require.Equal(t, 56, sig.ParamBytes)
	require.EqualValues(t, 128, sig.MaxThreads)
	p := make([]byte, 56)
	binary.LittleEndian.PutUint64(p, flatBase)
	p[8] = 200
	for i := range 4 {
		binary.LittleEndian.PutUint32(p[16+4*i:], uint32(100+i))
	}
	p[32] = 0xfe
	binary.LittleEndian.PutUint32(p[40:], 0x3f800000)
	binary.LittleEndian.PutUint64(p[48:], 1<<60)
	mem := newFlat(4096)
	k, _ := m.Kernel("k")
	_, _, err = run(t, k, mem, runOpts{params: p, block: [3]uint32{32, 1, 1}})
	require.NoError(t, err)
	require.Equal(t, []uint32{200, 203, 0xfffffffe, 0x3f800000}, mem.words(4))
	require.EqualValues(t, 1<<60, mem.u64(2))
	for i := range 32 {
		require.EqualValues(t, 2*(100+i%4), mem.u32(16+i))
	}
}

func TestAtomics(t *testing.T) {
	for _, tt := range []struct {
		text       string
		start      uint64
		old1, last uint64 // what thread 1 of 3 finds, and what is left
	}{
		{"atom.global.add.u32 %r1, [%rd0], 5", 1, 6, 16},
		{"atom.global.add.s32 %r1, [%rd0], -1", 1, 0, 0xfffffffe},
		{"atom.add.f32 %f1, [%rd0], 0f3F800000; mov.b32 %r1, %f1", f32(1), f32(2), f32(4)},
		{"atom.global.add.f32 %f1, [%rd0], 0f00000001; mov.b32 %r1, %f1", 0x80000001, 0, 0}, // flushes subnormals
		{"red.global.add.f32 [%rd0], 0f00800000; mov.u32 %r1, 0", 0x80400000, 0, f32(0x1.8p-125)},
		{"atom.global.exch.b32 %r1, [%rd0], %r5", 7, 10, 12},
		{"atom.global.cas.b32 %r1, [%rd0], 7, %r5", 7, 10, 10},
		{"atom.global.min.u32 %r1, [%rd0], %r5", all32, 10, 10},
		{"atom.global.max.s32 %r1, [%rd0], %r5", all32, 10, 12},
		{"atom.global.inc.u32 %r1, [%rd0], 1", 0, 1, 1},
		{"atom.global.dec.u32 %r1, [%rd0], 5", 1, 0, 4},
		{"atom.global.and.b32 %r1, [%rd0], 0xf0", 0xff, 0xf0, 0xf0},
		{"atom.acq_rel.sys.global.or.b32 %r1, [%rd0], %r5", 0, 10, 15},
		{"atom.relaxed.cta.global.xor.b32 %r1, [%rd0], 1", 0, 1, 1},
		{"atom.global.add.noftz.f16x2 %r1, [%rd0], 0x3c004000", 0, 0x3c004000, 0x42004600},
		{"atom.global.add.u64 %rd1, [%rd0], 1; cvt.u32.u64 %r1, %rd1", all32, 0, 1<<32 + 2},
		{"atom.global.cas.b64 %rd1, [%rd0], 5, 6; cvt.u32.u64 %r1, %rd1", 5, 6, 6},
		{"atom.global.cas.b16 %h1, [%rd0], 5, 6; cvt.u32.u16 %r1, %h1", 5, 6, 6},
		{"red.release.gpu.global.add.u32 [%rd0], 2; mov.u32 %r1, 0", 0, 0, 6},
		{"red.global.max.u32 [%rd0], %r5; mov.u32 %r1, 0", 0, 0, 12},
		{"red.global.add.f64 [%rd0], 0d3FF0000000000000; mov.u32 %r1, 0", 0, 0, f64(3)},
	} {
		t.Run(tt.text, func(t *testing.T) {
			mem := newFlat(4096)
			mem.set64(0, tt.start)
			mustRun(t, "mov.u32 %r0, %tid.x; add.u32 %r5, %r0, 10;\n"+tt.text+";\nmul.wide.u32 %rd2, %r0, 4; add.s64 %rd2, %rd2, %rd0; st.global.u32 [%rd2+64], %r1;",
				mem, runOpts{block: [3]uint32{3, 1, 1}})
			require.EqualValues(t, tt.old1, mem.u32(17))
			require.Equal(t, tt.last, mem.u64(0))
		})
	}
}

func TestSpecialRegisters(t *testing.T) {
	mem := newFlat(1 << 16)
	body := `
	mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
	mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y;
	mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1;
	mul.wide.u32 %rd1, %r6, 64; add.s64 %rd1, %rd1, %rd0;
	shl.b32 %r2, %r2, 8; shl.b32 %r3, %r3, 16; or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3;
	st.global.u32 [%rd1], %r1;
	mov.u32 %r7, %laneid; st.global.u32 [%rd1+4], %r7;
	mov.u32 %r7, %warpid; st.global.u32 [%rd1+8], %r7;
	mov.u32 %r7, %lanemask_lt; st.global.u32 [%rd1+12], %r7;
	mov.u32 %r7, %lanemask_ge; st.global.u32 [%rd1+16], %r7;
	mov.u32 %r7, %lanemask_le; st.global.u32 [%rd1+20], %r7;
	mov.u32 %r7, %lanemask_gt; st.global.u32 [%rd1+24], %r7;
	mov.u32 %r7, %lanemask_eq; st.global.u32 [%rd1+28], %r7;
	add.u32 %r7, %ctaid.x, %nctaid.y; mad.lo.u32 %r7, %ctaid.y, 16, %r7; st.global.u32 [%rd1+32], %r7;
	mov.u64 %rd2, %globaltimer; st.global.u64 [%rd1+40], %rd2;
	mov.u32 %r7, %nwarpid; st.global.u32 [%rd1+48], %r7;
	mov.u32 %r7, %globaltimer_lo; st.global.u32 [%rd1+52], %r7;
	cvt.u32.u16 %r7, %ntid.x; st.global.u32 [%rd1+56], %r7;
	mov.u16 %h1, %ctaid.y; cvt.u32.u16 %r7, %h1; st.global.u32 [%rd1+60], %r7;`
	mustRun(t, body, mem, runOpts{block: [3]uint32{5, 4, 3}, grid: [3]uint32{1, 2, 1}, clock: func() uint64 { return 1<<40 + 5 }, racy: true})
	for i := range uint32(60) {
		lane := i % 32
		at := int(i) * 16
		require.Equal(t, i%5|i/5%4<<8|i/20<<16, mem.u32(at))
		require.Equal(t, lane, mem.u32(at+1))
		require.Equal(t, i/32, mem.u32(at+2))
		require.Equal(t, uint32(1)<<lane-1, mem.u32(at+3))
		require.Equal(t, all32<<lane&uint32(all32), mem.u32(at+4))
		require.Equal(t, uint32(uint64(1)<<(lane+1)-1), mem.u32(at+5))
		require.Equal(t, ^uint32(uint64(1)<<(lane+1)-1), mem.u32(at+6))
		require.Equal(t, uint32(1)<<lane, mem.u32(at+7))
		require.Contains(t, []uint32{2, 18}, mem.u32(at+8))
		require.EqualValues(t, 1<<40+5, mem.u64(at/2+5))
		require.EqualValues(t, 2, mem.u32(at+12))
		require.EqualValues(t, 5, mem.u32(at+13))
		require.EqualValues(t, 5, mem.u32(at+14))
		require.Contains(t, []uint32{0, 1}, mem.u32(at+15))
	}
}

func TestCalls(t *testing.T) {
	src := header + `
.func (.param .b32 r) twice(.param .b32 x);
.func (.reg .u32 r) quad(.reg .u32 x) {
	.reg .b32 %r<4>;
	{
	.param .b32 a; .param .b32 b;
	st.param.b32 [a], x;
	call.uni (b), twice, (a);
	ld.param.b32 %r1, [b];
	}
	add.u32 r, %r1, %r1;
	ret;
}
.func (.param .b32 r) twice(.param .b32 x) {
	.reg .b32 %r<4>; .reg .pred %p;
	ld.param.b32 %r1, [x];
	setp.gt.u32 %p, %r1, 20; @%p bra BIG;
	add.u32 %r1, %r1, %r1;
	st.param.b32 [r], %r1; ret;
BIG: st.param.b32 [r], 1000; ret;
}
.func bump(.param .b64 p, .param .align 16 .b8 s[24]) {
	.reg .b64 %rd<4>;
	ld.param.b64 %rd1, [p]; ld.param.b64 %rd2, [s+16];
	red.global.add.u64 [%rd1+1024], %rd2;
	ret;
}
.func unused(.reg .f32 x) { .reg .f32 y; add.f32 y, x, x; }
.visible .entry k(.param .u64 p) {
	.reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p;
	ld.param.u64 %rd0, [p];
	mov.u32 %r0, %tid.x;
	call (%r1), quad, (%r0);
	mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd1, %rd0;
	st.global.u32 [%rd1], %r1;
	setp.lt.u32 %p, %r0, 3;
	mov.u32 %r2, 7;
	@%p call (%r2), quad, (5);
	st.global.u32 [%rd1+256], %r2;
	.param .b64 q; .param .align 16 .b8 s[24];
	st.param.b64 [q], %rd0; st.param.v2.b64 [s], {1, 2}; st.param.b64 [s+16], 3;
	@!%p call bump, (q, s);
	ret;
}`
	k := func() *Kernel {
		m, err := Parse("c.ptx", []byte(src))
		require.NoError(t, err)
		k, _ := m.Kernel("k")
		return k
	}()
	mem := newFlat(4096)
	_, _, err := run(t, k, mem, runOpts{block: [3]uint32{32, 1, 1}})
	require.NoError(t, err)
	for i := range uint32(32) {
		want := 4 * i
		if i > 20 {
			want = 2000
		}
		require.Equal(t, want, mem.u32(int(i)))
		want = 7
		if i < 3 {
			want = 20
		}
		require.Equal(t, want, mem.u32(64+int(i)))
	}
	require.EqualValues(t, 29*3, mem.u64(128))
}

func TestNewBlockRefuses(t *testing.T) {
	k := parse(t, header+".visible .entry k(.param .u64 p) .reqntid 64 { ret; }")
	good := Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}, Params: make([]byte, 8), Memory: newFlat(64)}
	_, err := NewBlock(&good, [3]uint32{})
	require.NoError(t, err)
	for _, tt := range []struct {
		name, want string
		change     func(l *Launch)
	}{
		{"no kernel", "without a kernel", func(l *Launch) { l.Kernel = nil }},
		{"empty grid", "grid [0 1 1]", func(l *Launch) { l.Grid[0] = 0 }},
		{"huge block", "blocks [2000 1 1]", func(l *Launch) { l.Block[0] = 2000 }},
		{"more than the kernel allows", "65 threads a block, at most 64", func(l *Launch) { l.Block[0] = 65 }},
		{"short parameters", "7 bytes of parameters, needs 8", func(l *Launch) { l.Params = l.Params[:7] }},
		{"no memory", "no memory", func(l *Launch) { l.Memory = nil }},
		{"negative shared", "-1 bytes", func(l *Launch) { l.Shared = -1 }},
		{"block outside", "outside the grid", func(l *Launch) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := good
			tt.change(&l)
			_, err := NewBlock(&l, [3]uint32{0, 0, uint32(b2i(tt.name == "block outside"))})
			require.ErrorContains(t, err, tt.want)
		})
	}
}
