package allreduce

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
)

// neverPTX lets what is behind it start at once, and waits for nothing ahead.
const neverPTX = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry never()\n{\n\tgriddepcontrol.launch_dependents;\n\tret;\n}\n"

// A call may start before the work ahead of it has ended, and waits for it; so it sees the call before last, whose result it
// takes, also across a kernel of the user's that waits for nothing.
func TestKernelBetweenNeverWaits(t *testing.T) {
	rt := openAny(t)
	if sm := rt.Devices()[0].SM(); sm < 90 {
		t.Skipf("dependent launch needs sm_90, this is sm_%d", sm)
	}
	for _, alg := range directAlgorithms {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg})
			r := newRig(t, g, 64<<10)
			between := make([]func() error, g.World())
			for p := range between {
				rank := g.Rank(p)
				m, err := rt.Load(rank.Device(), "never.ptx", []byte(neverPTX))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, m.Close()) })
				k, err := m.Kernel("never")
				require.NoError(t, err)
				args, err := k.Pack()
				require.NoError(t, err)
				cfg := launcher.Linear(4, 64)
				cfg.Dependent = true
				between[p] = func() error { return k.Launch(rank.Stream(), cfg, args) }
			}
			for round := range 20 {
				c := trial{dt: DTypes()[round%3], count: uint64(1 + 700*round)}
				in, out, _, _ := r.views(c)
				inputs, want := r.fill(c)
				require.NoError(t, g.AllReduce(in, out, c.count, c.dt))
				for range 5 {
					for _, launch := range between {
						require.NoError(t, launch())
					}
					require.NoError(t, g.AllReduce(out, out, c.count, c.dt))
					next := make([]byte, len(want))
					require.NoError(t, Reference(c.dt, next, want, want, want))
					want = next
				}
				r.verify(c, inputs, want)
			}
		})
	}
}
