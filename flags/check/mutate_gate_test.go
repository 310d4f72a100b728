package check

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/kernels"
)

// The gate on one kernel: what orders something is missed, the host's part too, and the reviewed list is heeded.
func TestGate(t *testing.T) {
	var cases []GateCase
	for _, c := range kernels.GateCases() {
		if c.SM != 90 || c.Set != "world=2 dtype=f32 count=9 calls=3" {
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
		cases = append(cases, GateCase{Name: c.Name(), Spec: spec, File: mod.File, PTX: text, Set: c.Params(), Lines: kernels.Lines, Calls: kernels.Calls})
	}
	require.Len(t, cases, 1)
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

	done, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Gate(done, cases, GateOptions{})
	require.ErrorIs(t, err, context.Canceled)
}
