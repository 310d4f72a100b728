package check

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Packets of three words of data and a flag, which is the number of the packet. All words of one are the same.
const (
	wideRegs = ".reg .b128 r;\n.reg .b64 l, h;\n.reg .b32 x;\n"
	packets  = "world 2\nbuffer o size 16 on 0\nbuffer a size 16 on 0\narg 0 ptr o\narg 1 ptr a\nlaunch reader block 1 on 0\nlaunch writer block 1 on 1\n"
)

// send stores packet n with one instruction, or with one for both halves.
func send(n, store string) string {
	return "mov.u32 v, " + n + ";\nmov.b64 l, {v, v};\nmov.b64 h, {v, v};\nmov.b128 r, {l, h};\n" + store + "\n"
}

// await polls a for a packet whose flag is not 0, or not u, and leaves its words in t, u, v and w.
func await(label, old, load string) string {
	return label + ":\n" + load + "\nmov.b64 {t, u}, l;\nmov.b64 {v, w}, h;\nsetp.eq.u32 p, w, " + old + ";\n@p bra " + label + ";\n"
}

const (
	storeWhole = "st.relaxed.sys.global.b128 [a], r;"
	loadWhole  = "ld.relaxed.sys.global.b128 r, [a];\nmov.b128 {l, h}, r;"
	storeHalf  = "st.relaxed.sys.global.v2.b64 [a], {l, h};"
	loadHalf   = "ld.relaxed.sys.global.v2.b64 {l, h}, [a];"
	keep       = "st.global.v4.u32 [o], {t, u, v, w};"
)

// same stores 0 in o where all words of the packet are as the flag says.
const same = "xor.b32 t, t, w;\nxor.b32 u, u, w;\nxor.b32 v, v, w;\nor.b32 t, t, u;\nor.b32 t, t, v;\nst.global.u32 [o], t;"

func TestWidePackets(t *testing.T) {
	clean(t, specced(t, kernel("reader", wideRegs+await("L", "0", loadWhole)+keep)+kernel("writer", wideRegs+send("7", storeWhole)), packets+"expect o u32 = 7 on 0"))
	// The same memory again, of which either packet may be seen, or one after the other.
	two := kernel("writer", wideRegs+send("1", storeWhole)+send("2", storeWhole))
	clean(t, specced(t, kernel("reader", wideRegs+await("L", "0", loadWhole)+same)+two, packets+"expect o count 1 u32 = 0 on 0"))
	clean(t, specced(t, kernel("reader", wideRegs+await("L", "0", loadWhole)+await("M", "0", loadWhole)+same)+two, packets+"expect o count 1 u32 = 0 on 0"))
	faulty(t, specced(t, kernel("reader", wideRegs+await("L", "0", loadWhole)+keep)+two, packets+"expect o u32 = 2 on 0"), Stale, "is 0x1, not 0x2")
	faulty(t, specced(t, kernel("reader", wideRegs+await("L", "0", loadWhole)+keep)+two, packets+"expect o u32 = 1 on 0"), Stale, "is 0x2, not 0x1")
	// With a guard, and polled until it comes.
	guarded := "mov.b64 l, 0;\nmov.b64 h, 0;\nL:\nsetp.eq.u32 q, t, 0;\nmov.b128 r, {l, h};\n@q ld.relaxed.sys.global.b128 r, [a];\nmov.b128 {l, h}, r;\nmov.b64 {u, v}, h;\nsetp.eq.u32 p, v, 0;\n@p bra L;\nmov.b64 {t, u}, l;\nmov.b64 {v, w}, h;\n"
	clean(t, specced(t, kernel("reader", ".reg .b64 l, h;\n.reg .b128 r;\n"+guarded+keep)+kernel("writer", wideRegs+send("7", storeWhole)), packets+"expect o u32 = 7 on 0"))
}

// pollPacket loads the packet at a displacement into four registers, unless their last holds the epoch; e holds it.
func pollPacket(at, r1, r2, r3, r4 string) string {
	return strings.NewReplacer("R1", r1, "R2", r2, "R3", r3, "R4", r4, "AT", at).Replace(`{
	.reg .pred p; .reg .b128 q; .reg .b64 l, h;
	setp.ne.u32 p, R4, e;
	mov.b64 l, {R1, R2}; mov.b64 h, {R3, R4}; mov.b128 q, {l, h};
	@p ld.relaxed.sys.global.b128 q, [a+AT];
	mov.b128 {l, h}, q; mov.b64 {R1, R2}, l; mov.b64 {R3, R4}, h;
	}
`)
}

// Several packets are polled in one loop, each until it has come, in calls one after the other.
func TestWidePacketsOfSeveral(t *testing.T) {
	kernel := func(halves string) string {
		return `.visible .entry k(.param .u64 po, .param .align 8 .b8 pa[16], .param .u32 rank) {
	.reg .b64 o, a, b, x, y; .reg .b32 v, e, r<9>; .reg .b128 w; .reg .pred p, q;
	ld.param.u64 o, [po]; ld.param.u32 v, [rank]; setp.eq.u32 q, v, 0;
	ld.param.u64 a, [pa]; ld.param.u64 b, [pa+8]; @!q ld.param.u64 a, [pa+8]; @!q ld.param.u64 b, [pa];
	ld.global.u32 e, [o+8]; add.u32 e, e, 1; st.global.u32 [o+8], e;
	and.b32 v, e, ` + halves + `; mul.wide.u32 x, v, 32; add.u64 a, a, x; add.u64 b, b, x;
	add.u32 v, e, 10; mov.b64 x, {v, v}; mov.b64 y, {v, e}; mov.b128 w, {x, y}; st.relaxed.sys.global.b128 [b], w;
	add.u32 v, v, 10; mov.b64 x, {v, v}; mov.b64 y, {v, e}; mov.b128 w, {x, y}; st.relaxed.sys.global.b128 [b+16], w;
	mov.u32 r4, 0; mov.u32 r8, 0;
L:
	` + pollPacket("0", "r1", "r2", "r3", "r4") + pollPacket("16", "r5", "r6", "r7", "r8") + `
	setp.ne.u32 p, r4, e; setp.ne.or.u32 q, r8, e, p;
	@q bra L;
	add.u32 r1, r1, r2; add.u32 r1, r1, r3; add.u32 r5, r5, r6; add.u32 r5, r5, r7;
	st.global.v2.u32 [o], {r1, r5};
	ret;
}
`
	}
	spec := func(calls string) string {
		return "world 2\nbuffer o size 12\nbuffer a size 64\narg 0 ptr o\narg 1 ptrs a\narg 2 u32 rank\nlaunch k block 1 times " + calls +
			"\nexpect o count 2 u32 = 3*(10 + 10*i + " + calls + ")\nexpect o at 8 u32 = " + calls
	}
	clean(t, specced(t, kernel("0"), spec("1")))
	clean(t, specced(t, kernel("1"), spec("2")))
	clean(t, specced(t, kernel("1"), spec("3")))
	// With one slot a packet may be overwritten by the next call's, and whoever has not read it waits in vain.
	r, err := Check(t.Context(), specced(t, kernel("0"), spec("2")), Options{Strategy: Exhaustive})
	require.NoError(t, err)
	require.Len(t, r.Findings, 1)
	require.Equal(t, Stuck, r.Findings[0].Kind)
	require.Contains(t, r.Findings[0].String(), "`@p ld.relaxed.sys.global.b128 q, [a+16];` a of rank 1+16 = {0x1600000016, 0x200000016}")
}

// Two halves of 64 bits, of which only the second has the flag, are two accesses.
func TestWidePacketsInHalves(t *testing.T) {
	f := faulty(t, specced(t, kernel("reader", wideRegs+await("L", "0", loadHalf)+keep)+kernel("writer", wideRegs+send("7", storeHalf)), packets+"expect o u32 = 7 on 0"), Stale, "o: element 0 is 0x0, not 0x7")
	require.Contains(t, f.String(), "STALE: newer is")
	// Nor is one access enough where the other side makes two.
	faulty(t, specced(t, kernel("reader", wideRegs+await("L", "0", loadWhole)+keep)+kernel("writer", wideRegs+send("7", storeHalf)), packets), MixedSize, "overlap in part")
	faulty(t, specced(t, kernel("reader", wideRegs+await("L", "0", loadHalf)+keep)+kernel("writer", wideRegs+send("7", storeWhole)), packets), MixedSize, "overlap in part")
}

// Weak accesses of 16 bytes race like any others, also with narrow ones.
func TestWideRaces(t *testing.T) {
	two := func(read, write string) *Program {
		return specced(t, kernel("reader", wideRegs+read)+kernel("writer", wideRegs+send("7", write)), packets)
	}
	const weakStore, weakLoad = "st.global.b128 [a], r;", "ld.global.b128 r, [a];"
	f := faulty(t, two(loadWhole, weakStore), Race, "nothing orders")
	require.Equal(t, 16, f.A.Size)
	faulty(t, two(weakLoad, storeWhole), Race, "nothing orders")
	faulty(t, two(weakLoad, weakStore), Race, "nothing orders")
	faulty(t, two("ld.relaxed.gpu.global.b128 r, [a];", storeWhole), Race, "nothing orders")
	for _, word := range []string{"a", "a+4", "a+8", "a+12"} {
		faulty(t, two("ld.global.u32 v, ["+word+"];", weakStore), Race, "nothing orders")
		all, random := found(t, two("ld.global.u32 v, ["+word+"];", storeWhole))
		for _, r := range []*Result{all, random} {
			require.Len(t, r.Findings, 1)
			require.Contains(t, []Kind{Race, MixedSize}, r.Findings[0].Kind)
		}
	}
	faulty(t, two("ld.relaxed.sys.global.u64 l, [a+8];", storeWhole), MixedSize, "overlap in part")
	clean(t, two("ld.global.u32 v, [o+12];", storeWhole))
	// What is ordered does not, and neither do neighbours.
	clean(t, specced(t, kernel("k", "setp.eq.u32 p, t, 0;\n"+wideRegs+send("9", "@p st.relaxed.gpu.global.b128 [a], r;")+"@!p st.global.u32 [a+16], t;"),
		"world 1\nbuffer o size 4 on 0\nbuffer a size 20 on 0\narg 0 ptr o\narg 1 ptr a\nlaunch k block 2\nexpect a count 4 u32 = 9\nexpect a at 16 u32 = 1"))
	faulty(t, specced(t, kernel("k", wideRegs+send("9", "st.relaxed.gpu.global.b128 [a], r;")), twoWords+"launch k block 1"), Faulted, "no buffer holds 16 bytes")
}

// The values of 16 bytes, each of them another, go from narrow writes into a wide history and out of it again.
func TestWideValues(t *testing.T) {
	const spec = "world 1\nbuffer o size 48 on 0\nbuffer a size 32 on 0 fill u8 = i + 1\narg 0 ptr o\narg 1 ptr a\nlaunch k block 1\n"
	const bytes = "expect o count 16 u8 = i + 1\n"
	for _, sem := range []string{"", ".relaxed.gpu", ".acquire.sys", ".volatile"} {
		clean(t, specced(t, kernel("k", ".reg .b128 r;\nld"+sem+".global.b128 r, [a];\nst.global.b128 [o], r;"), spec+bytes))
	}
	// As elements of 8, 4, 2 and 1 bytes, once a history of 16 has ended.
	clean(t, specced(t, kernel("k", ".reg .b128 r; .reg .b64 l; .reg .b16 c;\nld.relaxed.gpu.global.b128 r, [a];\nst.relaxed.gpu.global.b128 [a], r;\nld.relaxed.gpu.global.u64 l, [a];\nst.global.u64 [o], l;\n"+
		"ld.global.u32 v, [a+8];\nst.global.u32 [o+8], v;\nld.relaxed.gpu.global.u16 c, [a+12];\nst.global.u16 [o+12], c;\nld.global.u8 c, [a+14];\nst.global.u8 [o+14], c;\nld.global.u8 c, [a+15];\nst.global.u8 [o+15], c;"), spec+bytes))
	// And the other way.
	clean(t, specced(t, kernel("k", ".reg .b128 r; .reg .b64 l;\nmov.b64 l, 0x0807060504030201;\nst.relaxed.gpu.global.u64 [o], l;\nmov.u32 v, 0x0c0b0a09;\nst.global.u32 [o+8], v;\nmov.u32 v, 13;\nst.relaxed.gpu.global.u8 [o+12], v;\n"+
		"mov.u32 v, 0x0f0e;\nst.global.u8 [o+13], v;\nst.global.u8 [o+14], 15;\nst.global.u8 [o+15], 16;\nld.relaxed.gpu.global.b128 r, [o];\nst.relaxed.gpu.global.b128 [o+16], r;\nld.global.b128 r, [o+16];\nst.global.b128 [o+32], r;"),
		spec+bytes+"expect o at 16 count 16 u8 = i + 1\nexpect o at 32 count 16 u8 = i + 1"))
}

// A wide load that is put off gets both halves together.
func TestWideLoadBuffering(t *testing.T) {
	lb := func(f string) *Program {
		return columns(t, true, ".reg .b128 r;\nld.relaxed.sys.global.b128 r, [x];\n"+f+"\nst.relaxed.sys.global.u32 [y], 1;\nmov.b128 {%r0, _, _, %r1}, r;",
			".reg .b128 r;\nld.relaxed.sys.global.u32 %r0, [y];\n"+f+"\nmov.b128 r, {5, 6, 7, 8};\nst.relaxed.sys.global.b128 [x], r;").see(0, "%r0").see(0, "%r1").see(1, "%r0")
	}
	all, random := outcomes(t, lb(""))
	require.Len(t, all, 4)
	require.Contains(t, all, "5 8 1")
	require.Len(t, random, 4)
	all, random = outcomes(t, lb("fence.acq_rel.sys;"))
	require.Len(t, all, 3)
	require.NotContains(t, random, "5 8 1")
}

// Reports have the values of both halves.
func TestWideReports(t *testing.T) {
	p := specced(t, kernel("reader", wideRegs+await("L", "0", loadWhole)+keep)+kernel("writer", wideRegs+send("7", "mov.b64 h, {v, 0};\nmov.b128 r, {l, h};\n"+storeWhole)), packets)
	f := faulty(t, p, Stuck, "never comes")
	require.Contains(t, f.String(), "`ld.relaxed.sys.global.b128 r, [a];` a+0 = {0x700000007, 0x7}")
	require.Contains(t, f.String(), "[a], r;` = {0x700000007, 0x7}")
	require.Equal(t, [2]uint64{0x700000007, 7}, [2]uint64{f.Waiting[0].Value, f.Waiting[0].High})

	f = faulty(t, specced(t, kernel("reader", wideRegs+await("L", "0", loadWhole)+keep)+kernel("writer", wideRegs+send("7", storeWhole)), packets+"expect o u32 = 8 on 0"), Stale, "not 0x8")
	require.True(t, f.Traced)
	require.Equal(t, [2]uint64{0x700000007, 0x700000007}, [2]uint64{f.History[len(f.History)-1].Value, f.History[len(f.History)-1].High})
	require.Contains(t, f.String(), "[a];` a+0 = {0x700000007, 0x700000007}")

	f = faulty(t, specced(t, kernel("reader", wideRegs+"ld.global.b128 r, [a];")+kernel("writer", wideRegs+send("7", storeWhole)), packets), Race, "nothing orders")
	w := f.A
	if !w.Write {
		w = f.B
	}
	require.True(t, w.Known)
	require.Equal(t, [2]uint64{0x700000007, 0x700000007}, [2]uint64{w.Value, w.High})
}
