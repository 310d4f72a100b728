package allreduce

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags"
)

// queueCalls measures the host's time to queue calls of these counts in turn, of all ranks together.
func queueCalls(b *testing.B, g *Group, counts ...uint64) {
	r := newRig(b, g, 8<<10)
	in, out, _, _ := r.views(trial{count: 4096, dt: BF16})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := g.AllReduce(in, out, counts[i%len(counts)], BF16); err != nil {
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
}

// The host's time to queue a call: one call into C for each rank, and no allocation. With one rank, and with as many as share a device, for
// each of them (ns/rank). A call like the one ahead is launched dependent on it; where sizes change none is.
func BenchmarkLaunch(b *testing.B) {
	for _, ranks := range []int{1, 8} {
		for name, counts := range map[string][]uint64{"one size": {4096}, "sizes in turn": {4096, 512, 2048}} {
			b.Run(fmt.Sprintf("%d ranks, %s", ranks, name), func(b *testing.B) {
				queueCalls(b, newGroup(b, openAny(b), Config{Devices: make([]int, ranks)}), counts...)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ranks), "ns/rank")
			})
		}
	}
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
			switch {
			case side && g.crew == nil:
				g.crew = newCrew(g, 2)
			case !side && g.crew != nil:
				g.crew.close()
				g.crew = nil
			}
			queueCalls(b, g, 4096)
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
