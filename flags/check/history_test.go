package check

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/ptx"
)

// lineOf is the first line of text that holds part.
func lineOf(t *testing.T, text, part string) int {
	t.Helper()
	before, _, ok := strings.Cut(text, part)
	require.True(t, ok, part)
	return strings.Count(before, "\n") + 1
}

// The history of a wrong result names the write of it and the reads that it came from, whatever the run did later.
func TestWrongResultIsTraced(t *testing.T) {
	text, err := os.ReadFile("examples/fault_vector.ptx")
	require.NoError(t, err)
	specText, err := os.ReadFile("examples/fault_vector.spec")
	require.NoError(t, err)
	m, err := ptx.Parse("fault_vector.ptx", text)
	require.NoError(t, err)
	spec, err := ParseSpec("fault_vector.spec", string(specText))
	require.NoError(t, err)
	store, load := lineOf(t, string(text), "st.relaxed.sys.global.v2.u32"), lineOf(t, string(text), "ld.relaxed.sys.global.v2.u32")
	for _, set := range []map[string]string{nil, {"world": "3"}, {"count": "40"}} {
		for _, s := range []Strategy{Random, PCT, Exhaustive} {
			p, err := spec.Program(m, set)
			require.NoError(t, err)
			p.Lines, p.Calls = LinesOf("fault_vector.ptx", text)
			r, err := Check(t.Context(), p, Options{Strategy: s})
			require.NoError(t, err)
			require.Len(t, r.Findings, 1)
			f := &r.Findings[0]
			require.Equal(t, Stale, f.Kind)
			require.True(t, f.Traced)
			require.Contains(t, f.Message, f.B.Buffer+": ")
			require.Contains(t, f.B.Text, "st.global.u32")
			require.True(t, f.B.Write)
			require.Equal(t, 4, f.B.Size)
			stale := 0
			for i := range f.History {
				a := &f.History[i]
				require.Equal(t, []any{f.B.Task, f.B.Device, f.B.Thread}, []any{a.Task, a.Device, a.Thread}, "reads of the thread that wrote it")
				require.NotNil(t, a.ReadFrom)
				if a.Newer != nil {
					stale++
					require.Equal(t, load, a.Line)
					require.Equal(t, store, a.Newer.Line)
					require.Equal(t, "vector.cuh", a.Newer.Source)
					require.NotEqual(t, a.Value, a.Newer.Value)
					require.Equal(t, a.Offset, a.Newer.Offset)
				}
			}
			require.NotZero(t, stale)
			require.LessOrEqual(t, strings.Count(f.String(), "from: ")+strings.Count(f.String(), "STALE: ")+len(f.History), 12)
			again, err := Check(t.Context(), p, Options{Replay: f.Token})
			require.NoError(t, err)
			require.Equal(t, f.String(), again.Findings[0].String())
			quick, err := Check(t.Context(), p, Options{Strategy: s, NoFix: true})
			require.NoError(t, err)
			require.False(t, quick.Findings[0].Traced)
			require.Contains(t, quick.Findings[0].String(), "\n  wrote:  device ")
		}
	}
}

// What was copied aside is followed back to the kernel that wrote it; what nobody wrote is said to be so.
func TestWrongResultBehindCopies(t *testing.T) {
	kernels := kernel("first", "L:\nld.relaxed.sys.global.v2.u32 {v, u}, [a];\nsetp.eq.u32 p, u, 0;\n@p bra L;\nst.global.u32 [o], v;") +
		kernel("second", "mov.u32 v, 5;\nmov.u32 u, 1;\nst.relaxed.sys.global.v2.u32 [a], {v, u};") + kernel("third", "st.global.u32 [o], 9;")
	f := faulty(t, specced(t, kernels, "world 2\nbuffer o size 4 on 0\nbuffer a size 8 on 0\narg 0 ptr o\narg 1 ptr a\nlaunch first block 1 on 0\nlaunch second block 1 on 1\n"+
		"expect o u32 = 5 on 0\nlaunch third block 1 on 0\nexpect o u32 = 9 on 0"), Stale, "o: element 0 is 0x0, not 0x5")
	require.True(t, f.Traced)
	require.Equal(t, "first call 0", f.B.Task)
	require.Equal(t, "o", f.B.Buffer)
	require.Len(t, f.History, 2)
	require.Equal(t, uint64(0), f.History[0].Value)
	require.Contains(t, f.History[0].Newer.Text, "st.relaxed.sys.global.v2.u32")
	require.Equal(t, uint64(5), f.History[0].Newer.Value)
	require.Nil(t, f.History[1].Newer)
	require.Equal(t, 1, f.History[1].ReadFrom.Device)

	f = faulty(t, specced(t, kernel("k", ""), twoWords+"launch k block 1\nexpect o u32 = 1"), Stale, "not 0x1")
	require.Nil(t, f.B)
	require.Contains(t, f.Missing, "a write: it is what it was at the start")

	f = faulty(t, specced(t, kernel("k", "st.global.u32 [o], 2;"), twoWords+"launch k block 1\nexpect o u32 = 1"), Stale, "not 0x1")
	require.Equal(t, uint64(2), f.B.Value)
	require.Contains(t, f.String(), "its thread read nothing strong or of others ahead of that")
}

// Plain reads of a peer's memory are told too, and those of a thread's own are not.
func TestWrongResultTellsReadsOfPeers(t *testing.T) {
	f := faulty(t, specced(t, kernel("k", "ld.global.u32 u, [o];\nld.global.v2.u32 {v, w}, [a];\nadd.u32 v, v, u;\nst.global.u32 [o], v;"),
		"world 2\nbuffer o size 4 on 0\nbuffer a size 8 on 1\narg 0 ptr o\narg 1 ptr a\nlaunch k block 1 on 0\nexpect o u32 = 1 on 0"), Stale, "not 0x1")
	require.Len(t, f.History, 1)
	require.Equal(t, []any{"a", 0, 8}, []any{f.History[0].Buffer, f.History[0].Offset, f.History[0].Size})
}

// A deadlock shows what is polled, what is there and who wrote it, ahead of those who wait for the pollers.
func TestDeadlockTellsPolls(t *testing.T) {
	f := faulty(t, between(t, "L:\nld.relaxed.sys.global.u32 v, [a+4];\nsetp.ne.u32 p, v, 9;\n@p bra L;\nst.global.u32 [o], v;",
		"st.relaxed.sys.global.u32 [a+4], 1;\nst.relaxed.sys.global.u32 [a+4], 2;\nst.relaxed.sys.global.u32 [a+4], 3;", "expect o count 1 u32 = 1 on 0"), Stuck, "never comes")
	require.True(t, f.Polls())
	w := &f.Waiting[0]
	require.Equal(t, []any{"a", 4, uint64(3)}, []any{w.Buffer, w.Offset, w.Value})
	require.Len(t, w.Writes, 2)
	require.Equal(t, []uint64{2, 3}, []uint64{w.Writes[0].Value, w.Writes[1].Value})
	require.Equal(t, 1, w.Writes[1].Device)
	require.Equal(t, 1, w.Earlier)
	text := f.String()
	require.Contains(t, text, "a+4 = 0x3\n    written: device 1 second call 0 ")
	require.NotContains(t, text, "  1. ")

	f = faulty(t, specced(t, kernel("k", "setp.ne.u32 p, t, 40;\n@p bra D;\nL:\nld.relaxed.sys.global.u32 v, [a];\nsetp.eq.u32 p, v, 0;\n@p bra L;\nD:\nbar.sync 0;"),
		twoWords+"launch k block 64\nexpect o u32 = 0"), Stuck, "never comes")
	require.Equal(t, [3]uint32{40, 0, 0}, f.Waiting[0].Thread)
	require.Contains(t, f.String(), "a+0 = 0x0\n    never written")
}
