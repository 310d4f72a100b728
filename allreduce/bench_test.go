package allreduce

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/flags/stress"
	"github.com/fenceline/fenceline/launcher"
)

// gate lets all ranks start together.
type gate struct {
	stream *launcher.Stream
	opened *launcher.Event
	kernel *launcher.Kernel
	args   *launcher.Args
}

func newGate(t testing.TB, rt *launcher.Runtime, hold time.Duration) *gate {
	m, err := rt.Load(0, "stress.ptx", stress.Kernels(rt.Devices()[0].SM()))
	require.NoError(t, err)
	g := &gate{}
	g.kernel, err = m.Kernel(stress.PauseKernel)
	require.NoError(t, err)
	g.args, err = g.kernel.Pack(uint64(hold.Nanoseconds()))
	require.NoError(t, err)
	g.stream, err = rt.NewStream(0)
	require.NoError(t, err)
	g.opened, err = rt.NewEvent(0, false)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, g.opened.Close())
		require.NoError(t, g.stream.Close())
		require.NoError(t, m.Close())
	})
	return g
}

func (g *gate) shut(t testing.TB) {
	require.NoError(t, g.kernel.Launch(g.stream, launcher.Linear(1, 1), g.args))
	require.NoError(t, g.stream.Record(g.opened))
}

const callsPerGraph = 200

// BenchmarkGraph is the latency of one call in a captured graph of 200, bf16, out of place: the time from
// the common start to the end of the last rank, divided by 200; the median over replays, as us/call. The
// outputs are checked against the reference.
func BenchmarkGraph(b *testing.B) {
	rt := openAny(b)
	sizes := []uint64{8 << 10, 64 << 10, 256 << 10, 512 << 10}
	replays := 101
	if rt.Info().Emulated {
		sizes, replays = sizes[:1], 1 // to see that it works; the time means nothing
	}
	for _, alg := range append([]Algorithm{Auto}, directAlgorithms...) {
		for _, world := range []int{2, 4, 8} {
			for _, size := range sizes {
				b.Run(fmt.Sprintf("%v/ranks=%d/bytes=%d", alg, world, size), func(b *testing.B) {
					g := newGroup(b, rt, Config{Ranks: world, Algorithm: alg, MaxBytes: 1 << 20, PushBytes: pushForAll(alg)})
					plan, err := g.Plan(size/2, BF16)
					require.NoError(b, err)
					wrong, times := measureGraph(b, g, size, replays)
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(float64(times[len(times)/2])/callsPerGraph/1e3, "us/call")
					b.ReportMetric(float64(times[len(times)*95/100])/callsPerGraph/1e3, "p95-us/call")
					b.ReportMetric(float64(wrong), "wrong")
					require.Zero(b, wrong)
					b.ReportMetric(float64(plan.Blocks), "blocks")
					b.ReportMetric(float64(plan.Threads), "threads")
				})
			}
		}
	}
}

// pushForAll is room for one launch of any size measured, where an algorithm is asked for.
func pushForAll(a Algorithm) uint64 {
	if a == Auto {
		return 0
	}
	return 1 << 20
}

// measureGraph gives the sorted replay times, and the number of wrong elements over all ranks after the last.
func measureGraph(b *testing.B, g *Group, size uint64, replays int) (wrong int, times []time.Duration) {
	r := newRig(b, g, size)
	c := trial{count: size / 2, dt: BF16}
	in, out, _, _ := r.views(c)
	gr, err := g.Capture(func() error {
		for range callsPerGraph {
			if err := g.AllReduce(in, out, c.count, c.dt); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(b, err)
	defer func() { require.NoError(b, gr.Close()) }()
	_, want := r.fill(c)
	starts, ends := make([]*launcher.Event, g.World()), make([]*launcher.Event, g.World())
	for p := range g.World() {
		for _, e := range []**launcher.Event{&starts[p], &ends[p]} {
			*e, err = g.rt.NewEvent(g.Rank(p).Device(), true)
			require.NoError(b, err)
			defer func() { require.NoError(b, (*e).Close()) }()
		}
	}
	hold := newGate(b, g.rt, 4*time.Millisecond)
	for i := range replays + 3 {
		hold.shut(b)
		for p := range g.World() {
			s := g.Rank(p).Stream()
			require.NoError(b, s.Wait(hold.opened))
			require.NoError(b, s.Record(starts[p]))
			require.NoError(b, gr.execs[p].Launch(s))
			require.NoError(b, s.Record(ends[p]))
		}
		r.sync()
		var longest time.Duration
		for p := range g.World() {
			d, err := ends[p].Elapsed(starts[p])
			require.NoError(b, err)
			longest = max(longest, d)
		}
		if i >= 3 { // the first replays load the graph
			times = append(times, longest)
		}
	}
	slices.Sort(times)
	return r.countWrong(c, want), times
}

// BenchmarkLaunch is the host's cost of one call on one rank: one call into C, and no allocation.
func BenchmarkLaunch(b *testing.B) {
	rt := openAny(b)
	g := newGroup(b, rt, Config{Ranks: 1})
	r := newRig(b, g, 8<<10)
	in, out, _, _ := r.views(trial{count: 4096, dt: BF16})
	ctx := context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := g.Rank(0).AllReduce(in[0], out[0], 4096, BF16); err != nil {
			b.Fatal(err)
		}
		if i%100 == 99 {
			b.StopTimer()
			if err := g.Sync(ctx); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
	require.NoError(b, g.Sync(ctx))
}

// The host's time for a call on all devices, one after another and side by side.
func BenchmarkLaunchAll(b *testing.B) {
	rt := openAny(b)
	n := min(len(rt.Devices()), flags.MaxRanks)
	if n < 2 || rt.Info().Emulated {
		b.Skip("it takes two GPUs")
	}
	for _, side := range []bool{false, true} {
		b.Run(map[bool]string{false: "in turn", true: "side by side"}[side], func(b *testing.B) {
			g := newGroup(b, rt, Config{Ranks: n, Algorithm: OneshotPush})
			if !side {
				g.crew.close()
				g.crew = nil
			}
			r := newRig(b, g, 8<<10)
			in, out, _, _ := r.views(trial{count: 4096, dt: BF16})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := g.AllReduce(in, out, 4096, BF16); err != nil {
					b.Fatal(err)
				}
				if i%100 == 99 {
					b.StopTimer()
					if err := g.Sync(b.Context()); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
			r.sync()
		})
	}
}

// The hot path allocates nothing, whatever the algorithms of the calls.
func TestHotPathAllocatesNothing(t *testing.T) {
	g := newGroup(t, openAny(t), Config{Ranks: 2, Table: turns()})
	r := newRig(t, g, 4096)
	in, out, _, _ := r.views(trial{count: 100, dt: BF16})
	count := uint64(100)
	call := func() {
		if count--; count < 90 {
			count = 100
		}
		if err := g.AllReduce(in, out, count, BF16); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 { // queues of the driver grow to their size
		call()
	}
	r.sync()
	require.Zero(t, testing.AllocsPerRun(100, call))
	r.sync()
}
