package check

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

const twoBuffers = "world 1\nbuffer o size 8 on 0\nbuffer a size 8 on 0\narg 0 ptr o\narg 1 ptr a\n"

// Wide and vector accesses reach all of their words, whatever is known of those, and no byte more.
func TestWideAccesses(t *testing.T) {
	clean(t, specced(t, kernel("k", ".reg .b64 x;\nmov.u64 x, 0x1122334455667788;\nst.global.u64 [a], x;\nld.global.u64 x, [a];\nst.global.u64 [o], x;"),
		twoBuffers+"launch k block 1\nexpect o u64 = 0x1122334455667788\nexpect a at 4 u32 = 0x11223344"))
	clean(t, specced(t, kernel("k", "st.relaxed.gpu.global.u32 [a+4], 5;\nld.global.v2.u32 {v, u}, [a];\nst.global.u32 [o], u;"),
		twoBuffers+"launch k block 1\nexpect o count 1 u32 = 5"))
	clean(t, specced(t, kernel("k", "st.relaxed.gpu.global.u32 [a+4], 5;\nmov.u32 u, 6;\nst.global.v2.u32 [a], {u, u};\nld.relaxed.gpu.global.u32 v, [a+4];\nst.global.u32 [o], v;"),
		twoBuffers+"launch k block 1\nexpect o count 1 u32 = 6\nexpect a u32 = 6"))
	for _, c := range []struct {
		size, access string
		fault        bool
	}{
		{"5", "ld.global.u16 v, [a+4];", true},
		{"6", "ld.global.u16 v, [a+4];", false},
		{"7", "st.relaxed.gpu.global.u32 [a+4], 1;", true},
		{"8", "st.relaxed.gpu.global.u32 [a+4], 1;", false},
		{"15", "ld.global.v4.u32 {v, v, v, v}, [a];", true},
	} {
		p := specced(t, kernel("k", c.access), "world 1\nbuffer o size 4 on 0\nbuffer a size "+c.size+" on 0\narg 0 ptr o\narg 1 ptr a\nlaunch k block 1")
		if c.fault {
			faulty(t, p, Faulted, "no buffer holds")
		} else {
			clean(t, p)
		}
	}
}

// A loop that polls several words goes on when any of them changes.
func TestPollsOfSeveralWords(t *testing.T) {
	for _, word := range []string{"[a]", "[a+4]"} {
		clean(t, between(t, "L:\nld.relaxed.sys.global.u32 v, [a];\nld.relaxed.sys.global.u32 u, [a+4];\nor.b32 v, v, u;\nsetp.eq.u32 p, v, 0;\n@p bra L;\nst.global.u32 [o], v;",
			"st.relaxed.sys.global.u32 "+word+", 3;", "expect o count 1 u32 = 3 on 0"))
	}
}

// Who polls by the clock gives up by the clock, where the spec lets it.
func TestGiveUpByTheClock(t *testing.T) {
	body := ".reg .b64 then, now;\nmov.u64 then, %globaltimer;\nL:\nld.relaxed.sys.global.u32 v, [a];\nsetp.ne.u32 p, v, 0;\n@p bra D;\nmov.u64 now, %globaltimer;\nsub.u64 now, now, then;\n" +
		"setp.lt.u64 q, now, 1000000;\n@q bra L;\nmov.u32 v, 57005;\nD:\nst.global.u32 [o], v;"
	for _, s := range []Strategy{Random, PCT, Exhaustive} {
		r, err := Check(context.Background(), specced(t, kernel("k", body), "world 1\ngiveup\nbuffer o size 4 on 0\nbuffer a size 4 on 0\narg 0 ptr o\narg 1 ptr a\nlaunch k block 1\nexpect o u32 = 57005"), Options{Strategy: s, Executions: 20, Steps: 100_000})
		require.NoError(t, err)
		require.Empty(t, r.Findings)
		require.False(t, r.Exhaustive)
	}
	faulty(t, specced(t, kernel("k", body), twoWords+"launch k block 1\nexpect o u32 = 57005"), Stuck, "never comes")
}

// What the launch ahead did is before all that comes after the wait for it.
func TestGridWaitOrders(t *testing.T) {
	spec := twoWords + "launch k block 1\nlaunch d block 1 dependent\nexpect o u32 = 7"
	first := kernel("k", "griddepcontrol.launch_dependents;\nst.global.u32 [a], 7;")
	clean(t, specced(t, first+kernel("d", "griddepcontrol.wait;\nld.global.u32 v, [a];\nst.global.u32 [o], v;"), spec))
	faulty(t, specced(t, first+kernel("d", "ld.global.u32 v, [a];\ngriddepcontrol.wait;\nst.global.u32 [o], v;"), spec), Race, "nothing orders")
}
