package allreduce

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fenceline/fenceline/launcher"
	"github.com/stretchr/testify/require"
)

// withCrew makes a group queue its calls side by side, as on several GPUs.
func withCrew(t testing.TB, rt *launcher.Runtime, cfg Config) *Group {
	g := newGroup(t, rt, cfg)
	if g.crew == nil {
		g.crew = newCrew(g, 2)
	}
	require.NotNil(t, g.crew)
	return g
}

// Devices whose calls are queued side by side get what they get one after another, two ranks on a device included.
func TestSideBySide(t *testing.T) {
	rt := openEmu(t, "nvlink-8", 8)
	for _, devices := range [][]int{{0, 1}, {0, 1, 2, 3, 4}, {0, 1, 0, 2, 1}} {
		g := withCrew(t, rt, Config{Devices: devices, Ranks: len(devices), Share: true, Table: mixed()})
		r := newRig(t, g, 40<<10)
		rng := rand.New(rand.NewPCG(1, 2))
		trials := 40
		if testing.Short() {
			trials = 10
		}
		for range trials {
			r.run(trial{dt: DTypes()[rng.IntN(3)], count: 1 + rng.Uint64N(9000), inOff: rng.Uint64N(9), outOff: rng.Uint64N(9)})
		}
		graph, err := g.Capture(func() error {
			in, out, _, _ := r.views(trial{dt: F32, count: 100})
			return g.AllReduce(in, out, 100, F32)
		})
		require.NoError(t, err)
		require.NoError(t, graph.Launch())
		require.NoError(t, g.Sync(t.Context()))
		r.run(trial{dt: F32, count: 100})
	}
}

func TestSideBySideAllocatesNothing(t *testing.T) {
	g := withCrew(t, openEmu(t, "nvlink-8", 8), Config{Ranks: 3, Algorithm: OneshotPush})
	r := newRig(t, g, 4096)
	in, out, _, _ := r.views(trial{count: 100, dt: BF16})
	call := func() {
		if err := g.AllReduce(in, out, 100, BF16); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		call()
	}
	r.sync()
	require.Zero(t, testing.AllocsPerRun(100, call))
	r.sync()
}

// What fails on one rank is what the caller hears, whichever device it is on, and the group can be closed.
func TestSideBySideFailure(t *testing.T) {
	g := withCrew(t, openEmu(t, "nvlink-8", 8), Config{Ranks: 4, Algorithm: OneshotPull, Timeout: time.Second})
	r := newRig(t, g, 4096)
	in, out, _, _ := r.views(trial{count: 100, dt: F32})
	require.NoError(t, g.Rank(2).AllReduce(in[2], out[2], 50, F32)) // not what the others call next
	err := g.AllReduce(in, out, 100, F32)
	require.ErrorIs(t, err, ErrMismatch)
	require.ErrorIs(t, g.AllReduce(in, out, 100, F32), ErrFailed)
}
