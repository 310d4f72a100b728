package check

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/kernels"
)

// The gate on one kernel: what orders something is missed, the host's part too, and the reviewed list is heeded.
func TestGate(t *testing.T) {
	var cases, others []GateCase
	for _, c := range kernels.GateCases() {
		list := &cases
		switch {
		case c.SM == 90 && c.Set == "world=2 dtype=f32 count=9 calls=3":
		case c.SM == 90 && c.Spec == "oneshot_pull" && c.Set == "world=2 dtype=f32 count=321 calls=2 block=64": // two warps
			list = &others
		default:
			continue
		}
		mod, err := c.Module()
		require.NoError(t, err)
		text, err := mod.Text()
		require.NoError(t, err)
		specText, err := c.SpecText()
		require.NoError(t, err)
		spec, err := ParseSpec(c.Spec+".spec", string(specText))
		require.NoError(t, err)
		*list = append(*list, GateCase{Name: c.Name(), Spec: spec, File: mod.File, PTX: text, Set: c.Params(), Lines: kernels.Lines, Calls: kernels.Calls})
	}
	require.Len(t, cases, 1)
	require.Len(t, others, 1)
	redundant := []Redundancy{{"allreduce_oneshot_pull", "bar.warp.sync", "dropped", "", "for this test"}}
	found, err := Gate(context.Background(), cases, GateOptions{Executions: 20, Redundant: redundant})
	require.NoError(t, err)
	fates := map[string]Fate{}
	for _, j := range found {
		if j.Fate == NotExecuted {
			continue
		}
		if name := j.Text[:min(len(j.Text), 17)] + " " + j.What; fates[name] != Caught {
			fates[name] = j.Fate // of several such instructions, one that is missed
		}
		require.Equal(t, j.Fate == Caught, j.Case != "", j.String())
		require.Equal(t, j.Fate == Harmless, j.Reason != "", j.String())
	}
	for mutation, want := range map[string]Fate{
		"the spec's halves 1":             Caught,
		"fence.acq_rel.sys dropped":       Caught,
		"fence.acq_rel.sys .gpu":          Caught,
		"ld.acquire.sys.gl relaxed":       Caught,
		"st.relaxed.sys.gl weak":          Caught,
		"bar.red.or.pred b dropped":       Caught,
		"bar.red.or.pred b bar.warp.sync": NotCaught, // this case has one warp
		"bar.warp.sync 0xf dropped":       Harmless,
	} {
		require.Equal(t, want, fates[mutation], "%s of %v", mutation, fates)
	}
	good, executed := Share(found)
	require.Less(t, good, executed)

	more, err := Gate(context.Background(), cases, GateOptions{Executions: 20, Redundant: redundant, Others: others})
	require.NoError(t, err)
	require.Len(t, more, len(found))
	asked := 0
	for i, j := range more {
		require.Equal(t, found[i].Mutant, j.Mutant)
		if j.Case == others[0].Name {
			require.Equal(t, NotCaught, found[i].Fate, "nobody else is asked about what was caught")
			asked++
		} else {
			require.Equal(t, found[i].Fate, j.Fate)
		}
		if strings.HasPrefix(j.Text, "bar.red.or.pred") && j.Fate != NotExecuted {
			require.Equal(t, Caught, j.Fate, j.String())
		}
	}
	require.NotZero(t, asked)

	done, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Gate(done, cases, GateOptions{})
	require.ErrorIs(t, err, context.Canceled)
}

// Each rank sends the other a packet, and polls for its own.
const exchangePTX = `.version 8.4
.target sm_90
.address_size 64
.visible .entry exchange(.param .u64 out, .param .align 8 .b8 boxes[16], .param .u32 rank)
{
	.reg .pred p, q;
	.reg .b32 r<5>;
	.reg .b64 o, in, to, l, h;
	.reg .b128 w;
	ld.param.u64 o, [out];
	ld.param.u32 r0, [rank];
	setp.eq.u32 q, r0, 0;
	ld.param.u64 in, [boxes];
	ld.param.u64 to, [boxes+8];
	@!q ld.param.u64 in, [boxes+8];
	@!q ld.param.u64 to, [boxes];
	add.u32 r1, r0, 1;
	%s
	mov.b128 w, {l, h};
	st.relaxed.sys.global.b128 [to], w;
L:
	ld.relaxed.sys.global.b128 w, [in];
	mov.b128 {l, h}, w;
	%s
	@p bra L;
	st.global.v2.u32 [o], {r1, r3};
	ret;
}
`

// What relies on packets that arrive whole is caught without, and what has a flag in each half does not rely on it.
func TestGateWide(t *testing.T) {
	spec, err := ParseSpec("exchange.spec", "world 2\nbuffer o size 8\nbuffer box size 16\narg 0 ptr o\narg 1 ptrs box\narg 2 u32 rank\nlaunch exchange block 1\nexpect o u32 = 2 - rank")
	require.NoError(t, err)
	judge := func(packet, test string) map[string]string {
		text := []byte(fmt.Sprintf(exchangePTX, packet, test))
		found, err := Gate(t.Context(), []GateCase{{Name: "two ranks", Spec: spec, File: "exchange.ptx", PTX: text}}, GateOptions{Executions: 60})
		require.NoError(t, err)
		fates := map[string]string{}
		for _, j := range found {
			op, _, _ := strings.Cut(j.Text, " ")
			fates[op+" "+j.What] = strings.TrimSpace(fmt.Sprintf("%s %s", j.Fate, j.Kind))
		}
		return fates
	}
	const st, ld = "st.relaxed.sys.global.b128 ", "ld.relaxed.sys.global.b128 "
	want := map[string]string{
		st + "weak": "caught race", st + ".cta": "caught race", st + ".gpu": "caught race", st + "split into .v2.b64": "caught mixed size",
		ld + "weak": "caught endless", ld + ".cta": "caught race", ld + ".gpu": "caught race", ld + "split into .v2.b64": "caught mixed size",
		st + "all .b128 split into .v2.b64": "caught wrong result",
	}
	one := judge("mov.b64 l, {r1, r1}; mov.b64 h, {r1, 1};", "mov.b64 {r1, r2}, l; mov.b64 {r3, r4}, h; setp.eq.u32 p, r4, 0;")
	require.Equal(t, want, one)
	two := judge("mov.b64 l, {r1, 1}; mov.b64 h, {r1, 1};", "mov.b64 {r1, r2}, l; mov.b64 {r3, r4}, h; and.b32 r4, r4, r2; setp.eq.u32 p, r4, 0;")
	want[st+"all .b128 split into .v2.b64"] = "NOT CAUGHT"
	require.Equal(t, want, two)
}
