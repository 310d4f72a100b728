package check

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags/check/litmus"
)

// litmusSuite is every test in testdata.
func litmusSuite(t testing.TB) []*Litmus {
	t.Helper()
	files, err := filepath.Glob("testdata/*.litmus")
	require.NoError(t, err)
	var all []*Litmus
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		tests, err := ParseLitmus(filepath.Base(f), text)
		require.NoError(t, err)
		all = append(all, tests...)
	}
	return all
}

// Every test of the suite becomes PTX that parses, with a task for each device.
func TestLitmusPrograms(t *testing.T) {
	for _, l := range litmusSuite(t) {
		p, err := l.Program()
		require.NoError(t, err, l.PTX())
		devices := map[int]bool{}
		for _, th := range l.Threads {
			devices[th.Device] = true
		}
		require.Len(t, p.Tasks, len(devices), l.Name)
		require.Len(t, p.Observe, len(l.Observed), l.Name)
		require.Len(t, p.Buffers, len(l.Locations), l.Name)
		require.True(t, p.Racy)
	}
}

func TestLitmusProgram(t *testing.T) {
	tests, err := ParseLitmus("a.litmus", []byte(`
test: all of it
why: to see the PTX
x.u64 = 0x102 @1; a[4] = 1, 2, 3, 4
d0.b0.t0                          | d1.b1.t3
again: ld.acquire.sys.u32 r0, [a+4] | atom.add.release.sys.u64 rd1, [x], 1
setp.ne.u32 p0, r0, 2             | st.v2.u32 [a+8], {5, r3}
@!p0 bra again                    | ld.u32 r3, [a+r3]
forbidden: r0 = 1 & [x] = 2 & [a+12] = 1
`))
	require.NoError(t, err)
	p, err := tests[0].Program()
	require.NoError(t, err)
	require.Equal(t, 2, p.Devices)
	require.Equal(t, []byte{2, 1, 0, 0, 0, 0, 0, 0}, p.Buffers[0].Init)
	require.Equal(t, 1, p.Buffers[0].Device)
	require.Equal(t, [3]uint32{2, 1, 1}, p.Tasks[1].Grid)
	require.Equal(t, [3]uint32{4, 1, 1}, p.Tasks[1].Block)
	require.Equal(t, Observed{Name: "0:r0", Register: "%c0_r0", Size: 4}, p.Observe[0])
	require.Equal(t, Observed{Name: "[x]", Task: -1, Size: 8}, p.Observe[1])
	require.Equal(t, Observed{Name: "[a+12]", Task: -1, Buffer: 1, Offset: 12, Size: 4}, p.Observe[2])
}

func TestLitmusJudge(t *testing.T) {
	tests, err := ParseLitmus("a.litmus", []byte(`
test: judged
why: to judge it
x = 0
d0.b0.t0            | d0.b0.t1
st.weak.u32 [x], 1  | ld.weak.u32 r0, [x]
forbidden: r0 = 2
allowed: r0 = 1
always: [x] = 1
race: yes
`))
	require.NoError(t, err)
	l := tests[0]
	race := []Finding{{Kind: Race}}
	ok := l.Judge(&Result{Outcomes: map[string]uint64{"0 1": 1, "1 1": 3}, Findings: race})
	require.True(t, ok.OK(), ok.String())

	v := l.Judge(&Result{Outcomes: map[string]uint64{"0 1": 1}, Findings: race})
	require.False(t, v.OK())
	require.True(t, v.Sound())
	require.Equal(t, "not reached `allowed: r0 = 1` (line 8)", v.String())

	v = l.Judge(&Result{Outcomes: map[string]uint64{"1 1": 1, "2 0": 1}})
	require.False(t, v.Sound())
	require.Equal(t, "contradicted `forbidden: r0 = 2` (line 7) by \"2 0\"; contradicted `always: [x] = 1` (line 9) by \"2 0\"; "+
		"race: yes expected, no found", v.String())

	v = l.Judge(&Result{Outcomes: map[string]uint64{"1 1": 1}, Findings: []Finding{{Kind: Stuck, Message: "two wait"}, {Kind: MixedSize}}})
	require.Equal(t, []string{"deadlock: two wait"}, v.Other)
	require.Equal(t, "race: yes expected, mixed size found", v.Race)
	require.Equal(t, litmus.Yes, l.Race)
}

// A permitted line that no execution fulfils is judged by the axioms: the model must allow it.
func TestLitmusPermitted(t *testing.T) {
	run := func(text string) Verdict {
		tests, err := ParseLitmus("a.litmus", []byte(text))
		require.NoError(t, err)
		v, _, err := tests[0].Run(t.Context(), Options{Strategy: Exhaustive})
		require.NoError(t, err)
		return v
	}
	const lb = "test: LB\nwhy: an acquire that finishes late\nx = 0; y = 0\nd0.b0.t0 | d1.b0.t0\n" +
		"ld.acquire.sys.u32 r0, [x] | ld.acquire.sys.u32 r1, [y]\nst.relaxed.sys.u32 [y], 1 | st.relaxed.sys.u32 [x], 1\n"
	v := run(lb + "permitted: r0 = 0 & r1 = 1\npermitted: r0 = 1 & r1 = 1\n")
	require.True(t, v.OK(), v.String())
	require.Equal(t, []Permitted{{"`permitted: r0 = 0 & r1 = 1` (line 7)", BySearch, ""}, {"`permitted: r0 = 1 & r1 = 1` (line 8)", ByAxioms, ""}}, v.Permitted)

	v = run(lb + "permitted: r0 = 2\npermitted: r0 = 1\n")
	require.False(t, v.OK())
	require.False(t, v.Sound())
	require.Equal(t, "the axioms forbid `permitted: r0 = 2` (line 7)", v.String())

	// Loops that do more than wait are beyond the axioms. Then nothing is claimed.
	v = run("test: loop\nwhy: it counts\nx = 0\nd0.b0.t0\nL: add.u32 r0, r0, 1\nsetp.ne.u32 p0, r0, 3\n@p0 bra L\nst.u32 [x], r0\npermitted: r0 = 2\n")
	require.True(t, v.OK())
	require.Equal(t, Unjudged, v.Permitted[0].By)
	require.Equal(t, "the axioms cannot be asked: loop: column 0 carries `r0` from one round of a loop into the next; the axioms are for loops that only wait", v.Permitted[0].Why)
}
