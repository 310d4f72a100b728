package check

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Bytes of a word have histories of their own, and take over that of the word.
func TestBytesOfWords(t *testing.T) {
	two := func(first, second string) *Program {
		return specced(t, kernel("k", "setp.eq.u32 p, t, 0;\n@!p bra B;\n"+first+"\nret;\nB:\n"+second), twoWords+"launch k block 2")
	}
	for _, c := range [][2]string{
		{"st.global.u8 [a+3], t;", "ld.global.u8 v, [a];"},
		{"st.global.u8 [a], t;", "ld.global.u8 v, [a+1];"},
		{"st.global.u8 [a+1], t;", "st.global.u16 [a+2], t;"},
		{"ld.global.u8 v, [a+1];", "st.global.u16 [a+2], t;"},
		{"ld.global.u32 v, [a];", "ld.global.u8 v, [a+1];"},
	} {
		clean(t, two(c[0], c[1]))
		clean(t, two(c[1], c[0]))
	}
	for _, c := range [][2]string{
		{"ld.global.u32 v, [a];", "st.global.u8 [a+1], t;"},
		{"st.global.u32 [a], t;", "ld.global.u8 v, [a+3];"},
		{"st.global.u32 [a], t;", "st.global.u16 [a+2], t;"},
		{"ld.global.u16 v, [a];", "st.global.u8 [a+1], t;"},
	} {
		faulty(t, two(c[0], c[1]), Race, "nothing orders")
		faulty(t, two(c[1], c[0]), Race, "nothing orders")
	}
}

// An access of another size ends a history, and those that it need not come after are remembered.
func TestHistoryThatEnds(t *testing.T) {
	all, random := found(t, specced(t, kernel("k", "setp.eq.u32 p, t, 0;\n@!p bra B;\nld.relaxed.gpu.global.u32 v, [a];\nret;\nB:\nld.global.u16 v, [a];\nst.global.u32 [a], t;"),
		twoWords+"launch k block 2"))
	for _, r := range []*Result{all, random} {
		require.Len(t, r.Findings, 1)
		require.Contains(t, []Kind{Race, MixedSize}, r.Findings[0].Kind)
	}

	// A write ends it too, and whoever read it must come before.
	r, err := Check(context.Background(), specced(t, kernel("k", "setp.eq.u32 p, t, 0;\n@!p bra B;\nld.relaxed.gpu.global.u32 v, [a];\nret;\nB:\nst.global.u16 [a], t;"), twoWords+"launch k block 2"), Options{Strategy: Exhaustive})
	require.NoError(t, err)
	require.Len(t, r.Findings, 1)
	require.Equal(t, MixedSize, r.Findings[0].Kind)

	// A history that begins knows who read before.
	faulty(t, specced(t, kernel("k", "setp.eq.u32 p, t, 0;\n@!p bra B;\nld.global.u32 v, [a];\nret;\nB:\nld.relaxed.gpu.global.u32 v, [a];\nst.relaxed.gpu.global.u32 [a], t;"), twoWords+"launch k block 2"), Race, "nothing orders")

	// k0 and k1 write o, k2 has both behind it and ends the history, k3 has k1 alone behind it.
	post := func(name, value, flag string) string {
		return kernel(name, "st.relaxed.gpu.global.u32 [o], "+value+";\nst.release.gpu.global.u32 [a+"+flag+"], 1;")
	}
	await := func(sem, flag string) string {
		return "L" + flag + ":\nld." + sem + ".gpu.global.u32 v, [a+" + flag + "];\nsetp.eq.u32 p, v, 0;\n@p bra L" + flag + ";\n"
	}
	spec := "world 4\ndevices 1\nbuffer o size 8 on 0\nbuffer a size 16 on 0\narg 0 ptr o\narg 1 ptr a\nlaunch k0 block 1 on 0\nlaunch k1 block 1 on 1\nlaunch k2 block 1 on 2\nlaunch k3 block 1 on 3"
	k2 := kernel("k2", await("acquire", "0")+await("acquire", "4")+"ld.global.u16 v, [o];\nst.relaxed.gpu.global.u32 [a+8], 1;")
	for _, read := range []string{"ld.global.u32 v, [o];", "ld.global.u8 v, [o+2];"} {
		p := specced(t, post("k0", "1", "0")+post("k1", "2", "4")+k2+kernel("k3", await("acquire", "4")+await("relaxed", "8")+read), spec)
		r, err := Check(context.Background(), p, Options{Strategy: Exhaustive, Executions: 1}) // k1 writes last in it
		require.NoError(t, err)
		require.Len(t, r.Findings, 1)
		require.Contains(t, []Kind{Race, MixedSize}, r.Findings[0].Kind)
		clean(t, specced(t, post("k0", "1", "0")+post("k1", "2", "4")+k2+kernel("k3", await("acquire", "4")+await("acquire", "0")+read), spec))
	}

	// What one thread observed is before what it does itself.
	poll := "L:\nld.relaxed.gpu.global.u32 v, [o];\nsetp.eq.u32 p, v, 0;\n@p bra L;\nld.global.u16 v, [o];\nst.release.gpu.global.u32 [a], 1;"
	other := func(sem string) *Program {
		return specced(t, kernel("k0", "st.relaxed.gpu.global.u32 [o], 1;")+kernel("k1", poll)+kernel("k2", await(sem, "0")+"ld.global.u16 v, [o];"),
			"world 3\ndevices 1\nbuffer o size 8 on 0\nbuffer a size 16 on 0\narg 0 ptr o\narg 1 ptr a\nlaunch k0 block 1 on 0\nlaunch k1 block 1 on 1\nlaunch k2 block 1 on 2")
	}
	clean(t, other("acquire"))
	r, err = Check(context.Background(), other("relaxed"), Options{Strategy: Exhaustive, Executions: 1})
	require.NoError(t, err)
	require.Len(t, r.Findings, 1)

	// What was written whole is there in parts.
	clean(t, specced(t, kernel("k", ".reg .b64 x;\nmov.u64 x, 0x1122334455667788;\nst.relaxed.gpu.global.u64 [o], x;\nld.global.u32 v, [o+4];\nst.global.u32 [a], v;\nld.global.u8 v, [o+6];\nst.global.u32 [a+4], v;"),
		"world 1\nbuffer o size 8 on 0\nbuffer a size 8 on 0\narg 0 ptr o\narg 1 ptr a\nlaunch k block 1\nexpect a count 1 u32 = 0x11223344\nexpect a at 4 u32 = 0x22\nexpect o u64 = 0x1122334455667788"))
}

// Who polls memory whose history ends looks at it again.
func TestPolledHistoryThatEnds(t *testing.T) {
	poll := ".reg .b64 l;\nL:\nld.relaxed.sys.global.u64 l, [a];\nmov.b64 {u, v}, l;\nsetp.eq.u32 p, v, 0;\n@p bra L;\nst.global.u32 [o], v;"
	faulty(t, between(t, poll, "st.relaxed.sys.global.u32 [a+4], 7;", ""), MixedSize, "overlap in part")
	// A narrow read ends it too, and what comes then is no narrow write.
	whole := ".reg .b64 l;\nld.global.u32 v, [a+4];\nmov.u32 v, 7;\nmov.b64 l, {v, v};\nst.relaxed.sys.global.u64 [a], l;"
	clean(t, between(t, poll, whole, "expect o count 1 u32 = 7 on 0"))
}

// A history that is full forgets its oldest values, and the search says so.
func TestHistoryThatIsFull(t *testing.T) {
	p := columns(t, true, "st.relaxed.sys.global.u32 [x], 1;\nst.relaxed.sys.global.u32 [x], 2;\nst.relaxed.sys.global.u32 [x], 3;\nst.release.sys.global.u32 [y], 1;",
		"ld.acquire.sys.global.u32 %r0, [y];\nld.relaxed.sys.global.u32 %r1, [x];").see(1, "%r0").see(1, "%r1")
	p.Observe = append(p.Observe, Observed{Name: "x", Task: -1, Size: 4})
	for _, s := range []Strategy{Random, Exhaustive} {
		r, err := Check(t.Context(), p, Options{Strategy: s, MaxWrites: 2})
		require.NoError(t, err)
		require.NotZero(t, r.Evictions)
		require.False(t, r.Exhaustive)
		if s == Exhaustive {
			require.Contains(t, r.Why, "writes were forgotten: raise MaxWrites")
		}
		require.Contains(t, r.Outcomes, "1 3 3")
		for o := range r.Outcomes {
			require.Equal(t, uint64(3), OutcomeValues(o)[2], o)
			require.False(t, OutcomeValues(o)[0] == 1 && OutcomeValues(o)[1] != 3, o)
		}
	}
	r, err := Check(t.Context(), p, Options{Strategy: Exhaustive, MaxWrites: 4})
	require.NoError(t, err)
	require.Zero(t, r.Evictions)
	require.True(t, r.Exhaustive, r.Why)
	require.Contains(t, r.Outcomes, "0 1 3")
}

// Of all who have read a word, each is remembered until somebody comes after it.
func TestReadersAreKept(t *testing.T) {
	body := func(mask string) string {
		return "setp.eq.u32 p, t, 2;\n@!p ld.global.u32 v, [a];\nbar.warp.sync " + mask + ";\n@p st.global.u32 [a], 1;"
	}
	f := faulty(t, specced(t, kernel("k", "setp.eq.u32 q, t, 0;\n@!q bra R;\nld.global.u32 v, [a];\nret;\nR:\n"+body("6")), twoWords+"launch k block 3"), Race, "nothing orders")
	require.Zero(t, f.A.Thread[0])
	clean(t, specced(t, kernel("k", body("7")), twoWords+"launch k block 3"))
}
