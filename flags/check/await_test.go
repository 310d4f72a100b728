package check

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// between is a program of two devices: the kernels first and second on one each, with two buffers of four words.
func between(t *testing.T, first, second, expect string) *Program {
	t.Helper()
	return specced(t, kernel("first", first)+kernel("second", second),
		"world 2\nbuffer o size 16 on 0\nbuffer a size 16 on 0\narg 0 ptr o\narg 1 ptr a\nlaunch first block 1 on 0\nlaunch second block 1 on 1\n"+expect)
}

// A loop that counts its polls may end by itself; one that only polls is an await.
func TestPollsThatEnd(t *testing.T) {
	counted := "mov.u32 w, 0;\nL:\nld.acquire.sys.global.u32 v, [a];\nsetp.ne.u32 p, v, 0;\n@p bra D;\nadd.u32 w, w, 1;\nsetp.lt.u32 q, w, 3;\n@q bra L;\nmov.u32 v, 57005;\nD:\nst.global.u32 [o], v;"
	poll := "L:\nld.acquire.sys.global.u32 v, [a];\nsetp.eq.u32 p, v, 0;\n@p bra L;\nst.global.u32 [o], v;"
	post := "st.release.sys.global.u32 [a], 1;"
	faulty(t, between(t, counted, post, "expect o count 1 u32 = 1 on 0"), Stale, "0xdead, not 0x1")
	clean(t, between(t, poll, post, "expect o count 1 u32 = 1 on 0"))
	// Loops of loads that wait for nothing.
	clean(t, between(t, "mov.u32 w, 0;\nL:\nld.volatile.global.u32 v, [a];\nadd.u32 u, u, v;\nadd.u32 w, w, 1;\nsetp.lt.u32 q, w, 100;\n@q bra L;\nst.global.u32 [o], w;", post, "expect o count 1 u32 = 100 on 0"))
}

// Of two that take a lock, either is first.
func TestLockHandOver(t *testing.T) {
	take := func(digit string) string {
		return "L:\natom.acquire.sys.global.cas.b32 v, [a], 0, 1;\nsetp.ne.u32 p, v, 0;\n@p bra L;\nld.global.u32 u, [o];\nshl.b32 u, u, 4;\nadd.u32 u, u, " + digit +
			";\nst.global.u32 [o], u;\nst.release.sys.global.u32 [a], 0;"
	}
	for _, want := range []string{"0x12", "0x21"} {
		faulty(t, between(t, take("1"), take("2"), "expect o count 1 u32 = "+want), Stale, "not "+want)
	}
	clean(t, between(t, take("1"), take("1"), "expect o count 1 u32 = 0x11"))
}

// Who waits for a lock by exchanges writes each time, and still lets its holder go on: also where priorities decide, and where
// several that wait take turns. A lock that nobody gives back is a kernel that never ends.
func TestLockByExchange(t *testing.T) {
	take := "L:\natom.acquire.gpu.global.exch.b32 v, [a], 1;\nsetp.ne.u32 p, v, 0;\n@p bra L;\nld.global.u32 u, [o];\nadd.u32 u, u, 1;\nst.global.u32 [o], u;\n"
	give := "atom.release.gpu.global.exch.b32 w, [a], 0;"
	polled := "L:\natom.acquire.gpu.global.exch.b32 v, [a], 1;\nld.relaxed.gpu.global.u32 u, [a];\nsetp.ne.u32 p, v, 0;\n@p bra L;\nld.global.u32 u, [o];\nadd.u32 u, u, 1;\nst.global.u32 [o], u;\n"
	spec := twoWords + "launch k grid 4 block 1\nexpect o u32 = "
	for _, s := range []Strategy{Random, PCT} {
		for _, body := range []string{take + give, polled + give} {
			r, err := Check(t.Context(), specced(t, kernel("k", body), spec+"4"), Options{Strategy: s, Executions: 300, Steps: 100_000})
			require.NoError(t, err)
			require.Empty(t, r.Findings)
			require.EqualValues(t, 300, r.Executions)
		}
		wrong := specced(t, kernel("k", take+give), spec+"5")
		for seed := range uint64(30) {
			r, err := Check(t.Context(), wrong, Options{Strategy: s, Seed: seed, Executions: 1, Steps: 100_000, NoFix: true})
			require.NoError(t, err)
			require.Len(t, r.Findings, 1)
			require.Equal(t, Stale, r.Findings[0].Kind)
			again, err := Check(t.Context(), wrong, Options{Replay: r.Findings[0].Token, Steps: 100_000, NoFix: true})
			require.NoError(t, err)
			require.Equal(t, r.Findings, again.Findings)
			require.Equal(t, r.Operations, again.Operations)
		}
		r, err := Check(t.Context(), specced(t, kernel("k", take), spec+"1"), Options{Strategy: s, Executions: 300, Steps: 100_000})
		require.NoError(t, err)
		require.Len(t, r.Findings, 1)
		require.Equal(t, Endless, r.Findings[0].Kind)
		require.EqualValues(t, 1, r.Executions)
	}
}

// What the search waits for is a write to that location: a thread that goes another way may write elsewhere first.
func TestWritesElsewhere(t *testing.T) {
	clean(t, between(t, "ld.relaxed.sys.global.u32 v, [a];\nst.relaxed.sys.global.u32 [a+8], 1;\nsetp.eq.u32 p, v, 3;\nselp.u32 v, 57005, 1, p;\nst.global.u32 [o], v;",
		"ld.relaxed.sys.global.u32 u, [a+8];\nsetp.eq.u32 p, u, 0;\n@p st.relaxed.sys.global.u32 [a], 2;\nst.relaxed.sys.global.u32 [a+4], 3;",
		"expect o count 1 u32 = 1 on 0"))
}

// The model allows what the search does not try; then it does not say that it has seen all.
func TestLoadsPutOff(t *testing.T) {
	post := "L:\nld.acquire.sys.global.u32 u, [a+4];\nsetp.eq.u32 p, u, 0;\n@p bra L;\nst.relaxed.sys.global.u32 [a], 2;"
	for _, c := range []struct{ load, why string }{
		{"atom.relaxed.sys.global.exch.b32 v, [a], 7;\nst.relaxed.sys.global.u32 [a+4], 1;\nst.global.u32 [o], v;", "not put off until after a write"},
		{"ld.relaxed.sys.global.v2.u32 {v, u}, [a+8];\nst.relaxed.sys.global.u32 [a+4], 1;\nst.global.u32 [o], v;", "not put off until after a write"},
		{"ld.relaxed.sys.global.u32 v, [a];\nst.relaxed.sys.global.u32 [a], 7;\nst.relaxed.sys.global.u32 [a+4], 1;\nst.global.u32 [o], v;", "beyond the next access"},
		{"st.release.sys.global.v2.u32 [a+8], {1, 1};\nst.relaxed.sys.global.u32 [a+4], 1;", "vector release"},
	} {
		r, err := Check(context.Background(), between(t, c.load, post, ""), Options{Strategy: Exhaustive})
		require.NoError(t, err)
		require.Empty(t, r.Findings)
		require.False(t, r.Exhaustive)
		require.Contains(t, r.Why, c.why)
	}
	clean(t, between(t, "atom.relaxed.sys.global.exch.b32 v, [a], 7;\nsetp.eq.u32 p, v, 9;\n@p st.global.u32 [o], v;\nst.relaxed.sys.global.u32 [a+4], 1;", post, ""))
}

// Whoever comes upon a word must have all behind it that wrote parts of it.
func TestWritersOfParts(t *testing.T) {
	spec := "world 4\ndevices 1\nbuffer o size 8 on 0\nbuffer a size 8 on 0\narg 0 ptr o\narg 1 ptr a\nlaunch k0 block 1 on 0\nlaunch k1 block 1 on 1\nlaunch k2 block 1 on 2\nlaunch k3 block 1 on 3"
	post := func(name, word string) string {
		return kernel(name, "st.global.u32 [o+"+word+"], 1;\nst.release.gpu.global.u32 [a+"+word+"], 1;")
	}
	await := func(l, word string) string {
		return l + ":\nld.acquire.gpu.global.u32 v, [a+" + word + "];\nsetp.eq.u32 p, v, 0;\n@p bra " + l + ";\n"
	}
	read := ".reg .b64 x;\nld.relaxed.gpu.global.u64 x, [o];"
	both := await("L", "0") + await("M", "4") + read
	faulty(t, specced(t, post("k0", "0")+post("k1", "4")+kernel("k2", both)+kernel("k3", await("L", "4")+read), spec), Race, "")
	clean(t, specced(t, post("k0", "0")+post("k1", "4")+kernel("k2", both)+kernel("k3", both), spec))
}

// What an atomic passes on is observed by who reads what it wrote.
func TestObservedThroughAtomics(t *testing.T) {
	spec := "world 3\nbuffer o size 4 on 0\nbuffer a size 4 on 0\narg 0 ptr o\narg 1 ptr a\nlaunch k0 block 1 on 0\nlaunch k1 block 1 on 1\nlaunch k2 block 1 on 2"
	wait := "L:\nld.relaxed.sys.global.u32 v, [a];\nsetp.ne.u32 p, v, 2;\n@p bra L;\nld.global.u32 u, [a];"
	pass := "L:\natom.relaxed.sys.global.cas.b32 v, [a], 1, 2;\nsetp.ne.u32 p, v, 1;\n@p bra L;"
	clean(t, specced(t, kernel("k0", "st.relaxed.sys.global.u32 [a], 1;")+kernel("k1", pass)+kernel("k2", wait), spec))
	// Also the atomic's read comes before what follows, whatever that writes.
	clean(t, specced(t, kernel("k0", "st.relaxed.sys.global.u32 [a], 1;")+kernel("k1", pass)+kernel("k2", wait+"\nst.global.u32 [a], 3;"), spec))
}

// ld.global.nc is for memory that nobody writes from ahead of the launch until the kernel has ended.
func TestReadOnlyMemory(t *testing.T) {
	for _, body := range []string{
		"st.global.u16 [a+2], h;\nbar.sync 0;\nld.global.nc.u16 h, [a+2];",
		"st.relaxed.gpu.global.u32 [a], 7;\nld.global.nc.u32 v, [a];",
	} {
		faulty(t, specced(t, kernel("k", ".reg .b16 h;\n"+body), twoWords+"launch k block 1"), ReadOnly, "")
		faulty(t, specced(t, kernel("k", ".reg .b16 h;\n"+body), "world 1\nbuffer o size 4 on 0\nbuffer a size 4 host on 0\narg 0 ptr o\narg 1 ptr a\nlaunch k block 1"), ReadOnly, "")
	}
	read := "ld.global.nc.u32 v, [o];\nst.release.sys.global.u32 [a], 1;"
	write := "L:\nld.acquire.sys.global.u32 v, [a];\nsetp.eq.u32 p, v, 0;\n@p bra L;\nst.global.u32 [o], 9;"
	faulty(t, between(t, read, write, ""), ReadOnly, "")
	// Also while the kernel that reads goes on.
	faulty(t, between(t, read+"\nM:\nld.acquire.sys.global.u32 v, [a+4];\nsetp.eq.u32 p, v, 0;\n@p bra M;", write+"\nst.release.sys.global.u32 [a+4], 1;", ""), ReadOnly, "")
	clean(t, specced(t, kernel("r", read)+kernel("w", "st.global.u32 [o], 9;"), twoWords+"launch r block 1\nlaunch w block 1"))
}
