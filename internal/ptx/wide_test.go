package ptx

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wideEntry is entry in a version that has .b128 at every scope.
func wideEntry(body string) string {
	return strings.Replace(entry(body), ".version 8.0", ".version 8.4", 1)
}

func runWide(t *testing.T, body string, mem *flat, threads uint32) {
	t.Helper()
	_, _, err := run(t, parse(t, wideEntry(body)), mem, runOpts{block: [3]uint32{threads, 1, 1}})
	require.NoError(t, err)
}

// A packet of 16 bytes goes from one place to another as compilers write it: assembled and taken apart in registers of 32 bits.
const packetBody = perThread + `
	mul.wide.u32 %rd20, %r0, 48; add.s64 %rd1, %rd0, %rd20;
	ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
	add.s64 %rd1, %rd1, 16;
	{
	.reg .b128 q; .reg .b64 l, h;
	mov.b64 l, {%r1, %r2}; mov.b64 h, {%r3, %r4};
	mov.b128 q, {l, h};
	st.relaxed.sys.global.b128 [%rd1], q;
	}
	mov.u32 %r1, 101; mov.u32 %r2, 102; mov.u32 %r3, 103; mov.u32 %r4, 104;
	and.b32 %r9, %r0, 1;
	{
	.reg .pred p; .reg .b128 q; .reg .b64 l, h;
	setp.ne.u32 p, %r9, 0;
	mov.b64 l, {%r1, %r2}; mov.b64 h, {%r3, %r4}; mov.b128 q, {l, h};
	@p ld.relaxed.sys.global.b128 q, [%rd1];
	mov.b128 {l, h}, q; mov.b64 {%r1, %r2}, l; mov.b64 {%r3, %r4}, h;
	}
	st.global.v4.u32 [%rd1+16], {%r1, %r2, %r3, %r4};`

func TestWidePacket(t *testing.T) {
	mem := newFlat(33 * 48)
	for i := range 32 {
		for k := range 4 {
			mem.set32(12*i+k, uint32(1000*i+10*k+7))
		}
	}
	guard := mem.data[32*48:]
	for i := range guard {
		guard[i] = 0xee
	}
	runWide(t, packetBody, mem, 32)
	for i := range 32 {
		for k := range 4 {
			v := uint32(1000*i + 10*k + 7)
			require.Equal(t, v, mem.u32(12*i+4+k), "stored")
			if i%2 == 0 {
				v = uint32(101 + k) // a false guard leaves the register
			}
			require.Equal(t, v, mem.u32(12*i+8+k), "loaded")
		}
	}
	for _, b := range guard {
		require.EqualValues(t, 0xee, b)
	}
}

// Every way to make a register of 128 bits and to take it apart, and every space and strength.
const wideBody = `
	.reg .b128 q, w<3>; .shared .align 16 .b64 s[4]; .local .align 16 .b64 l[2];
	mov.b64 %rd1, 0x1111111122222222; mov.f64 %d1, 0d4008000000000000; mov.b64 %rd2, %d1;
	mov.b128 w0, {%rd1, %rd2};
	mov.b128 w2, w0; mov.b128 w1, {%rd1, 5};
	st.global.b128 [%rd0], w2;
	st.release.gpu.global.b128 [%rd0+16], w1;
	mov.u32 %r1, 1; mov.u32 %r2, 2; mov.f32 %f1, 0f40400000;
	mov.b32 %r3, %f1; mov.b128 w2, {%r1, %r2, %r3, 4};
	st.volatile.b128 [%rd0+32], w2;
	ld.acquire.cta.global.b128 q, [%rd0+16];
	mov.b128 {_, %rd2}, q; mov.b128 {%rd3, _}, q;
	st.global.v2.b64 [%rd0+48], {%rd2, %rd3};
	ld.volatile.global.b128 q, [%rd0+32];
	mov.b128 {%r3, _, %r6, %r4}, q; mov.b128 {_, %f2, _, _}, q; mov.b32 %r5, %f2;
	st.global.v4.b32 [%rd0+64], {%r4, %r6, %r5, %r3};
	st.shared.b128 [s+16], q; ld.shared.b128 w1, [s+16]; st.global.b128 [%rd0+80], w1;
	st.relaxed.cta.shared.b128 [s], w0; mov.b64 %rd5, s; cvta.shared.u64 %rd5, %rd5; ld.relaxed.cta.b128 w1, [%rd5]; st.global.b128 [%rd0+96], w1;
	st.local.b128 [l], w0; ld.local.b128 w2, [l]; st.weak.global.b128 [%rd0+112], w2;
	ld.global.nc.L1::no_allocate.b128 q, [%rd0+128]; st.global.cg.b128 [%rd0+144], q; ldu.global.b128 q, [%rd0+144];
	ld.const.b128 w1, [%rd0+128]; mov.b128 {%rd6, _}, w1; mov.b128 {_, %rd7}, q; st.global.v2.b64 [%rd0+160], {%rd7, %rd6};`

func TestWideForms(t *testing.T) {
	mem := newFlat(192)
	mem.set64(16, 0xa5a5)
	mem.set64(17, 0x5a5a)
	mem.set64(22, 77)
	runWide(t, wideBody, mem, 1)
	const ones, three = uint64(0x1111111122222222), uint64(0x4008000000000000)
	var got []uint64
	for i := range 24 {
		got = append(got, mem.u64(i))
	}
	require.Equal(t, []uint64{
		ones, three, ones, 5, 0x200000001, 0x440400000, 5, ones, 0x4040000000000004, 0x100000002,
		0x200000001, 0x440400000, ones, three, ones, three, 0xa5a5, 0x5a5a, 0xa5a5, 0x5a5a, 0x5a5a, 0xa5a5, 77, 0,
	}, got)
}

// A thread sees one access of 16 bytes, and not two of 8.
func TestWideEvents(t *testing.T) {
	body := `.reg .b128 q; mov.b128 q, {%rd1, 9}; st.relaxed.sys.global.b128 [%rd0], q; ld.relaxed.sys.global.b128 q, [%rd0];
	mov.u32 %r1, 1; mov.b128 {%rd2, %rd3}, q; st.global.v2.b64 [%rd0], {%rd2, %rd3};`
	m, err := ParseObserved("t.ptx", []byte(wideEntry(body)))
	require.NoError(t, err)
	k, _ := m.Kernel("k")
	th, err := NewThread(&Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
		Params: binary.LittleEndian.AppendUint64(nil, 0x1000)}, [3]uint32{}, [3]uint32{})
	require.NoError(t, err)
	ev := next(t, th)
	require.Equal(t, Store, ev.Kind)
	require.Equal(t, [2]int{16, 1}, [2]int{ev.Inst.Size, ev.Inst.Elements})
	require.Equal(t, [4]uint64{0, 9}, ev.Values)
	require.Equal(t, Load, next(t, th).Kind)
	var now Thread
	now.Copy(th)
	now.Load(&[4]uint64{3, 4})
	require.Equal(t, [4]uint64{3, 4}, next(t, &now).Values)

	th.Defer([4]uint64{11}, 1, 2)
	_, named := th.Register("q")
	require.False(t, named, "it has no value of 64 bits")
	require.Equal(t, []uint64{11}, th.Pending(nil))
	ev = next(t, th)
	require.Equal(t, Use, ev.Kind)
	require.EqualValues(t, 11, ev.Token)
	require.EqualValues(t, 1, register(t, th, "%r1"), "it ran on as far as it could")
	th.Fill(11, 5, 6)
	require.Equal(t, [4]uint64{5, 6}, next(t, th).Values, "both halves at once")
}

func TestWideFaults(t *testing.T) {
	for _, body := range []string{
		".reg .b128 q; mov.b128 q, {%rd0, %rd0}; st.relaxed.sys.global.b128 [%rd0+8], q;", ".reg .b128 q; ld.global.b128 q, [%rd0+8]; st.global.b128 [%rd0], q;",
	} {
		k := parse(t, wideEntry(body))
		_, _, err := run(t, k, newFlat(64), runOpts{})
		var f *Fault
		require.ErrorAs(t, err, &f)
		require.Equal(t, Misaligned, f.Kind)
		require.Equal(t, [2]uint64{flatBase + 8, 16}, [2]uint64{f.Addr, uint64(f.Size)})

		th, err := NewThread(&Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
			Params: binary.LittleEndian.AppendUint64(nil, flatBase)}, [3]uint32{}, [3]uint32{})
		require.NoError(t, err)
		_, err = th.Next()
		require.ErrorAs(t, err, &f)
		require.Equal(t, Misaligned, f.Kind)
	}
	_, _, err := run(t, parse(t, wideEntry(".reg .b128 q; ld.relaxed.sys.global.b128 q, [%rd0+64]; st.global.b128 [%rd0], q;")), newFlat(72), runOpts{})
	var f *Fault
	require.ErrorAs(t, err, &f, "its second half is outside")
	require.Equal(t, BadAddress, f.Kind)
}

// What is refused, and whether NVIDIA's assembler refuses it too.
var wideErrors = []struct {
	name, version, target, body, msg string
	ours                             bool // only here
}{
	{"version", "8.2", "sm_90", "", "a .b128 register needs .version 8.3 or later, this file has 8.2", false},
	{"target", "8.3", "sm_61", "", "a .b128 register needs .target sm_70 or later, this file has sm_61", false},
	{"sys load", "8.3", "sm_90", "ld.relaxed.sys.global.b128 q, [%rd0];", ".b128 with .sys needs .version 8.4 or later, this file has 8.3", false},
	{"sys store", "8.3", "sm_90", "st.release.sys.global.b128 [%rd0], q;", ".b128 with .sys needs .version 8.4 or later", false},
	{"load to 64 bits", "8.4", "sm_90", "ld.global.b128 %rd1, [%rd0];", "register `%rd1` is .b64, `ld` needs .b128 here", false},
	{"store of 64 bits", "8.4", "sm_90", "st.global.b128 [%rd0], %rd1;", "register `%rd1` is .b64, `st` needs .b128 here", false},
	{"vector", "8.4", "sm_90", "ld.global.v2.b128 {q, r}, [%rd0];", "vectors of more than 16 bytes are not supported", false},
	{"halves without mov", "8.4", "sm_90", "st.global.b128 [%rd0], {%rd1, %rd2};", "which `mov.b128 q, {low, high}` makes", false},
	{"sink", "8.4", "sm_90", "ld.global.b128 _, [%rd0];", "`ld.b128` needs a .b128 register", false},
	{"address", "8.4", "sm_90", "ld.global.b32 %r1, [q];", "an address needs 32 or 64 bits", false},
	{"arithmetic", "8.4", "sm_90", "xor.b64 %rd1, q, %rd2;", "register `q` is .b128, `xor` needs .b64 here", false},
	{"arithmetic type", "8.4", "sm_90", "and.b128 q, q, r;", "`and` takes no type `.b128`", false},
	{"move to 64 bits", "8.4", "sm_90", "mov.b64 %rd1, q;", "register `q` is .b128, `mov` needs .b64 here", false},
	{"move from 64 bits", "8.4", "sm_90", "mov.b128 q, %rd1;", "register `%rd1` is .b64, `mov` needs .b128 here", false},
	{"pack to 64 bits", "8.4", "sm_90", "mov.b128 %rd1, {%rd2, %rd3};", "register `%rd1` is .b64, `mov` needs .b128 here", false},
	{"pack of three", "8.4", "sm_90", "mov.b128 q, {%rd1, %rd2, %rd3};", "it takes two of 64 bits or four of 32", false},
	{"pack of widths", "8.4", "sm_90", "mov.b128 q, {%r1, %rd2};", "register `%r1` is .b32, `mov` needs .b64 here", false},
	{"unpack to nothing", "8.4", "sm_90", "mov.b128 {_, _}, q;", "`mov.b128` to `_` alone", false},
	{"atomic", "8.4", "sm_90", "atom.relaxed.sys.global.exch.b128 q, [%rd0], r;", "`atom` of .b128 is not supported: exchange 64 bits", true},
	{"constant", "8.4", "sm_90", "mov.b128 q, 5;", "which `mov.b128 q, {low, high}` makes", true},
	{"narrow load", "8.4", "sm_90", "ld.global.b64 q, [%rd0];", "register `q` is .b128, `ld` needs .b64 here", true},
	{"narrow store", "8.4", "sm_90", "st.global.b64 [%rd0], q;", "register `q` is .b128, `st` needs .b64 here", true},
	{"variable", "8.4", "sm_90", ".shared .b128 v;", "declare the 16 bytes as .b8 or .b64, with .align 16", true},
}

func wideError(version, target, body string) string {
	return fmt.Sprintf(".version %s\n.target %s\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"+
		"\t.reg .b32 %%r<9>; .reg .b64 %%rd<9>; ld.param.u64 %%rd0, [p];\n\t.reg .b128 q, r;\n\t%s\n\tret;\n}\n", version, target, body)
}

func TestWideErrors(t *testing.T) {
	for _, tt := range wideErrors {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("bad.ptx", []byte(wideError(tt.version, tt.target, tt.body)))
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Error(), tt.msg)
			require.Equal(t, "bad.ptx", e.File)
			require.GreaterOrEqual(t, e.Line, 6)
		})
	}
	for _, version := range []string{"8.3", "8.4"} { // what just about passes
		_, err := Parse("good.ptx", []byte(wideError(version, "sm_70", "ld.volatile.global.b128 q, [%rd0]; st.relaxed.gpu.global.b128 [%rd0], q;")))
		require.NoError(t, err)
	}
}

func TestWideAgainstPtxas(t *testing.T) {
	path := ptxas(t)
	for _, body := range []string{packetBody, wideBody} {
		out, err := assemble(t, path, wideEntry(body))
		require.NoError(t, err, out)
	}
	for _, tt := range wideErrors {
		out, err := assemble(t, path, wideError(tt.version, tt.target, tt.body))
		require.Equal(t, tt.ours, err == nil, "%s: %s", tt.name, out)
	}
}
