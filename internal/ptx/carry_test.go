package ptx

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

const carryBody = perThread + `
	mul.wide.u32 %rd20, %r0, 96; add.s64 %rd20, %rd0, %rd20;
	ld.global.v2.u64 {%rd1, %rd2}, [%rd20]; ld.global.v2.u64 {%rd3, %rd4}, [%rd20+16];
	add.cc.u64 %rd5, %rd1, %rd3; addc.u64 %rd6, %rd2, %rd4;
	st.global.v2.u64 [%rd20+32], {%rd5, %rd6};
	sub.cc.s64 %rd5, %rd1, %rd3; subc.s64 %rd6, %rd2, %rd4;
	st.global.v2.u64 [%rd20+48], {%rd5, %rd6};
	// 64 by 64 bits from 32-bit parts.
	mov.b64 {%r1, %r2}, %rd1; mov.b64 {%r3, %r4}, %rd3;
	mul.lo.u32 %r5, %r1, %r3;
	mul.hi.u32 %r6, %r1, %r3;
	mad.lo.cc.u32 %r6, %r1, %r4, %r6; madc.hi.u32 %r7, %r1, %r4, 0;
	mad.lo.cc.u32 %r6, %r2, %r3, %r6; madc.hi.cc.u32 %r7, %r2, %r3, %r7; addc.u32 %r8, 0, 0;
	mad.lo.cc.u32 %r7, %r2, %r4, %r7; madc.hi.u32 %r8, %r2, %r4, %r8;
	st.global.v4.u32 [%rd20+64], {%r5, %r6, %r7, %r8};
	// 96-bit borrow over 32-bit words.
	mov.b64 {%r9, %r10}, %rd2; mov.b64 {%r11, %r12}, %rd4;
	sub.cc.u32 %r1, %r1, %r3; subc.cc.u32 %r2, %r2, %r4; subc.u32 %r9, %r9, %r11;
	st.global.v2.u32 [%rd20+80], {%r1, %r2}; st.global.u32 [%rd20+88], %r9;`

// Carry chains, against math/big.
func TestCarry(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	mem := newFlat(32 * 96)
	for i := range 32 * 12 {
		v := rng.Uint64()
		switch rng.IntN(4) {
		case 0:
			v = all64
		case 1:
			v = 0
		}
		mem.set64(i, v)
	}
	mustRun(t, carryBody, mem, runOpts{block: [3]uint32{32, 1, 1}})
	for i := range 32 {
		at := 12 * i
		wide := func(k int) *big.Int {
			x := new(big.Int).SetUint64(mem.u64(at + k + 1))
			return x.Lsh(x, 64).Add(x, new(big.Int).SetUint64(mem.u64(at+k)))
		}
		low := func(x *big.Int, bits uint) *big.Int {
			return new(big.Int).And(x, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), bits), big.NewInt(1)))
		}
		a, b := wide(0), wide(2)
		require.Equal(t, low(new(big.Int).Add(a, b), 128).Text(16), wide(4).Text(16))
		require.Equal(t, low(new(big.Int).Sub(a, b), 128).Text(16), wide(6).Text(16))
		p := new(big.Int).Mul(new(big.Int).SetUint64(mem.u64(at)), new(big.Int).SetUint64(mem.u64(at+2)))
		require.Equal(t, p.Text(16), wide(8).Text(16))
		require.Equal(t, low(new(big.Int).Sub(a, b), 96).Text(16), low(wide(10), 96).Text(16))
	}
}

const quietVars = ".shared .align 8 .b8 s[64]; .local .b32 v;\n"

const quietBody = `
	membar.cta; membar.gl; membar.sys; fence.sc.sys; fence.acq_rel.cta; fence.acq_rel.gpu; fence.cluster;
	prefetch.global.L2 [%rd0]; prefetch.L1 [%rd0+8]; prefetch.global.L2::evict_last [%rd0];
	applypriority.global.L2::evict_normal [%rd0], 128;
	griddepcontrol.launch_dependents; griddepcontrol.wait;
	ldu.global.u32 %r1, [%rd0];
	ld.acquire.gpu.global.u64 %rd1, [%rd0+8]; add.u64 %rd1, %rd1, 1; st.release.cluster.global.u64 [%rd0+8], %rd1;
	ld.volatile.shared.u16 %h1, [s]; st.volatile.global.u16 [%rd0+16], %h1;
	ld.relaxed.gpu.global.v2.u32 {%r2, %r3}, [%rd0]; st.relaxed.sys.global.v2.u32 [%rd0+24], {%r3, %r2};
	atom.shared.cas.b32 %r4, [s+4], 0, 7; ld.shared.u32 %r5, [s+4]; st.local.u32 [v], 3; ld.local.u32 %r10, [0];
	st.global.u32 [%rd0+32], %r5; mov.u32 %r6, %total_smem_size; st.global.u32 [%rd0+36], %r6;
	mov.u32 %r7, %clock; mov.u64 %rd3, %clock64; mov.u32 %r8, %nsmid; mov.u32 %r9, %smid; sub.u32 %r8, %r8, %r9; st.global.u32 [%rd0+40], %r8;`

// Instructions that only order or hint, and accesses in their less usual forms.
func TestQuietInstructions(t *testing.T) {
	mem := newFlat(4096)
	mem.set32(0, 11)
	mem.set32(1, 12)
	mem.set64(1, all32)
	mustRun(t, quietVars+quietBody, mem, runOpts{})
	require.EqualValues(t, 1<<32, mem.u64(1))
	require.EqualValues(t, 0, mem.u32(4))
	require.Equal(t, []uint32{12, 11, 7, 64, 1}, mem.words(11)[6:])
}

// The bodies of these tests are PTX to NVIDIA's assembler too.
func TestBodiesAgainstPtxas(t *testing.T) {
	path := ptxas(t)
	for _, body := range []string{carryBody, quietVars + quietBody} {
		out, err := assemble(t, path, entry(body))
		require.NoError(t, err, out)
	}
}
