package litmus

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const whole = `# a comment
test: whole
why: every part of the language
     # nothing
why: is in it
x.u64 = 0x10; y = -1 @1; a.u16[2] = 1, 2 @host
b[3] = 7
d0.b0.t0                             | d1.b2.t33
again: ld.acquire.sys.u32 r0, [y]    | st.weak.v2.u16 [a], {5, r1}
setp.ne.s32 p0, r0, -1               |
@!p0 bra again                       | atom.acq_rel.gpu.cas.b64 rd0, [x], rd1, 3
ld.volatile.v2.u32 {r1, r2}, [b]     | bar.sync 1, 64
fence.sc.gpu                         | membar.gl   # behind
end: exit                            | red.add.u32 [b+r3], r1
forbidden: 0:r0 = 1 & [a+2] = 0x2
allowed: 0:r0=1
permitted: rd0 = 5
race: mixed size
test: second
why: to see that one follows another
x = 0
d0.b0.t0
st.u32 [x], 1
always: [x] = 1
`

func TestParse(t *testing.T) {
	tests, err := Parse("whole.litmus", []byte(whole))
	require.NoError(t, err)
	require.Len(t, tests, 2)
	l := tests[0]
	require.Equal(t, "whole", l.Name)
	require.Equal(t, 2, l.Line)
	require.Equal(t, 19, tests[1].Line)
	require.Equal(t, "every part of the language is in it", l.Why)
	require.Equal(t, []Location{
		{Name: "x", Size: 8, Init: []uint64{16}}, {Name: "y", Size: 4, Init: []uint64{1<<32 - 1}, Device: 1},
		{Name: "a", Size: 2, Init: []uint64{1, 2}, Device: Host}, {Name: "b", Size: 4, Init: []uint64{7, 7, 7}},
	}, l.Locations)
	require.Len(t, l.Threads, 2)
	require.Equal(t, [3]int{1, 2, 33}, [3]int{l.Threads[1].Device, l.Threads[1].Block, l.Threads[1].Thread})
	require.Equal(t, map[string]int{"again": 0, "end": 5}, l.Threads[0].Labels)
	require.Equal(t, []string{"r0", "p0", "r1", "r2"}, l.Threads[0].Registers)
	require.True(t, l.Loops())
	require.False(t, tests[1].Loops())

	code := l.Threads[0].Code
	require.Equal(t, Instr{Line: 9, Column: 8, Mnemonic: "ld.acquire.sys.u32", Op: Load, Fn: "ld", Sem: Acquire, Scope: Sys,
		Type: "u32", Size: 4, Vec: 1, Dst: []string{"r0"}, Loc: 1}, code[0])
	require.Equal(t, []Arg{{Reg: "r0"}, {Value: 1<<32 - 1}}, code[1].Src)
	require.Equal(t, "p0", code[2].Guard)
	require.True(t, code[2].GuardNot)
	require.Equal(t, Relaxed, code[3].Sem)
	require.Equal(t, Sys, code[3].Scope)
	require.Equal(t, SC, code[4].Sem)
	code = l.Threads[1].Code
	require.Equal(t, []Arg{{Value: 5}, {Reg: "r1"}}, code[0].Src)
	require.Equal(t, AcqRel, code[1].Sem)
	require.Equal(t, []Arg{{Value: 1}, {Value: 64}}, code[2].Src)
	require.Equal(t, GPU, code[3].Scope)
	require.Equal(t, "r3", code[4].OffReg)
	require.Equal(t, Red, code[4].Op)

	require.Equal(t, []Observed{{Register: "r0", Size: 4}, {Column: -1, Loc: 2, Off: 2, Size: 2}, {Column: 1, Register: "rd0", Size: 8}}, l.Observed)
	require.Equal(t, []string{"0:r0", "[a+2]", "1:rd0"}, []string{l.NameOf(l.Observed[0]), l.NameOf(l.Observed[1]), l.NameOf(l.Observed[2])})
	require.True(t, l.Expect[0].Holds([]uint64{1, 2, 0}))
	require.False(t, l.Expect[0].Holds([]uint64{1, 0, 0}))
	require.Equal(t, []Mode{Forbidden, Allowed, Permitted}, []Mode{l.Expect[0].Mode, l.Expect[1].Mode, l.Expect[2].Mode})
	require.Equal(t, Mixed, l.Race)
}

// A mov of 128 bits is between a register and its parts, or another register.
func TestParseWide(t *testing.T) {
	tests, err := Parse("w.litmus", []byte(`test: wide
why: all that takes 128 bits
a.u64[2] = 0
d0.b0.t0 | d1.b0.t0
mov.b128 q0, {rd0, -2} | ld.acquire.sys.b128 q1, [a]
st.relaxed.gpu.b128 [a], q0 | @p0 mov.b128 {r0, r1, r2, r3}, q1
mov.b128 q2, q0 | mov.b128 q3, { 1, 2 , r3, 0xffffffff}
forbidden: r2 = 1 & 0:rd0 = 2
`))
	require.NoError(t, err)
	code := tests[0].Threads[0].Code
	require.Equal(t, Instr{Line: 5, Column: 1, Mnemonic: "mov.b128", Op: Alu, Fn: "pack", Type: "b128", Size: 16, Vec: 2, Dst: []string{"q0"},
		Src: []Arg{{Reg: "rd0"}, {Value: 1<<64 - 2}}}, code[0])
	require.Equal(t, Instr{Line: 6, Column: 1, Mnemonic: "st.relaxed.gpu.b128", Op: Store, Fn: "st", Sem: Relaxed, Scope: GPU, Type: "b128", Size: 16, Vec: 1,
		Src: []Arg{{Reg: "q0"}}}, code[1])
	require.Equal(t, Instr{Line: 7, Column: 1, Mnemonic: "mov.b128", Op: Alu, Fn: "mov", Type: "b128", Size: 16, Dst: []string{"q2"}, Src: []Arg{{Reg: "q0"}}}, code[2])
	require.Equal(t, []string{"q0", "rd0", "q2"}, tests[0].Threads[0].Registers)
	code = tests[0].Threads[1].Code
	require.Equal(t, []any{Load, Acquire, 16, []string{"q1"}}, []any{code[0].Op, code[0].Sem, code[0].Size, code[0].Dst})
	require.Equal(t, Instr{Line: 6, Column: 31, Mnemonic: "mov.b128", Guard: "p0", Op: Alu, Fn: "unpack", Type: "b128", Size: 16, Vec: 4,
		Dst: []string{"r0", "r1", "r2", "r3"}, Src: []Arg{{Reg: "q1"}}}, code[1])
	require.Equal(t, []Arg{{Value: 1}, {Value: 2}, {Reg: "r3"}, {Value: 1<<32 - 1}}, code[2].Src)
}

// Errors name the place and a remedy. In each case the marked text is what is wrong.
func TestErrors(t *testing.T) {
	const head = "test: t\nwhy: w\nx = 0; a[4] = 0\nd0.b0.t0 | d0.b0.t1\n"
	const tail = "\nrace: no\n"
	for _, c := range []struct{ text, at, want string }{
		{head + "ld.wek.u32 r0, [x]" + tail, "ld.wek", "`.wek` does not belong"},
		{head + "nop" + tail, "nop", "unknown instruction `nop`"},
		{head + " | ld.relaxed.u32 r0, [x]" + tail, "ld.relaxed", "lacks a modifier"},
		{head + "ld.u32 r0, [z]" + tail, "[z]", "no location `z`"},
		{head + "ld.u32 r0, x" + tail, "x\n", "`x` is no address"},
		{head + "ld.u64 r0, [x]" + tail, "r0", "wrong size"},
		{head + "ld.u64 rd0, [x]" + tail, "[x]", "8 bytes at x+0, which has 4"},
		{head + "ld.u32 r0, [a+2]" + tail, "[a+2]", "4 bytes at a+2"},
		{head + "ld.v2.u32 r0, [a]" + tail, "r0", "does not fit"},
		{head + "ld.v2.u32 {r0, r1, r2}, [a]" + tail, "{r0", "3 elements"},
		{head + "ld.b128 rd0, [a]" + tail, "rd0", "wrong size"},
		{head + "ld.b128 q0, [x]" + tail, "[x]", "16 bytes at x+0, which has 4"},
		{head + "ld.v2.b128 {q0, q1}, [a]" + tail, "{q0", "2 elements"},
		{head + "st.b128 [a], 1" + tail, "1\n", "a constant of 128 bits"},
		{head + "atom.exch.b128 q0, [a], q1" + tail, "atom.exch", "lacks a modifier"},
		{head + "add.b128 q0, q1, q2" + tail, "add.b128", "lacks a modifier"},
		{head + "mov.b128 q0, 1" + tail, "1\n", "`1` is no register"},
		{head + "mov.b128 q0, {rd0, rd1, rd2}" + tail, "{rd0", "`{rd0, rd1, rd2}` is no 128 bits"},
		{head + "mov.b128 q0, {rd0, rd1" + tail, "{rd0", "is no 128 bits"},
		{head + "mov.b128 q0, {rd0, r1}" + tail, "r1", "wrong size"},
		{head + "mov.b128 q0, {rd0, }" + tail, "}", "a part is missing"},
		{head + "mov.b128 q0, {r0, r1, r2, 0x100000000}" + tail, "0x1", "does not fit into 4 bytes"},
		{head + "mov.b128 {rd0, rd1}, {rd2, rd3}" + tail, "{rd2", "is between parts"},
		{head + "mov.b128 {rd0, 1}, q0" + tail, "1}", "`1` is no register"},
		{head + "ld.b128 q0, [a]\nforbidden: q0 = 1\n", "q0 = 1", "`q0` has 128 bits"},
		{head + "st.u32 [x], 1x" + tail, "1x", "`1x` is no number"},
		{head + "st.u32 [x], -0x80000001" + tail, "-0x8", "does not fit into 4 bytes"},
		{"test: t\nwhy: w\nx.u8 = 256\n", "x.u8", "256 does not fit into 1 bytes"},
		{head + "st.u32 [x]" + tail, "st.u32", "has 1 operands"},
		{head + "st.u32 [x], , 1" + tail, " , 1", "an operand is missing"},
		{head + "st.release.sys.acquire.u32 [x], 1" + tail, "st.release", "`.acquire` does not belong"},
		{head + "red.exch.b32 [x], 1" + tail, "red.exch", "lacks a modifier"},
		{head + "fence.sc" + tail, "fence.sc", "lacks a modifier"},
		{head + "bar.sync 16" + tail, "16", "which barrier?"},
		{head + "bra there" + tail, "bra", "no label `there`"},
		{head + "l: exit | exit\nl: exit" + tail, "l: exit\nrace", "is there twice"},
		{head + "@r0 exit" + tail, "r0", "wrong size"},
		{head + "exit | exit | exit" + tail, "exit\nrace", "more cells than the 2 columns"},
		{head + "exit\nrace: perhaps\n", "perhaps", "no answer"},
		{head + "exit\nforbidden: r0 = 1\n", "r0", "no such register `r0`"},
		{head + "ld.u32 r0, [x] | ld.u32 r0, [x]\nforbidden: r0 = 1\n", "r0 = 1", "two columns use `r0`"},
		{head + "ld.u32 r0, [x]\nforbidden: 2:r0 = 1\n", "2:r0", "no column `2`"},
		{head + "ld.u32 r0, [x]\nforbidden: r0\n", "r0\n", "compares nothing"},
		{head + "exit\nforbidden: [a+16] = 1\n", "[a+16]", "is no element"},
		{head + "exit\nforbidden: [x] = 0x100000000\n", "[x] =", "does not fit"},
		{head + "exit\nallowed:\n", "\n", "says nothing"},
		{"test: t\nwhy: w\nx 0\n", "x 0", "declares no location"},
		{"test: t\nwhy: w\nr0 = 0\n", "r0", "is a register"},
		{"test: t\nwhy: w\nx[2] = 1, 2, 3\n", "x[2]", "3 values for 2"},
		{"test: t\nwhy: w\nd0.b0\n", "d0.b0", "declares no location"},
		{"test: t\nwhy: w\nd0.b0.t0 | d0.b0.t0\n", "d0.b0.t0\n", "two columns at"},
		{"test: t\nwhy: w\nd0.b0.t0 | here\n", "here", "is no place"},
		{"test: t\nx = 0\nd0.b0.t0\nexit\nrace: no\n", "test", "has no reason"},
		{"test: t\nwhy: w\nx = 0\nrace: no\n", "test", "has no columns"},
		{"test: t\nwhy: w\nd0.b0.t0\nexit\n", "test", "expects nothing"},
		{"x = 0\n", "x", "belongs to no test"},
		{head + "exit" + tail + "test: t\n", "t\n", "has this name too"},
		{head + "exit" + tail + "st.u32 [x], 1\n", "st.u32", "instructions after the expectations"},
		{"# nothing\n", "", "no test in this file"},
	} {
		_, err := Parse("f.litmus", []byte(c.text))
		var e *Error
		require.ErrorAs(t, err, &e, c.text)
		require.Contains(t, e.Msg, c.want)
		require.NotEmpty(t, e.Remedy)
		require.Contains(t, err.Error(), "f.litmus:")
		lines := strings.Split(c.text, "\n")
		rest := strings.Join(append([]string{lines[e.Line-1][min(e.Column-1, len(lines[e.Line-1])):]}, lines[e.Line:]...), "\n")
		require.Truef(t, strings.HasPrefix(rest, c.at), "%v points at %q, not %q", err, rest, c.at)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("test: a\nwhy: b\nx[2] = 0\nd0.b0.t0 | d1.b0.t0\nst.v2.u32 [x], {1, r0} | @p0 ld.u8 r1, [x+r2]\nforbidden: 1:r1 = 0"))
	f.Fuzz(func(t *testing.T, text []byte) {
		tests, err := Parse("f", text)
		if (err == nil) != (len(tests) > 0) {
			t.Fatal(len(tests), err)
		}
	})
}
