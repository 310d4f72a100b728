package ptx

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

var floatTests = []instTest{
	{"add.f32 d32, a32, b32", [][]uint64{{f32(1), f32(2), f32(3)}, {inf32, ninf32, nan32}, {0xffc12345, f32(1), nan32}, {1, 1, 2}, {neg32, neg32, neg32}, {neg32, 0, 0}, {0x7f7fffff, 0x7f7fffff, inf32}}},
	{"add.ftz.f32 d32, a32, b32", [][]uint64{{1, 1, 0}, {0x80000001, 0x80000001, neg32}, {0x00800000, 0x80000001, 0x00800000}, {0x00800001, 0x80800000, 0}}},
	{"add.sat.f32 d32, a32, b32", [][]uint64{{f32(1), f32(2), f32(1)}, {f32(-1), f32(0.5), 0}, {nan32, 0, 0}, {f32(0.25), f32(0.5), f32(0.75)}}},
	{"add.rz.f32 d32, a32, b32", [][]uint64{{f32(1), 0x33ffffff, f32(1)}, {f32(-1), 0xb3ffffff, f32(-1)}}},
	{"add.rp.f32 d32, a32, b32", [][]uint64{{f32(1), 1, 0x3f800001}, {f32(-1), 0x80000001, f32(-1)}, {f32(1), f32(-1), 0}}},
	{"add.rm.f32 d32, a32, b32", [][]uint64{{f32(1), 1, f32(1)}, {f32(-1), 0x80000001, 0xbf800001}, {f32(1), f32(-1), neg32}, {0, 0, 0}, {0x7f7fffff, 0x7f7fffff, 0x7f7fffff}}},
	{"sub.f32 d32, a32, b32", [][]uint64{{f32(1), f32(2), f32(-1)}, {inf32, inf32, nan32}, {0, 0, 0}}},
	{"mul.f32 d32, a32, b32", [][]uint64{{f32(3), f32(2), f32(6)}, {0, inf32, nan32}, {0x00800000, f32(0.5), 0x00400000}, {1, f32(0.5), 0}}},
	{"mul.ftz.f32 d32, a32, b32", [][]uint64{{0x00800000, f32(0.5), 0}, {1, inf32, nan32}}},
	{"mul.rz.f32 d32, a32, b32", [][]uint64{{0x3f800001, 0x3f800001, 0x3f800002}, {0x7f7fffff, f32(2), 0x7f7fffff}}},
	{"mul.rp.f32 d32, a32, b32", [][]uint64{{0x3f800001, 0x3f800001, 0x3f800003}, {1, f32(0.5), 1}}},
	{"fma.rn.f32 d32, a32, b32, c32", [][]uint64{{f32(2), f32(3), f32(4), f32(10)}, {0, inf32, 0, nan32}, {0x3f800001, 0x3f800001, 0xbf800002, 0x28800000}, {f32(1), f32(-1), f32(1), 0}}},
	{"fma.rz.f32 d32, a32, b32, c32", [][]uint64{{f32(1), f32(1), 1, f32(1)}, {f32(1), f32(1), 0x80000001, 0x3f7fffff}}},
	{"fma.rm.f32 d32, a32, b32, c32", [][]uint64{{f32(1), f32(1), f32(-1), neg32}}},
	{"fma.rn.sat.f32 d32, a32, b32, c32", [][]uint64{{f32(2), f32(3), f32(4), f32(1)}}},
	{"mad.rn.f32 d32, a32, b32, c32", [][]uint64{{f32(2), f32(3), f32(4), f32(10)}}},
	{"div.rn.f32 d32, a32, b32", [][]uint64{{f32(1), f32(3), f32(1.0 / 3)}, {f32(1), 0, inf32}, {0, 0, nan32}, {f32(-1), inf32, neg32}}},
	{"div.rz.f32 d32, a32, b32", [][]uint64{{f32(1), f32(3), 0x3eaaaaaa}, {f32(-1), f32(3), 0xbeaaaaaa}}},
	{"div.rp.f32 d32, a32, b32", [][]uint64{{f32(1), f32(3), 0x3eaaaaab}, {f32(-1), f32(3), 0xbeaaaaaa}}},
	{"div.approx.f32 d32, a32, b32", [][]uint64{{f32(6), f32(3), f32(2)}}},
	{"div.full.f32 d32, a32, b32", [][]uint64{{f32(6), f32(3), f32(2)}}},
	{"sqrt.rn.f32 d32, a32", [][]uint64{{f32(2), f32(math.Sqrt2)}, {f32(-1), nan32}, {neg32, neg32}}},
	{"sqrt.rm.f32 d32, a32", [][]uint64{{f32(2), 0x3fb504f3}, {f32(4), f32(2)}}},
	{"sqrt.rp.f32 d32, a32", [][]uint64{{f32(2), 0x3fb504f4}, {f32(4), f32(2)}}},
	{"rcp.rn.f32 d32, a32", [][]uint64{{f32(4), f32(0.25)}, {neg32, ninf32}}},
	{"rcp.approx.ftz.f32 d32, a32", [][]uint64{{f32(4), f32(0.25)}, {1, inf32}}},
	{"rsqrt.approx.f32 d32, a32", [][]uint64{{f32(4), f32(0.5)}}},
	{"ex2.approx.f32 d32, a32", [][]uint64{{f32(3), f32(8)}, {ninf32, 0}}},
	{"lg2.approx.f32 d32, a32", [][]uint64{{f32(8), f32(3)}, {0, ninf32}, {f32(-1), nan32}}},
	{"sin.approx.f32 d32, a32", [][]uint64{{0, 0}}},
	{"cos.approx.f32 d32, a32", [][]uint64{{0, f32(1)}}},
	{"tanh.approx.f32 d32, a32", [][]uint64{{inf32, f32(1)}}},
	{"abs.f32 d32, a32", [][]uint64{{f32(-2), f32(2)}, {neg32, 0}}},
	{"neg.f32 d32, a32", [][]uint64{{f32(-2), f32(2)}, {0, neg32}}},
	{"neg.ftz.f32 d32, a32", [][]uint64{{1, neg32}}},
	{"abs.f64 d64, a64", [][]uint64{{f64(-2), f64(2)}}},
	{"min.f32 d32, a32, b32", [][]uint64{{f32(1), f32(2), f32(1)}, {nan32, f32(2), f32(2)}, {f32(2), nan32, f32(2)}, {nan32, 0xffffffff, nan32}, {0, neg32, neg32}, {neg32, 0, neg32}}},
	{"max.f32 d32, a32, b32", [][]uint64{{f32(1), f32(2), f32(2)}, {nan32, f32(-2), f32(-2)}, {0, neg32, 0}, {neg32, 0, 0}}},
	{"max.NaN.f32 d32, a32, b32", [][]uint64{{nan32, f32(2), nan32}, {f32(1), f32(2), f32(2)}}},
	{"min.xorsign.abs.f32 d32, a32, b32", [][]uint64{{f32(-3), f32(2), f32(-2)}, {f32(-3), f32(-2), f32(2)}}},
	{"min.ftz.f32 d32, a32, b32", [][]uint64{{1, 2, 0}}},
	{"max.f64 d64, a64, b64", [][]uint64{{f64(1), f64(math.NaN()), f64(1)}}},
	{"copysign.f32 d32, a32, b32", [][]uint64{{f32(-1), f32(2), f32(-2)}, {f32(1), f32(-2), f32(2)}}},
	{"testp.finite.f32 dp, a32", [][]uint64{{f32(1), 1}, {inf32, 0}, {nan32, 0}}},
	{"testp.infinite.f64 dp, a64", [][]uint64{{f64(math.Inf(-1)), 1}, {f64(0), 0}}},
	{"testp.notanumber.f32 dp, a32", [][]uint64{{nan32, 1}, {inf32, 0}}},
	{"testp.number.f32 dp, a32", [][]uint64{{nan32, 0}, {inf32, 1}}},
	{"testp.normal.f32 dp, a32", [][]uint64{{1, 0}, {0x00800000, 1}, {0, 0}, {inf32, 0}}},
	{"testp.subnormal.f32 dp, a32", [][]uint64{{1, 1}, {0x00800000, 0}, {0, 0}}},
	{"add.f64 d64, a64, b64", [][]uint64{{f64(1), f64(2), f64(3)}, {f64(math.Inf(1)), f64(math.Inf(-1)), 0xfff8000000000000}, {0x7ff0000000000001, f64(1), 0x7ff8000000000001}}},
	{"sub.f64 d64, a64, b64", [][]uint64{{f64(1), f64(2), f64(-1)}}},
	{"mul.f64 d64, a64, b64", [][]uint64{{f64(3), f64(2), f64(6)}}},
	{"fma.rn.f64 d64, a64, b64, c64", [][]uint64{{f64(3), f64(2), f64(1), f64(7)}, {0x3ff0000000000001, 0x3ff0000000000001, 0xbff0000000000002, 0x3970000000000000}}},
	{"div.rn.f64 d64, a64, b64", [][]uint64{{f64(1), f64(3), f64(1.0 / 3)}}},
	{"sqrt.rn.f64 d64, a64", [][]uint64{{f64(2), f64(math.Sqrt2)}}},
	{"rcp.rn.f64 d64, a64", [][]uint64{{f64(4), f64(0.25)}}},
	{"add.f16 d16, a16, b16", [][]uint64{{0x3c00, 0x3c00, 0x4000}, {0x7c00, 0xfc00, 0x7fff}, {1, 1, 2}, {0x7bff, 0x7bff, 0x7c00}}},
	{"add.ftz.f16 d16, a16, b16", [][]uint64{{1, 1, 0}}},
	{"add.sat.f16 d16, a16, b16", [][]uint64{{0x3c00, 0x3c00, 0x3c00}, {0x7e00, 0, 0}}},
	{"sub.f16 d16, a16, b16", [][]uint64{{0x3c00, 0x3c00, 0}}},
	{"mul.f16x2 d32, a32, b32", [][]uint64{{0x40003c00, 0x42003c00, 0x46003c00}}},
	{"fma.rn.f16 d16, a16, b16, c16", [][]uint64{{0x3c01, 0x3c01, 0xbc02, 0x0010}}},
	{"fma.rn.relu.f16 d16, a16, b16, c16", [][]uint64{{0xbc00, 0x3c00, 0, 0}, {0x7e00, 0, 0, 0x7fff}}},
	{"fma.rn.bf16x2 d32, a32, b32, c32", [][]uint64{{0x40003f80, 0x40403f80, 0x3f803f80, 0x40e04000}}},
	{"add.bf16 d16, a16, b16", [][]uint64{{0x3f80, 0x3f80, 0x4000}, {0x7fc1, 0, 0x7fff}}},
	{"add.rn.bf16x2 d32, a32, b32", [][]uint64{{0x3f803f80, 0x40003f80, 0x40404000}}},
	{"mul.bf16 d16, a16, b16", [][]uint64{{0x4000, 0x4040, 0x40c0}}},
	{"sub.bf16x2 d32, a32, b32", [][]uint64{{0x40003f80, 0x3f803f80, 0x3f800000}}},
	{"neg.f16 d16, a16", [][]uint64{{0x3c00, 0xbc00}}},
	{"neg.bf16x2 d32, a32", [][]uint64{{0x3f80bf80, 0xbf803f80}}},
	{"abs.f16x2 d32, a32", [][]uint64{{0xbc00bc00, 0x3c003c00}}},
	{"min.f16 d16, a16, b16", [][]uint64{{0x3c00, 0x4000, 0x3c00}, {0x7e00, 0x4000, 0x4000}, {0x7e00, 0x7e00, 0x7fff}}},
	{"max.NaN.bf16x2 d32, a32, b32", [][]uint64{{0x7fc03f80, 0x00004000, 0x7fff4000}}},

	{"cvt.u32.u16 d32, a16", [][]uint64{{0xffff, 0xffff}}},
	{"cvt.s32.s16 d32, a16", [][]uint64{{0xffff, all32}}},
	{"cvt.u16.u32 d16, a32", [][]uint64{{0x12345678, 0x5678}}},
	{"cvt.s8.s32 d32, a32", [][]uint64{{0x180, 0xffffff80}}},
	{"cvt.u8.u32 d32, a32", [][]uint64{{0x180, 0x80}}},
	{"cvt.u32.u8 d32, a32", [][]uint64{{0x1ff, 0xff}}},
	{"cvt.s64.s8 d64, a16", [][]uint64{{0x80, 0xffffffffffffff80}}},
	{"cvt.s8.s16 d16, a16", [][]uint64{{0x80, 0xff80}}},
	{"cvt.s64.s32 d64, a32", [][]uint64{{all32, all64}}},
	{"cvt.u64.u32 d64, a32", [][]uint64{{all32, all32}}},
	{"cvt.u32.u64 d32, a64", [][]uint64{{all64, all32}}},
	{"cvt.u64.s32 d64, a32", [][]uint64{{all32, all64}}},
	{"cvt.sat.u8.s32 d32, a32", [][]uint64{{all32, 0}, {300, 255}, {77, 77}}},
	{"cvt.sat.s16.u32 d16, a32", [][]uint64{{all32, 0x7fff}}},
	{"cvt.sat.s32.s64 d32, a64", [][]uint64{{1 << 63, 0x80000000}, {1 << 40, 0x7fffffff}}},
	{"cvt.rni.s32.f32 d32, a32", [][]uint64{{f32(2.5), 2}, {f32(3.5), 4}, {f32(-0.5), 0}, {nan32, 0}, {inf32, 0x7fffffff}, {ninf32, 0x80000000}}},
	{"cvt.rzi.u32.f32 d32, a32", [][]uint64{{f32(-1), 0}, {f32(5e9), all32}, {f32(3.99), 3}, {nan32, 0}}},
	{"cvt.rmi.s32.f32 d32, a32", [][]uint64{{f32(-1.5), 0xfffffffe}}},
	{"cvt.rpi.s32.f32 d32, a32", [][]uint64{{f32(-1.5), all32}}},
	{"cvt.rzi.s64.f32 d64, a32", [][]uint64{{nan32, 1 << 63}, {inf32, 0x7fffffffffffffff}, {f32(-3.7), 0xfffffffffffffffd}}},
	{"cvt.rzi.u64.f64 d64, a64", [][]uint64{{f64(1e20), all64}, {f64(-1), 0}, {f64(1 << 63), 1 << 63}}},
	{"cvt.rzi.s32.f64 d32, a64", [][]uint64{{f64(math.NaN()), 0x80000000}}},
	{"cvt.rzi.u8.f32 d32, a32", [][]uint64{{f32(300), 255}}},
	{"cvt.rzi.s16.f16 d16, a16", [][]uint64{{0xc500, 0xfffb}}},
	{"cvt.rn.f32.s32 d32, a32", [][]uint64{{all32, f32(-1)}, {0x01000001, 0x4b800000}, {0x01000003, 0x4b800002}}},
	{"cvt.rz.f32.u32 d32, a32", [][]uint64{{all32, 0x4f7fffff}}},
	{"cvt.rp.f32.u64 d32, a64", [][]uint64{{1<<40 + 1, 0x53800001}}},
	{"cvt.rn.f64.s64 d64, a64", [][]uint64{{all64, f64(-1)}, {1 << 63, f64(-9223372036854775808)}}},
	{"cvt.rn.f16.u32 d16, a32", [][]uint64{{70000, 0x7c00}, {65519, 0x7bff}, {1, 0x3c00}}},
	{"cvt.rn.f32.u8 d32, a16", [][]uint64{{0x1ff, f32(255)}}},
	{"cvt.rn.bf16.s32 d16, a32", [][]uint64{{all32, 0xbf80}}},
	{"cvt.f64.f32 d64, a32", [][]uint64{{f32(1.5), f64(1.5)}}},
	{"cvt.rn.f32.f64 d32, a64", [][]uint64{{f64(1.5), f32(1.5)}, {f64(math.NaN()), nan32}, {f64(1e300), inf32}}},
	{"cvt.rz.f32.f64 d32, a64", [][]uint64{{f64(1e300), 0x7f7fffff}, {f64(1 + 1e-9), f32(1)}}},
	{"cvt.rn.ftz.f32.f64 d32, a64", [][]uint64{{f64(1e-40), 0}}},
	{"cvt.f32.f16 d32, a16", [][]uint64{{0x3c00, f32(1)}, {0x7e01, nan32}, {0xfc00, ninf32}}},
	{"cvt.f32.bf16 d32, a16", [][]uint64{{0x3f80, f32(1)}, {0xff80, ninf32}}},
	{"cvt.rn.f16.f32 d16, a32", [][]uint64{{f32(1), 0x3c00}, {nan32, 0x7fff}, {0xffc00000, 0x7fff}, {f32(65520), 0x7c00}}},
	{"cvt.rz.f16.f32 d16, a32", [][]uint64{{f32(1e9), 0x7bff}}},
	{"cvt.rn.bf16.f32 d16, a32", [][]uint64{{f32(1), 0x3f80}, {0xff800001, 0x7fff}, {0x7f7fffff, 0x7f80}}},
	{"cvt.rz.bf16.f32 d16, a32", [][]uint64{{0x3f80ffff, 0x3f80}}},
	{"cvt.rn.relu.bf16.f32 d16, a32", [][]uint64{{f32(-1), 0}, {f32(1), 0x3f80}}},
	{"cvt.rn.f16x2.f32 d32, a32, b32", [][]uint64{{f32(1), f32(2), 0x3c004000}, {nan32, neg32, 0x7fff8000}}},
	{"cvt.rn.bf16x2.f32 d32, a32, b32", [][]uint64{{f32(1), f32(2), 0x3f804000}, {nan32, neg32, 0x7fff8000}}},
	{"cvt.rz.bf16x2.f32 d32, a32, b32", [][]uint64{{0x3f80ffff, f32(2), 0x3f804000}}},
	{"cvt.rni.f32.f32 d32, a32", [][]uint64{{f32(2.5), f32(2)}, {f32(-0.3), neg32}}},
	{"cvt.rpi.f64.f64 d64, a64", [][]uint64{{f64(2.1), f64(3)}}},
	{"cvt.sat.f32.f32 d32, a32", [][]uint64{{f32(2.5), f32(1)}, {nan32, 0}}},
	{"cvt.ftz.f32.f32 d32, a32", [][]uint64{{1, 0}}},
}

func TestInstructions(t *testing.T) {
	for _, table := range [][]instTest{instTests, floatTests} {
		for _, tt := range table {
			t.Run(tt.text, func(t *testing.T) {
				require.NotEmpty(t, tt.cases)
				var in [][]uint64
				for _, c := range tt.cases {
					in = append(in, c[:len(c)-1])
				}
				for i, got := range evaluate(t, tt.text, in) {
					want := tt.cases[i][len(tt.cases[i])-1]
					require.Equalf(t, want, got, "operands %#x: want %#x, got %#x", in[i], want, got)
				}
			})
		}
	}
}
