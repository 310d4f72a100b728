package axiom_test

import (
	"testing"

	"github.com/fenceline/fenceline/flags/check/axiom"
	"github.com/fenceline/fenceline/flags/check/litmus"
	"github.com/stretchr/testify/require"
)

func one(t *testing.T, text string) *litmus.Test {
	t.Helper()
	tests, err := litmus.Parse("t", []byte("test: t\nwhy: w\n"+text))
	require.NoError(t, err)
	return tests[0]
}

func TestOutcomes(t *testing.T) {
	got, racy, err := axiom.Outcomes(one(t, "x = 0\nd0.b0.t0 | d0.b1.t0\n"+
		"st.relaxed.gpu.u32 [x], 1 | ld.relaxed.gpu.u32 r0, [x]\n"+
		" | st.relaxed.gpu.u32 [x], 2\nallowed: r0 = 1 & [x] = 2"))
	require.NoError(t, err)
	require.False(t, racy)
	require.Equal(t, map[string]bool{"0 1": true, "0 2": true, "1 2": true}, got)

	got, racy, err = axiom.Outcomes(one(t, "x = 3\nd0.b0.t0 | d1.b0.t0\n"+
		"st.relaxed.gpu.u32 [x], 1 | st.weak.u32 [x], 2\nallowed: [x] = 1"))
	require.NoError(t, err)
	require.True(t, racy)
	require.Equal(t, map[string]bool{"1": true, "2": true}, got)
}

// Each operation computes what PTX says, in an RMW and in registers.
func TestValues(t *testing.T) {
	for _, c := range []struct {
		init, code, want string
	}{
		{"x = 5", "atom.add.u32 r0, [x], -6", "5 4294967295"},
		{"x = 5", "atom.min.s32 r0, [x], -6", "5 4294967290"},
		{"x = 5", "atom.min.u32 r0, [x], -6", "5 5"},
		{"x = 5", "atom.max.u32 r0, [x], 9", "5 9"},
		{"x = 5", "atom.max.s32 r0, [x], -9", "5 5"},
		{"x = 5", "atom.inc.u32 r0, [x], 5", "5 0"},
		{"x = 5", "atom.inc.u32 r0, [x], 6", "5 6"},
		{"x = 5", "atom.dec.u32 r0, [x], 4", "5 4"},
		{"x = 5", "atom.dec.u32 r0, [x], 5", "5 4"},
		{"x = 5", "atom.and.b32 r0, [x], 6", "5 4"},
		{"x = 5", "atom.or.b32 r0, [x], 6", "5 7"},
		{"x = 5", "atom.xor.b32 r0, [x], 6", "5 3"},
		{"x = 5", "atom.exch.b32 r0, [x], 6", "5 6"},
		{"x = 5", "atom.cas.b32 r0, [x], 5, 6", "5 6"},
		{"x = 5", "atom.cas.b32 r0, [x], 6, 7", "5 5"},
		{"x.u8 = 0xff", "ld.s8 r0, [x]", "4294967295 255"},
		{"x.u8 = 0xff", "ld.u8 r0, [x]", "255 255"},
		{"x = 7", "mov.u32 r0, -8;shr.s32 r0, r0, 1", "4294967292 7"},
		{"x = 7", "mov.u32 r0, -8;shr.u32 r0, r0, 1", "2147483644 7"},
		{"x = 7", "mov.u32 r0, 3;shl.b32 r0, r0, 31", "2147483648 7"},
		{"x = 7", "mov.u32 r0, 3;shl.b32 r0, r0, 32", "0 7"},
		{"x = 7", "mov.u32 r0, 3;mul.lo.u32 r0, r0, 5;sub.u32 r0, r0, 16", "4294967295 7"},
		{"x = 7", "setp.lt.s32 p0, -1, 0;selp.b32 r0, 3, 4, p0", "3 7"},
		{"x = 7", "setp.lt.u32 p0, -1, 0;selp.b32 r0, 3, 4, p0", "4 7"},
		{"x = 7", "setp.ge.u32 p0, 3, 3;@!p0 bra out;st.u32 [x], 8;out: mov.u32 r0, 1", "1 8"},
		{"x = 7", "setp.gt.u32 p0, 3, 3;@!p0 bra out;st.u32 [x], 8;out: mov.u32 r0, 1", "1 7"},
		{"x = 7", "setp.le.u32 p0, 3, 3;@p0 exit;st.u32 [x], 8;mov.u32 r0, 1", "0 7"},
	} {
		text := c.init + "\nd0.b0.t0\n"
		for _, r := range c.code {
			if r == ';' {
				text += "\n"
			} else {
				text += string(r)
			}
		}
		got, racy, err := axiom.Outcomes(one(t, text+"\nallowed: r0 = 0 & [x] = 0"))
		require.NoError(t, err, c.code)
		require.False(t, racy)
		require.Equal(t, map[string]bool{c.want: true}, got, c.code)
	}
}

// What the axioms do not cover is refused.
func TestRefusals(t *testing.T) {
	const two = "x = 0\nd0.b0.t0 | d0.b0.t1\n"
	long := "x = 0\nd0.b0.t0\n"
	for range 61 {
		long += "fence.sc.gpu\n"
	}
	for _, c := range []struct{ text, want string }{
		{two + "bar.red.popc.u32 r0, 0, p0\nrace: no", "bar.red"},
		{two + "l: st.u32 [x], 1\nld.u32 r0, [x]\nsetp.ne.u32 p0, r0, 9\n@p0 bra l\nrace: no", "loops around `st.u32`"},
		{two + "bar.sync 0 | bar.sync 0\nbar.sync 0\nrace: no", "differ in how often"},
		{"x = 0\nd0.b0.t0\nmov.u32 r0, 8\nld.u32 r1, [x+r0]\nrace: no", "4 bytes at x+8"},
		{long + "race: no", "too long"},
	} {
		_, err := axiom.Analyze(one(t, c.text))
		require.ErrorContains(t, err, c.want)
	}
}
