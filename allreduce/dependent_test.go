package allreduce

import (
	"fmt"
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

// Blocks that wait for others must not keep the last ones of another size out, so a launch may begin early only behind one that is alike:
// not behind another kernel or size, nor where a capture or a replay has come between.
func TestEarlyOnlyBehindTheSame(t *testing.T) {
	g := newGroup(t, openEmu(t, "nvlink", 2), Config{Ranks: 2, Table: Table{{Algorithm: OneshotPush, To: 4096, Threads: 64}, {Algorithm: OneshotPush, To: 8192, Threads: 128}, {Algorithm: OneshotPull}}})
	r := newRig(t, g, 64<<10)
	rank := g.Rank(0)
	var seen []bool
	call := func(count uint64, dt DType) {
		before := rank.last
		r.run(trial{count: count, dt: dt})
		seen = append(seen, rank.last.kernel == before.kernel && rank.last.threads == before.threads)
	}
	call(100, F32)
	call(900, F32)  // the same
	call(1500, F32) // more threads
	call(2000, F32)
	call(2000, F16) // 64 threads, and another kernel
	call(8000, F32) // another algorithm
	call(8000, F32)
	require.Equal(t, []bool{false, true, false, true, false, false, true}, seen)
	now := rank.last
	require.NotZero(t, now)
	require.True(t, rank.behind(now, 2*now.blocks))
	require.False(t, rank.behind(now, 2*now.blocks-1), "no room for both")
	end := now
	end.heard = true
	require.True(t, rank.behind(end, 2*now.blocks), "what it hears itself says nothing of the one ahead")
	require.True(t, rank.behind(now, now.blocks), "all blocks ahead are there")
	require.False(t, rank.behind(launched{now.kernel, now.blocks, 32, false}, 2*now.blocks), "other blocks")
	require.True(t, rank.behind(launched{now.kernel, now.blocks, 32, true}, 2*now.blocks))
	require.False(t, rank.behind(now, 2*now.blocks), "nor behind those")
	in, out, _, _ := r.views(trial{count: 8000, dt: F32})
	queue := func() error { return g.AllReduce(in, out, 8000, F32) }
	gr, err := g.Capture(queue)
	require.NoError(t, err)
	require.Zero(t, rank.last, "behind a capture")
	require.NoError(t, queue())
	require.NotZero(t, rank.last)
	require.NoError(t, gr.Launch())
	require.Zero(t, rank.last, "behind a replay")
	r.sync()
	require.NoError(t, gr.Close())
}

// Large calls with wide packets take all the room there is, and let the next one in before they have ended: many in a row, of sizes about
// where that begins, have no call wait for blocks that find no place. The emulator starts a kernel when the one ahead has ended, so that there
// this is about bits; whether blocks find room shows on a GPU.
func TestLargeCallsInARow(t *testing.T) {
	rt := openAny(t)
	worlds, rounds := []int{2, 3, 4, 5, 8, 16}, 300
	if rt.Info().Emulated {
		worlds, rounds = []int{2, 3}, 2
	}
	for _, alg := range []Algorithm{OneshotWide, TwoshotWide} {
		for _, world := range worlds {
			t.Run(fmt.Sprintf("%v/%d", alg, world), func(t *testing.T) {
				g, err := NewGroup(rt, Config{Ranks: world, Share: true, Algorithm: alg, MaxBytes: 1536 << 10})
				if err != nil {
					require.ErrorIs(t, err, ErrNoPlan) // 128-bit packets take a driver that reads PTX 8.4
					t.Skip(err)
				}
				t.Cleanup(func() { require.NoError(t, g.Close()) })
				r := newRig(t, g, 1536<<10)
				c := trial{dt: BF16, count: 768 << 10}
				inputs, want := r.fill(c)
				in, out, _, _ := r.views(c)
				from := lateFrom(alg, world)
				for range rounds {
					for _, n := range []uint64{from, from - 2, 1536 << 10, from + 2, 4096, 1 << 20, from} {
						require.NoError(t, g.AllReduce(in, out, n/2, BF16))
					}
				}
				r.sync()
				r.verify(c, inputs, want)
			})
		}
	}
}
