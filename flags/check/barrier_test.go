package check

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/ptx"
)

// specced is the program of a spec, for kernels of this text.
func specced(t *testing.T, kernels, spec string) *Program {
	t.Helper()
	m, err := ptx.Parse("k.ptx", []byte(".version 8.4\n.target sm_90\n.address_size 64\n"+kernels))
	require.NoError(t, err)
	s, err := ParseSpec("k.spec", spec)
	require.NoError(t, err)
	p, err := s.Program(m, nil)
	require.NoError(t, err)
	return p
}

// kernel is an entry that is given the addresses o and a, and has its thread's index in t.
func kernel(name, body string) string {
	return ".visible .entry " + name + `(.param .u64 po, .param .u64 pa) {
.reg .b64 o, a; .reg .b32 t, u, v, w; .reg .pred p, q; .shared .align 4 .b8 s[16];
ld.param.u64 o, [po];
ld.param.u64 a, [pa];
mov.u32 t, %tid.x;
` + body + "\nret;\n}\n"
}

const twoWords = "world 1\nbuffer o size 4 on 0\nbuffer a size 4 on 0\narg 0 ptr o\narg 1 ptr a\n"

// found is what a search through all executions and one at random find. Tokens replay it.
func found(t *testing.T, p *Program) (all, random *Result) {
	t.Helper()
	all, err := Check(context.Background(), p, Options{Strategy: Exhaustive})
	require.NoError(t, err)
	random, err = Check(context.Background(), p, Options{Executions: 200})
	require.NoError(t, err)
	for _, r := range []*Result{all, random} {
		for i := range r.Findings {
			f := &r.Findings[i]
			t.Log(f.String())
			again, err := Check(context.Background(), p, Options{Replay: f.Token})
			require.NoError(t, err)
			require.Len(t, again.Findings, 1)
			require.Equal(t, f.key(), again.Findings[0].key())
		}
	}
	return all, random
}

func clean(t *testing.T, p *Program) {
	t.Helper()
	all, random := found(t, p)
	require.Empty(t, all.Findings)
	require.Empty(t, random.Findings)
	require.True(t, all.Exhaustive, all.Why)
}

func faulty(t *testing.T, p *Program, kind Kind, message string) *Finding {
	t.Helper()
	all, random := found(t, p)
	for _, r := range []*Result{all, random} {
		require.Len(t, r.Findings, 1)
		require.Equal(t, kind, r.Findings[0].Kind)
		require.Contains(t, r.Findings[0].Message, message)
	}
	return &all.Findings[0]
}

// Threads of one warp at different barriers: undefined where they are aligned.
func TestDivergedBarrier(t *testing.T) {
	at := func(one, other string) *Program {
		return specced(t, kernel("k", "and.b32 u, t, 1;\nsetp.eq.u32 p, u, 0;\n@p bra A;\n"+one+"\nbra B;\nA:\n"+other+"\nB:"), twoWords+"launch k block 64")
	}
	for _, c := range [][2]string{
		{"bar.sync 0;", "bar.sync 0;"},
		{"bar.sync 0;", "bar.sync 1;"},
		{"barrier.sync.aligned 0;", "bar.sync 0;"},
		{"bar.red.popc.u32 v, 0, p;", "bar.red.popc.u32 v, 0, p;"},
		{"bar.arrive 1, 64;", "bar.sync 1, 64;"},
	} {
		f := faulty(t, at(c[0], c[1]), Uneven, "different barriers that are aligned")
		require.Equal(t, f.A.Thread[0]/32, f.B.Thread[0]/32)
		require.NotEqual(t, f.A.Line, f.B.Line)
	}
	clean(t, at("barrier.sync 0;", "barrier.sync 0;"))
	clean(t, at("barrier.sync 0;", "barrier.cta.sync 0;"))

	clean(t, specced(t, kernel("k", "setp.lt.u32 p, t, 32;\n@p bra A;\nbar.sync 0;\nbra B;\nA:\nbar.sync 0;\nB:"), twoWords+"launch k block 64"))
	faulty(t, specced(t, kernel("k", "and.b32 u, t, 1;\nbar.sync u;"), twoWords+"launch k block 64"), Uneven, "are at barriers")
}

// Those that have left are waited for no more, whether they leave before or after the others come.
func TestBarrierWithoutSome(t *testing.T) {
	for _, bar := range []string{"bar.sync 0;", "barrier.sync 0;", "bar.sync 1, 64;"} {
		clean(t, specced(t, kernel("k", "setp.eq.u32 p, t, 5;\n@p ret;\n"+bar), twoWords+"launch k block 64"))
		clean(t, specced(t, kernel("k", "setp.eq.u32 p, t, 5;\n@!p bra A;\nL:\nld.acquire.gpu.global.u32 v, [a];\nsetp.eq.u32 q, v, 0;\n@q bra L;\nret;\nA:\n"+
			"setp.eq.u32 p, t, 40;\n@p st.release.gpu.global.u32 [a], 1;\n"+bar), twoWords+"launch k block 64"))
	}
}

func TestBarrierLeft(t *testing.T) {
	f := faulty(t, specced(t, kernel("k", "bar.arrive 1, 64;"), twoWords+"launch k block 32"), Uneven, "barrier 1 open: 32 threads have come, and it counts 64")
	require.Equal(t, "bar.arrive 1, 64;", f.B.Text)
	clean(t, specced(t, kernel("k", "bar.arrive 1, 64;"), twoWords+"launch k block 64"))
}

// Warp 0 meets warp 1 or warp 2, whichever comes first.
func TestBarrierPairing(t *testing.T) {
	body := func(more string) string {
		return `shr.u32 w, t, 5;
setp.eq.u32 p, t, 32;
@p st.global.u32 [a], 5;
setp.eq.u32 p, w, 0;
setp.eq.u32 q, w, 2;
@p bra W0;
` + more + `
bar.arrive 1, 64;
ret;
W0:
bar.sync 1, 64;
bar.sync 2, 64;
bar.sync 1, 64;
setp.eq.u32 p, t, 0;
@!p ret;
ld.global.u32 v, [a];
st.global.u32 [o], v;`
	}
	spec := twoWords + "launch k block 96\nexpect o u32 = 5"
	all, random := found(t, specced(t, kernel("k", body("@!q bar.arrive 2, 64;")), spec))
	require.Len(t, random.Findings, 1, "both arrivals may come before warp 0")
	require.Equal(t, Stuck, random.Findings[0].Kind)
	require.False(t, all.Exhaustive)
	// Warp 2 arrives once warp 1 and warp 0 have met.
	ordered := `@q bra W2;
bar.arrive 1, 64;
bar.sync 3, 64;
bar.arrive 2, 64;
ret;
W2:
bar.sync 3, 64;`
	all, _ = found(t, specced(t, kernel("k", body(ordered)), spec))
	require.False(t, all.Exhaustive, "the barrier 3 does not say that warp 0 has come")
	clean(t, specced(t, kernel("k", `shr.u32 w, t, 5;
setp.eq.u32 p, w, 0;
@p bra W0;
setp.eq.u32 p, t, 32;
mov.u32 u, 0;
L:
@p st.global.u32 [a], u;
bar.arrive 1, 64;
bar.sync 2, 64;
add.u32 u, u, 1;
setp.lt.u32 q, u, 3;
@q bra L;
ret;
W0:
setp.eq.u32 p, t, 0;
mov.u32 u, 0;
M:
bar.sync 1, 64;
@p ld.global.u32 v, [a];
bar.arrive 2, 64;
add.u32 u, u, 1;
setp.lt.u32 q, u, 3;
@q bra M;
@p st.global.u32 [o], v;`), twoWords+"launch k block 64\nexpect o u32 = 2"))
}

// An arrival counts as often as it is made, and orders what came before it alone.
func TestBarrierArrivals(t *testing.T) {
	for _, block := range []string{"64", "48"} { // a warp that is not full counts as one
		all, random := found(t, specced(t, kernel("k", `shr.u32 w, t, 5;
setp.eq.u32 p, w, 0;
@p bra W0;
bar.arrive 1, 96;
bar.arrive 1, 96;
ret;
W0:
bar.sync 1, 96;`), twoWords+"launch k block "+block))
		require.Empty(t, all.Findings)
		require.Empty(t, random.Findings)
	}
	faulty(t, specced(t, kernel("k", `shr.u32 w, t, 5;
setp.eq.u32 p, w, 0;
@p bra W0;
bar.arrive 1, 64;
setp.eq.u32 p, t, 32;
@p st.global.u32 [a], 1;
ret;
W0:
bar.sync 1, 64;
setp.eq.u32 p, t, 0;
@p ld.global.u32 v, [a];`), twoWords+"launch k block 64"), Race, "nothing orders")
}

// All who come to a barrier count the same, and reduce or do not.
func TestBarrierDisagreement(t *testing.T) {
	at := func(first, second string) *Program {
		return specced(t, kernel("k", "shr.u32 w, t, 5;\nshl.b32 u, w, 5;\nadd.u32 u, u, 64;\nsetp.eq.u32 p, w, 0;\n@!p bra B;\n"+first+"\nret;\nB:\n"+second), twoWords+"launch k block 64")
	}
	faulty(t, at("bar.sync 1, u;", "bar.sync 1, u;"), Uneven, "barrier 1: one thread counts ")
	clean(t, at("bar.sync 1, 64;", "bar.sync 1, 64;"))
	for _, other := range []string{"bar.sync 1, 64;", "bar.arrive 1, 64;"} {
		faulty(t, at("bar.red.popc.u32 v, 1, 64, p;", other), Uneven, "barrier 1: one thread reduces, and another does not")
		faulty(t, at(other, "bar.red.or.pred q, 1, 64, p;"), Uneven, "barrier 1: one thread reduces, and another does not")
	}
	faulty(t, at("bar.red.and.pred q, 1, 64, p;", "bar.red.or.pred q, 1, 64, p;"), Uneven, "barrier 1: threads reduce in different ways")
	clean(t, at("bar.red.and.pred q, 1, 64, p;", "bar.red.and.pred q, 1, 64, p;"))
}

// Blocks that wait for room start in any order.
func TestResidentOrder(t *testing.T) {
	p := specced(t, kernel("k", `mov.u32 u, %ctaid.x;
setp.eq.u32 q, u, 0;
@q bra S;
L:
ld.acquire.gpu.global.u32 v, [a];
setp.eq.u32 p, v, 0;
@p bra L;
ret;
S:
st.release.gpu.global.u32 [a], 1;`), twoWords+"param room = 0\nlaunch k grid 3 block 1 resident room")
	clean(t, p)
	p.Tasks[0].Resident = 3
	clean(t, p)
	for _, room := range []int{1, 2} { // of the three, the one that the others wait for may be left outside
		p.Tasks[0].Resident = room
		all, random := found(t, p)
		require.False(t, all.Exhaustive)
		require.Contains(t, all.Why, "one order")
		require.Len(t, random.Findings, 1)
		require.Equal(t, Stuck, random.Findings[0].Kind)
	}
}

// Threads meet whose operation and mask are the same, at whichever instruction.
func TestWarpMeets(t *testing.T) {
	at := func(one, other, spec string) *Program {
		return specced(t, kernel("k", "mov.u32 v, 7;\nsetp.eq.u32 p, t, 0;\n@p bra A;\n"+one+"\nbra B;\nA:\nst.global.u32 [a], 1;\n"+other+"\nB:\nsetp.eq.u32 q, t, 1;\n"+
			"@q ld.global.u32 u, [a];\n@q st.global.u32 [o], v;"), twoWords+"launch k block 2\n"+spec)
	}
	clean(t, at("bar.warp.sync 3;", "bar.warp.sync 3;", "expect o u32 = 7"))
	clean(t, at("bar.warp.sync 3;", "barrier.warp.sync 3;", ""))
	shfl := "shfl.sync.idx.b32 v, t, 0, 31, 3;"
	faulty(t, at(shfl, shfl, ""), Race, "nothing orders") // it orders no memory
	clean(t, at(shfl+"\nbar.warp.sync 3;", shfl+"\nbar.warp.sync 3;", "expect o u32 = 0"))
	faulty(t, at("bar.warp.sync 3;", "bar.warp.sync -1;", ""), Uneven, "different masks: 0x")
	faulty(t, at(shfl, "shfl.sync.idx.b32 v, t, 0, 31, -1;", ""), Uneven, "different masks: 0x")
	faulty(t, at(shfl, "shfl.sync.up.b32 v, t, 0, 31, 3;", ""), Stuck, "never comes")
	faulty(t, at(shfl, "vote.sync.any.pred q, p, 3;", ""), Stuck, "never comes")
	faulty(t, at("bar.warp.sync 1;", "bar.warp.sync 1;", ""), Uneven, "does not name the thread itself")
	// What is done after they have met is ordered by nothing.
	faulty(t, specced(t, kernel("k", "setp.eq.u32 p, t, 0;\nbar.warp.sync 3;\n@p st.global.u32 [a], 1;\n@!p ld.global.u32 v, [a];"), twoWords+"launch k block 2"), Race, "nothing orders")
	// Lane 1 meets lane 2 first, and then lane 0.
	clean(t, specced(t, kernel("k", `setp.eq.u32 p, t, 0;
setp.eq.u32 q, t, 1;
selp.b32 u, 3, 6, p;
bar.warp.sync u;
@q bar.warp.sync 3;`), twoWords+"launch k block 3"))
}

// A block has let dependents start when any of its threads has, or all have ended. They may then start, and need not.
func TestDependentsPerBlock(t *testing.T) {
	const d = "st.relaxed.gpu.global.u32 [a], 1;"
	const spec = twoWords + "launch k grid 2 block 2\nlaunch d block 1 dependent\nexpect o u32 = 0"
	read := "setp.ne.u32 p, t, 0;\n@p ret;\nld.relaxed.gpu.global.u32 v, [a];\nst.global.u32 [o], v;"
	early := kernel("k", "mov.u32 u, %ctaid.x;\nsetp.eq.u32 p, u, 1;\n@p ret;\nsetp.ne.u32 p, t, 0;\n@!p griddepcontrol.launch_dependents;\n"+read)
	faulty(t, specced(t, early+kernel("d", d), spec), Stale, "element 0 is 0x1, not 0x0")
	clean(t, specced(t, early+kernel("d", "griddepcontrol.wait;\n"+d), spec))
	late := kernel("k", "mov.u32 u, %ctaid.x;\nsetp.eq.u32 p, u, 1;\n@p griddepcontrol.launch_dependents;\n@p ret;\n"+read)
	clean(t, specced(t, late+kernel("d", d), spec))
}

// Whoever waits for a launch that depends on its own may wait for ever.
func TestDependentsMayStartLate(t *testing.T) {
	const spec = twoWords + "launch k block 1\nlaunch d block 1 dependent\nexpect o u32 = 7"
	first := func(wait string) string {
		return kernel("k", "griddepcontrol.launch_dependents;\nL:\nld.acquire.gpu.global.u32 v, [a];\nsetp.eq.u32 p, v, 0;\n"+wait+"st.global.u32 [o], 7;")
	}
	f := faulty(t, specced(t, first("@p bra L;\n")+kernel("d", "st.release.gpu.global.u32 [a], 1;"), spec), Stuck, "d call 1 on device 0 depends on the launch ahead, and may start as late as at that one's end")
	require.NotEmpty(t, f.Missing)
	clean(t, specced(t, first("")+kernel("d", "st.release.gpu.global.u32 [a], 1;"), spec))
	// Of a chain, each link may be late; who waits for the launch ahead does no harm.
	clean(t, specced(t, first("")+kernel("d", "griddepcontrol.launch_dependents;\nst.release.gpu.global.u32 [a], 1;")+
		kernel("e", "griddepcontrol.wait;\nL:\nld.acquire.gpu.global.u32 v, [a];\nsetp.eq.u32 p, v, 0;\n@p bra L;"),
		twoWords+"launch k block 1\nlaunch d block 1 dependent\nlaunch e block 1 dependent\nexpect o u32 = 7"))
	// What the launch ahead had to wait for has ended.
	chain := kernel("k", "st.global.u32 [a], 7;") + kernel("d", "griddepcontrol.launch_dependents;") + kernel("e", "ld.global.u32 v, [a];\nst.global.u32 [o], v;")
	clean(t, specced(t, chain, twoWords+"launch k block 1\nlaunch d block 1\nlaunch e block 1 dependent\nexpect o u32 = 7"))
	faulty(t, specced(t, chain, twoWords+"launch k block 1\nlaunch d block 1 dependent\nlaunch e block 1 dependent\nexpect o u32 = 7"), Race, "nothing orders")
	// With giveup the wait ends in either way: the dependent came, or it did not.
	counted := kernel("k", "griddepcontrol.launch_dependents;\nmov.u32 w, 0;\nL:\nld.acquire.gpu.global.u32 v, [a];\nadd.u32 w, w, 1;\nsetp.eq.u32 p, v, 0;\nsetp.lt.u32 q, w, 100;\n"+
		"and.pred p, p, q;\n@p bra L;\nst.global.u32 [o], v;") + kernel("d", "st.release.gpu.global.u32 [a], 1;")
	for _, want := range []string{"0", "1"} {
		r, err := Check(context.Background(), specced(t, counted, "giveup\n"+twoWords+"launch k block 1\nlaunch d block 1 dependent\nexpect o u32 = "+want), Options{Executions: 200})
		require.NoError(t, err)
		require.Len(t, r.Findings, 1)
		require.Equal(t, Stale, r.Findings[0].Kind)
	}
}

// What nobody wrote is not zero.
func TestUnwrittenMemory(t *testing.T) {
	for _, load := range []string{"ld.shared.u32 v, [s+4];", "ld.volatile.shared.u32 v, [s];", "atom.shared.add.u32 v, [s], 1;",
		".local .align 4 .b32 l; ld.local.u32 v, [l];"} {
		faulty(t, specced(t, kernel("k", load+"\nst.global.u32 [o], v;"), twoWords+"launch k block 1\nexpect o u32 = 0"), Stale, "")
	}
	clean(t, specced(t, kernel("k", "st.shared.u32 [s], 3;\nld.shared.u32 v, [s];\nst.global.u32 [o], v;"), twoWords+"launch k block 1\nexpect o u32 = 3"))
}

// Which lanes are in step is left open, and so it is not checked.
func TestActiveMaskIsRefused(t *testing.T) {
	_, err := Check(context.Background(), specced(t, kernel("k", "activemask.b32 v;"), twoWords+"launch k block 32"), Options{})
	var e *ptx.Error
	require.ErrorAs(t, err, &e)
	require.Contains(t, e.Msg, "pass masks")
	require.Equal(t, 9, e.Line)
}
