package ptx

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// instTest checks one instruction on bit patterns. In text, d a b c e name the operands; their size in bits, or
// p for a predicate, follows: `add.s32 d32, a32, b32`. Each case is the operands in order, then the result.
type instTest struct {
	text  string
	cases [][]uint64
}

// instKernel runs text once per lane, on operands from memory: 4 doublewords in, one out per lane. With
// a guard, odd lanes skip it and keep the result's initial value.
func instKernel(text, guard string) string {
	var b strings.Builder
	b.WriteString(header)
	b.WriteString(".visible .entry k(.param .u64 p) {\n")
	for _, n := range []string{"a", "b", "c", "e", "d"} {
		fmt.Fprintf(&b, ".reg .b16 %s16; .reg .b32 %s32; .reg .b64 %s64; .reg .pred %sp;\n", n, n, n, n)
	}
	b.WriteString(`.reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p;
	ld.param.u64 %rd0, [p];
	mov.u32 %r0, %tid.x;
	mul.wide.u32 %rd1, %r0, 32;
	add.s64 %rd1, %rd0, %rd1;
`)
	for i, n := range []string{"a", "b", "c", "e"} {
		fmt.Fprintf(&b, "ld.global.b64 %[1]s64, [%%rd1+%[2]d];\ncvt.u32.u64 %[1]s32, %[1]s64;\ncvt.u16.u64 %[1]s16, %[1]s64;\nsetp.ne.s64 %[1]sp, %[1]s64, 0;\n", n, i*8)
	}
	b.WriteString("mov.b16 d16, 0x5555; mov.b32 d32, 0x55555555; mov.b64 d64, 0x5555555555555555; mov.pred dp, 0;\n")
	b.WriteString("and.b32 %r1, %r0, 1; setp.eq.s32 %p, %r1, 0;\n")
	fmt.Fprintf(&b, "\t%s %s;\n", guard, text)
	dest := strings.FieldsFunc(text+" none", func(r rune) bool { return strings.ContainsRune(" ,|", r) })[1]
	switch dest {
	case "dp":
		b.WriteString("selp.b64 d64, 1, 0, dp;\n")
	case "d16":
		b.WriteString("cvt.u64.u16 d64, d16;\n")
	case "d32":
		b.WriteString("cvt.u64.u32 d64, d32;\n")
	}
	b.WriteString("mul.wide.u32 %rd2, %r0, 8; add.s64 %rd2, %rd0, %rd2; st.global.b64 [%rd2+4096], d64;\nret;\n}\n")
	return b.String()
}

// evaluate runs text on up to 32 operand sets at once, fully and under a guard, and returns the results.
func evaluate(t *testing.T, text string, in [][]uint64) []uint64 {
	t.Helper()
	var out []uint64
	for from := 0; from < len(in); from += 32 {
		part := in[from:min(from+32, len(in))]
		var first []uint64
		for _, guard := range []string{"", "@%p", "@!%p"} {
			mem := newFlat(8192)
			for lane := range 32 {
				for k, v := range part[lane%len(part)] {
					mem.set64(lane*4+k, v)
				}
			}
			_, _, err := run(t, parse(t, instKernel(text, guard)), mem, runOpts{block: [3]uint32{32, 1, 1}})
			require.NoError(t, err, text)
			for lane := range len(part) {
				v := mem.u64(512 + lane)
				switch {
				case guard == "":
					first = append(first, v)
				case (guard == "@%p") == (lane%2 == 0):
					require.Equal(t, first[lane], v, "%s %s lane %d", guard, text, lane)
				default:
					require.Contains(t, []uint64{0, 0x5555, 0x55555555, 0x5555555555555555}, v, "%s %s: skipped lane %d", guard, text, lane)
				}
			}
		}
		out = append(out, first...)
	}
	return out
}

func f32(v float64) uint64 { return uint64(math.Float32bits(float32(v))) }
func f64(v float64) uint64 { return math.Float64bits(v) }

const (
	nan32  = 0x7fffffff
	inf32  = 0x7f800000
	ninf32 = 0xff800000
	neg32  = 0x80000000
	all32  = 0xffffffff
	all64  = 0xffffffffffffffff
)

var instTests = []instTest{
	{"add.s32 d32, a32, b32", [][]uint64{{1, 2, 3}, {all32, 1, 0}, {0x7fffffff, 1, 0x80000000}}},
	{"add.u16 d16, a16, b16", [][]uint64{{0xffff, 1, 0}, {0x7fff, 1, 0x8000}}},
	{"add.s64 d64, a64, b64", [][]uint64{{all64, 2, 1}, {1 << 63, 1 << 63, 0}}},
	{"add.sat.s32 d32, a32, b32", [][]uint64{{0x7fffffff, 1, 0x7fffffff}, {0x80000000, all32, 0x80000000}, {5, 6, 11}}},
	{"sub.sat.s32 d32, a32, b32", [][]uint64{{0x80000000, 1, 0x80000000}, {0, 0x80000000, 0x7fffffff}, {5, 6, all32}}},
	{"add.u16x2 d32, a32, b32", [][]uint64{{0xffff0001, 0x00010002, 0x00000003}}},
	{"sub.s32 d32, a32, b32", [][]uint64{{1, 2, all32}}},
	{"sub.u16 d16, a16, b16", [][]uint64{{1, 2, 0xffff}}},
	{"sub.s64 d64, a64, b64", [][]uint64{{1, 2, all64}}},
	{"mul.lo.s32 d32, a32, b32", [][]uint64{{all32, 5, 0xfffffffb}, {0x10000, 0x10000, 0}}},
	{"mul.hi.u32 d32, a32, b32", [][]uint64{{all32, all32, 0xfffffffe}, {0x10000, 0x10000, 1}}},
	{"mul.hi.s32 d32, a32, b32", [][]uint64{{all32, all32, 0}, {all32, 1, all32}, {0x80000000, 0x80000000, 0x40000000}}},
	{"mul.wide.u32 d64, a32, b32", [][]uint64{{all32, all32, 0xfffffffe00000001}}},
	{"mul.wide.s32 d64, a32, b32", [][]uint64{{all32, 2, 0xfffffffffffffffe}, {0x80000000, 0x80000000, 1 << 62}}},
	{"mul.wide.u16 d32, a16, b16", [][]uint64{{0xffff, 0xffff, 0xfffe0001}}},
	{"mul.wide.s16 d32, a16, b16", [][]uint64{{0xffff, 2, 0xfffffffe}}},
	{"mul.lo.u16 d16, a16, b16", [][]uint64{{0x100, 0x101, 0x100}}},
	{"mul.hi.u16 d16, a16, b16", [][]uint64{{0xffff, 0xffff, 0xfffe}}},
	{"mul.hi.s16 d16, a16, b16", [][]uint64{{0xffff, 1, 0xffff}, {0x8000, 0x8000, 0x4000}}},
	{"mul.lo.s64 d64, a64, b64", [][]uint64{{all64, 7, 0xfffffffffffffff9}}},
	{"mul.hi.u64 d64, a64, b64", [][]uint64{{all64, all64, 0xfffffffffffffffe}}},
	{"mul.hi.s64 d64, a64, b64", [][]uint64{{all64, all64, 0}, {all64, 1, all64}, {1 << 63, 1 << 63, 1 << 62}, {1 << 63, 2, all64}}},
	{"mul24.lo.u32 d32, a32, b32", [][]uint64{{0xff000002, 3, 6}, {0xffffff, 0xffffff, 0xfe000001}}},
	{"mul24.hi.u32 d32, a32, b32", [][]uint64{{0xffffff, 0xffffff, 0xfffffe00}}},
	{"mul24.lo.s32 d32, a32, b32", [][]uint64{{0x00ffffff, 3, 0xfffffffd}}},
	{"mad.lo.s32 d32, a32, b32, c32", [][]uint64{{3, 4, 5, 17}, {all32, all32, all32, 0}}},
	{"mad.hi.u32 d32, a32, b32, c32", [][]uint64{{all32, all32, 3, 1}}},
	{"mad.hi.sat.s32 d32, a32, b32, c32", [][]uint64{{0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff}}},
	{"mad.wide.u32 d64, a32, b32, c64", [][]uint64{{all32, all32, 1, 0xfffffffe00000002}}},
	{"mad.wide.s16 d32, a16, b16, c32", [][]uint64{{0xffff, 3, 1, 0xfffffffe}}},
	{"mad.lo.u64 d64, a64, b64, c64", [][]uint64{{all64, 2, 5, 3}}},
	{"mad24.lo.u32 d32, a32, b32, c32", [][]uint64{{0xff000002, 3, 4, 10}}},
	{"div.u32 d32, a32, b32", [][]uint64{{7, 2, 3}, {7, 0, all32}, {all32, 1, all32}}},
	{"div.s32 d32, a32, b32", [][]uint64{{0xfffffff9, 2, 0xfffffffd}, {0x80000000, all32, 0x80000000}, {7, 0, all32}}},
	{"div.s16 d16, a16, b16", [][]uint64{{0xfff9, 2, 0xfffd}, {0x8000, 0xffff, 0x8000}, {1, 0, 0xffff}}},
	{"div.u64 d64, a64, b64", [][]uint64{{all64, 3, 0x5555555555555555}, {1, 0, all64}}},
	{"rem.s32 d32, a32, b32", [][]uint64{{0xfffffff9, 2, all32}, {0x80000000, all32, 0}, {7, 0, all32}, {7, 0xfffffffe, 1}}},
	{"rem.u64 d64, a64, b64", [][]uint64{{all64, 10, 5}, {1, 0, all64}}},
	{"abs.s32 d32, a32", [][]uint64{{all32, 1}, {0x80000000, 0x80000000}, {5, 5}}},
	{"abs.s16 d16, a16", [][]uint64{{0xffff, 1}, {0x8000, 0x8000}}},
	{"neg.s32 d32, a32", [][]uint64{{1, all32}, {0, 0}, {0x80000000, 0x80000000}}},
	{"neg.s16 d16, a16", [][]uint64{{1, 0xffff}}},
	{"neg.s64 d64, a64", [][]uint64{{1, all64}}},
	{"min.s32 d32, a32, b32", [][]uint64{{all32, 1, all32}, {1, all32, all32}}},
	{"min.u32 d32, a32, b32", [][]uint64{{all32, 1, 1}}},
	{"max.s16 d16, a16, b16", [][]uint64{{0xffff, 1, 1}}},
	{"max.u64 d64, a64, b64", [][]uint64{{all64, 1, all64}}},
	{"max.s64 d64, a64, b64", [][]uint64{{all64, 1, 1}}},
	{"min.s16x2 d32, a32, b32", [][]uint64{{0xffff0005, 0x00010003, 0xffff0003}}},
	{"sad.u32 d32, a32, b32, c32", [][]uint64{{3, 10, 5, 12}, {10, 3, 5, 12}}},
	{"sad.s32 d32, a32, b32, c32", [][]uint64{{all32, 1, 5, 7}}},
	{"and.b32 d32, a32, b32", [][]uint64{{0xf0f0, 0xff00, 0xf000}}},
	{"or.b64 d64, a64, b64", [][]uint64{{0xf0f0, 1 << 63, 1<<63 | 0xf0f0}}},
	{"xor.b64 d64, a64, b64", [][]uint64{{all64, 1, 0xfffffffffffffffe}}},
	{"and.b64 d64, a64, b64", [][]uint64{{all64, 0xf0f0, 0xf0f0}}},
	{"or.b16 d16, a16, b16", [][]uint64{{0xf000, 0xf, 0xf00f}}},
	{"xor.b32 d32, a32, b32", [][]uint64{{all32, 0xff, 0xffffff00}}},
	{"not.b16 d16, a16", [][]uint64{{0, 0xffff}}},
	{"not.b32 d32, a32", [][]uint64{{0xff, 0xffffff00}}},
	{"not.b64 d64, a64", [][]uint64{{0, all64}}},
	{"cnot.b32 d32, a32", [][]uint64{{0, 1}, {7, 0}}},
	{"and.pred dp, ap, bp", [][]uint64{{1, 1, 1}, {1, 0, 0}}},
	{"or.pred dp, ap, !bp", [][]uint64{{0, 1, 0}, {0, 0, 1}}},
	{"xor.pred dp, ap, bp", [][]uint64{{1, 1, 0}, {1, 0, 1}}},
	{"not.pred dp, ap", [][]uint64{{1, 0}, {0, 1}}},
	{"mov.pred dp, ap", [][]uint64{{1, 1}, {0, 0}}},
	{"shl.b32 d32, a32, b32", [][]uint64{{1, 31, 0x80000000}, {1, 32, 0}, {1, all32, 0}}},
	{"shl.b64 d64, a64, b32", [][]uint64{{1, 63, 1 << 63}, {1, 64, 0}}},
	{"shl.b16 d16, a16, b32", [][]uint64{{1, 15, 0x8000}, {1, 16, 0}, {3, 15, 0x8000}}},
	{"shr.u32 d32, a32, b32", [][]uint64{{0x80000000, 31, 1}, {0x80000000, 32, 0}}},
	{"shr.s32 d32, a32, b32", [][]uint64{{0x80000000, 31, all32}, {0x80000000, 99, all32}, {0x40000000, 99, 0}}},
	{"shr.s16 d16, a16, b32", [][]uint64{{0x8000, 3, 0xf000}, {0x8000, 40, 0xffff}}},
	{"shr.b16 d16, a16, b32", [][]uint64{{0x8000, 15, 1}, {0x8000, 16, 0}}},
	{"shr.s64 d64, a64, b32", [][]uint64{{1 << 63, 63, all64}, {1 << 63, 64, all64}}},
	{"shr.u64 d64, a64, b32", [][]uint64{{1 << 63, 63, 1}, {1 << 63, 64, 0}}},
	{"shf.l.wrap.b32 d32, a32, b32, c32", [][]uint64{{0x12345678, 0x9abcdef0, 8, 0xbcdef012}, {1, 2, 32, 2}, {1, 2, 33, 4}}},
	{"shf.l.clamp.b32 d32, a32, b32, c32", [][]uint64{{0x12345678, 0x9abcdef0, 8, 0xbcdef012}, {1, 2, 32, 1}, {1, 2, 33, 1}}},
	{"shf.r.wrap.b32 d32, a32, b32, c32", [][]uint64{{0x12345678, 0x9abcdef0, 8, 0xf0123456}, {1, 2, 32, 1}}},
	{"shf.r.clamp.b32 d32, a32, b32, c32", [][]uint64{{0x12345678, 0x9abcdef0, 8, 0xf0123456}, {1, 2, 40, 2}}},
	{"bfe.u32 d32, a32, b32, c32", [][]uint64{{0x12345678, 8, 8, 0x56}, {all32, 31, 8, 1}, {all32, 40, 8, 0}, {all32, 4, 0, 0}, {all32, 0, 99, all32}, {all32, 0x108, 4, 0xf}}},
	{"bfe.s32 d32, a32, b32, c32", [][]uint64{{0x12345678, 12, 8, 0x45}, {0x12348678, 8, 8, 0xffffff86}, {0x80000000, 31, 8, all32}, {0x80000000, 99, 8, all32}, {0x80000000, 0, 0, 0}}},
	{"bfe.s64 d64, a64, b32, c32", [][]uint64{{0x80 << 32, 32, 8, 0xffffffffffffff80}}},
	{"bfe.u64 d64, a64, b32, c32", [][]uint64{{all64, 60, 8, 0xf}}},
	{"bfi.b32 d32, a32, b32, c32, e32", [][]uint64{{0xff, 0, 8, 4, 0xf00}, {all32, 0, 28, 32, 0xf0000000}, {all32, 5, 32, 4, 5}, {all32, 5, 0, 0, 5}}},
	{"bfi.b64 d64, a64, b64, c32, e32", [][]uint64{{all64, 0, 60, 2, 3 << 60}, {all64, 0, 0, 64, all64}}},
	{"bmsk.clamp.b32 d32, a32, b32", [][]uint64{{4, 4, 0xf0}, {31, 9, 0x80000000}, {32, 1, 0}, {0, 32, all32}}},
	{"brev.b32 d32, a32", [][]uint64{{1, 0x80000000}}},
	{"brev.b64 d64, a64", [][]uint64{{1, 1 << 63}}},
	{"popc.b32 d32, a32", [][]uint64{{all32, 32}, {0, 0}}},
	{"popc.b64 d32, a64", [][]uint64{{all64, 64}}},
	{"clz.b32 d32, a32", [][]uint64{{0, 32}, {1, 31}, {all32, 0}}},
	{"clz.b64 d32, a64", [][]uint64{{0, 64}, {1, 63}}},
	{"bfind.u32 d32, a32", [][]uint64{{0, all32}, {1, 0}, {0x80000000, 31}}},
	{"bfind.s32 d32, a32", [][]uint64{{all32, all32}, {0xfffffffe, 0}, {0x40000000, 30}}},
	{"bfind.shiftamt.u32 d32, a32", [][]uint64{{1, 31}, {0, all32}}},
	{"bfind.s64 d32, a64", [][]uint64{{1 << 62, 62}, {all64, all32}}},
	{"prmt.b32 d32, a32, b32, c32", [][]uint64{{0x33221100, 0x77665544, 0x5410, 0x55441100}, {0x33221100, 0x77665544, 0x7632, 0x77663322},
		{0x33221180, 0x77665544, 0x8888, all32}, {0x33221100, 0x77665544, 0x0123, 0x00112233}}},
	{"prmt.b32 d32, a32, b32, 0x5410", [][]uint64{{0x33221100, 0x77665544, 0x55441100}}},
	{"prmt.b32 d32, a32, b32, 0x7632", [][]uint64{{0x33221100, 0x77665544, 0x77663322}}},
	{"prmt.b32.f4e d32, a32, b32, c32", [][]uint64{{0x33221100, 0x77665544, 1, 0x44332211}}},
	{"prmt.b32.b4e d32, a32, b32, c32", [][]uint64{{0x33221100, 0x77665544, 1, 0x66770011}}},
	{"prmt.b32.rc8 d32, a32, b32, c32", [][]uint64{{0x33221100, 0, 2, 0x22222222}}},
	{"prmt.b32.ecl d32, a32, b32, c32", [][]uint64{{0x33221100, 0, 2, 0x33222222}}},
	{"prmt.b32.ecr d32, a32, b32, c32", [][]uint64{{0x33221100, 0, 2, 0x22221100}}},
	{"prmt.b32.rc16 d32, a32, b32, c32", [][]uint64{{0x33221100, 0, 1, 0x33223322}, {0x33221100, 0, 2, 0x11001100}}},
	{"lop3.b32 d32, a32, b32, c32, 0x96", [][]uint64{{0xff00, 0xf0f0, 0xcccc, 0xff00 ^ 0xf0f0 ^ 0xcccc}}},
	{"lop3.b32 d32, a32, b32, c32, 0xca", [][]uint64{{0xf0, 0xaa, 0x55, 0xa5}}}, // a ? b : c
	{"dp4a.u32.u32 d32, a32, b32, c32", [][]uint64{{0x01020304, 0x01010101, 5, 15}, {0xff, 0xff, 0, 65025}}},
	{"dp4a.s32.s32 d32, a32, b32, c32", [][]uint64{{0xff, 0x02, 0, 0xfffffffe}}},
	{"dp2a.lo.u32.u32 d32, a32, b32, c32", [][]uint64{{0x00020003, 0x09080504, 1, 23}}},
	{"dp2a.hi.s32.u32 d32, a32, b32, c32", [][]uint64{{0x0002ffff, 0x05040908, 1, 7}}},
	{"selp.b32 d32, a32, b32, cp", [][]uint64{{1, 2, 1, 1}, {1, 2, 0, 2}}},
	{"selp.b64 d64, a64, b64, cp", [][]uint64{{all64, 2, 1, all64}, {1, all64, 0, all64}}},
	{"selp.b16 d16, a16, b16, cp", [][]uint64{{1, 2, 1, 1}, {1, 2, 0, 2}}},
	{"slct.b32.s32 d32, a32, b32, c32", [][]uint64{{1, 2, 0, 1}, {1, 2, all32, 2}}},
	{"slct.b64.f32 d64, a64, b64, c32", [][]uint64{{1, 2, neg32, 1}, {1, 2, nan32, 2}, {1, 2, f32(-1), 2}, {1, 2, f32(1), 1}}},
	{"setp.lt.s32 dp, a32, b32", [][]uint64{{all32, 0, 1}, {0, all32, 0}, {1, 1, 0}}},
	{"setp.lt.u32 dp, a32, b32", [][]uint64{{all32, 0, 0}, {0, all32, 1}}},
	{"setp.lo.u32 dp, a32, b32", [][]uint64{{all32, 0, 0}, {0, all32, 1}}},
	{"setp.hs.u64 dp, a64, b64", [][]uint64{{all64, 0, 1}, {3, 3, 1}, {2, 3, 0}}},
	{"setp.ge.s64 dp, a64, b64", [][]uint64{{all64, 0, 0}, {3, 3, 1}}},
	{"setp.gt.s16 dp, a16, b16", [][]uint64{{0xffff, 0, 0}, {1, 0xffff, 1}}},
	{"setp.le.u16 dp, a16, b16", [][]uint64{{0xffff, 0, 0}, {1, 1, 1}}},
	{"setp.ne.b32 dp, a32, b32", [][]uint64{{1, 1, 0}, {1, 0, 1}}},
	{"setp.eq.and.b32 dp, a32, b32, cp", [][]uint64{{1, 1, 1, 1}, {1, 1, 0, 0}}},
	{"setp.eq.or.s32 dp, a32, b32, !cp", [][]uint64{{1, 2, 1, 0}, {1, 2, 0, 1}}},
	{"setp.eq.xor.s32 dp, a32, b32, cp", [][]uint64{{1, 1, 1, 0}, {1, 2, 1, 1}}},
	{"setp.lt.f32 dp, a32, b32", [][]uint64{{f32(1), f32(2), 1}, {nan32, f32(2), 0}, {neg32, 0, 0}}},
	{"setp.ltu.f32 dp, a32, b32", [][]uint64{{f32(3), f32(2), 0}, {nan32, f32(2), 1}}},
	{"setp.ne.f32 dp, a32, b32", [][]uint64{{f32(1), f32(2), 1}, {nan32, f32(2), 0}, {0, neg32, 0}}},
	{"setp.neu.f32 dp, a32, b32", [][]uint64{{f32(1), f32(1), 0}, {nan32, nan32, 1}}},
	{"setp.eq.ftz.f32 dp, a32, b32", [][]uint64{{1, 0, 1}, {f32(1), f32(1), 1}}},
	{"setp.num.f32 dp, a32, b32", [][]uint64{{0, nan32, 0}, {0, inf32, 1}}},
	{"setp.nan.f64 dp, a64, b64", [][]uint64{{0, f64(math.NaN()), 1}, {0, f64(1), 0}}},
	{"setp.gt.f64 dp, a64, b64", [][]uint64{{f64(2), f64(1), 1}, {f64(1), f64(1), 0}}},
	{"setp.ge.f16 dp, a16, b16", [][]uint64{{0x3c00, 0x3c00, 1}, {0x7e00, 0, 0}}},
	{"set.lt.u32.s32 d32, a32, b32", [][]uint64{{all32, 0, all32}, {0, 0, 0}}},
	{"set.gt.f32.f32 d32, a32, b32", [][]uint64{{f32(2), f32(1), f32(1)}, {0, 0, 0}}},
	{"mov.b32 d32, {a16, b16}", [][]uint64{{0x1111, 0x2222, 0x22221111}}},
	{"mov.b64 d64, {a32, b32}", [][]uint64{{1, 2, 2<<32 | 1}}},
	{"mov.b64 d64, {a16, b16, c16, e16}", [][]uint64{{1, 2, 3, 4, 0x0004000300020001}}},
	{"mov.b32 d32, 0f3F800000", [][]uint64{{0x3f800000}}},
	{"mov.b64 d64, 0d3FF0000000000000", [][]uint64{{0x3ff0000000000000}}},
	{"mov.u32 d32, -5", [][]uint64{{0xfffffffb}}},
}
