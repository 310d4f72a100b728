package allreduce

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// capture is a graph of the trials, each on a rig of its own.
func capture(t *testing.T, g *Group, size uint64, trials []trial) (*Graph, []*rig) {
	t.Helper()
	var rigs []*rig
	for range trials {
		rigs = append(rigs, newRig(t, g, size))
	}
	gr, err := g.Capture(func() error {
		for i, c := range trials {
			in, out, _, _ := rigs[i].views(c)
			if err := g.AllReduce(in, out, c.count, c.dt); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	return gr, rigs
}

// replay launches what capture made, with new inputs, and verifies every result.
func replay(t *testing.T, gr *Graph, rigs []*rig, trials []trial) {
	t.Helper()
	inputs, wants := make([][][]byte, len(trials)), make([][]byte, len(trials))
	for i, c := range trials {
		inputs[i], wants[i] = rigs[i].fill(c)
	}
	require.NoError(t, gr.Launch())
	rigs[0].sync()
	for i, c := range trials {
		rigs[i].verify(c, inputs[i], wants[i])
	}
}

// A graph of calls of several sizes replays with new data each time, between eager calls.
func TestGraph(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, FirstEpoch: 0xffff_fff8})
			trials := []trial{{count: 4000, dt: BF16}, {count: 5, dt: F32, inPlace: true}, {count: 2222, dt: F16, inOff: 1, outOff: 1}}
			gr, rigs := capture(t, g, 16<<10, trials)
			for range 4 {
				replay(t, gr, rigs, trials)
				rigs[0].run(trial{count: 900, dt: F32})
			}
			require.NoError(t, gr.Close())
			require.NoError(t, gr.Close())
			rigs[0].run(trial{count: 1, dt: F32})
		})
	}
}

// A capture that fails leaves the group working.
func TestCaptureFails(t *testing.T) {
	rt := openAny(t)
	g := newGroup(t, rt, Config{Ranks: 2})
	r := newRig(t, g, 4096)
	_, err := g.Capture(func() error {
		_, again := g.Capture(func() error { return nil })
		require.ErrorIs(t, again, ErrInvalidArgument)
		return again
	})
	require.ErrorIs(t, err, ErrInvalidArgument)
	r.run(trial{count: 100, dt: BF16})
}
