package allreduce

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
)

// given makes a stream for each of so many ranks on the devices in turn.
func given(t testing.TB, rt *launcher.Runtime, ranks int) []*launcher.Stream {
	t.Helper()
	list := make([]*launcher.Stream, ranks)
	for r := range list {
		s, err := rt.NewStream(r % len(rt.Devices()))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		list[r] = s
	}
	return list
}

// A group works on the caller's streams, and leaves them open.
func TestGivenStreams(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		t.Run(alg.String(), func(t *testing.T) {
			streams := given(t, rt, 3)
			g := newGroup(t, rt, Config{Streams: streams, Share: true, Algorithm: alg})
			require.Equal(t, 3, g.World())
			r := newRig(t, g, 16<<10)
			for i, s := range streams {
				require.Same(t, s, g.Rank(i).Stream())
				require.Equal(t, s.Device(), g.Rank(i).Device())
			}
			for _, c := range []trial{{count: 3}, {count: 3001, dt: BF16, inOff: 1}, {count: 100, dt: F16, inPlace: true}} {
				r.run(c)
			}
			trials := []trial{{count: 700, dt: F32}, {count: 5, dt: BF16}}
			gr, rigs := capture(t, g, 16<<10, trials)
			replay(t, gr, rigs, trials)
			require.NoError(t, gr.Close())
			require.NoError(t, g.Close())
			for _, s := range streams {
				_, err := s.Query()
				require.NoError(t, err, "the group closed a stream that is not its own")
			}
		})
	}
}

// A capture that the caller begins on its own streams takes calls in, and its graphs give the right bits however often, and between what
// other calls, they are launched.
func TestCallersCapture(t *testing.T) {
	rt := openAny(t)
	for _, alg := range directAlgorithms {
		t.Run(alg.String(), func(t *testing.T) {
			streams := given(t, rt, 3)
			g := newGroup(t, rt, Config{Streams: streams, Share: true, Algorithm: alg, FirstEpoch: 0xffff_fff8})
			trials := []trial{{count: 4000, dt: BF16}, {count: 5, dt: F32, inPlace: true}}
			eager := newRig(t, g, 16<<10)
			eager.run(trial{count: 900, dt: F32})
			var execs [2][]*launcher.Exec // two graphs of each rank
			var rigs [2]*rig
			for i, c := range trials {
				rigs[i] = newRig(t, g, 16<<10)
				in, out, _, _ := rigs[i].views(c)
				for _, s := range streams {
					require.NoError(t, s.BeginCapture())
				}
				require.NoError(t, g.AllReduce(in, out, c.count, c.dt))
				ctx, cancel := eager.ctx()
				require.ErrorContains(t, g.Rank(1).Sync(ctx), "a capture is under way on the stream of rank 1")
				cancel()
				for _, s := range streams {
					graph, err := s.EndCapture()
					require.NoError(t, err)
					x, err := graph.Instantiate()
					require.NoError(t, err)
					require.NoError(t, graph.Close())
					execs[i] = append(execs[i], x)
				}
			}
			for round := range 3 {
				for i, c := range trials {
					inputs, want := rigs[i].fill(c)
					for r, x := range execs[i] {
						require.NoError(t, x.Launch(streams[r]))
					}
					rigs[i].sync()
					rigs[i].verify(c, inputs, want)
					eager.run(trial{count: 70 + uint64(round), dt: F16})
				}
			}
			for _, list := range execs {
				for _, x := range list {
					require.NoError(t, x.Close())
				}
			}
		})
	}
}

// What such a capture cannot take in is refused, and leaves capture and group as they were.
func TestCallersCaptureRefuses(t *testing.T) {
	rt := openAny(t)
	for _, alg := range []Algorithm{Copy, Host} {
		streams := given(t, rt, 2)
		g := newGroup(t, rt, Config{Streams: streams, Share: true, Algorithm: alg})
		r := newRig(t, g, 4096)
		in, out, _, _ := r.views(trial{count: 100})
		for _, s := range streams {
			require.NoError(t, s.BeginCapture())
		}
		err := g.AllReduce(in, out, 100, F32)
		var arg *ArgumentError
		require.ErrorAs(t, err, &arg)
		require.ErrorContains(t, err, "calls by "+alg.String()+" are not taken in")
		for _, s := range streams {
			graph, err := s.EndCapture()
			require.NoError(t, err)
			require.NoError(t, graph.Close())
		}
		r.run(trial{count: 100})
	}
}

func TestGivenStreamsRefused(t *testing.T) {
	rt, other := openEmu(t, "nvlink", 2), openEmu(t, "nvlink", 2)
	s, far := given(t, rt, 4), given(t, other, 2)
	for want, c := range map[string]Config{
		"3 streams listed for 2 ranks":                                        {Ranks: 2, Streams: s[:3]},
		"rank 1: streams: a stream of device 1, the rank is on device 0":      {Devices: []int{0, 0}, Share: true, Streams: s[:2]},
		"rank 1: streams: rank 0 has the same stream":                         {Share: true, Streams: []*launcher.Stream{s[0], s[0]}},
		"rank 1: streams: no stream of the runtime":                           {Streams: []*launcher.Stream{s[0], far[1]}},
		"rank 0: streams: no stream of the runtime that the group is made on": {Devices: []int{0, 1}, Streams: []*launcher.Stream{nil, s[1]}},
		"device -1":                             {Streams: []*launcher.Stream{nil, s[1]}},
		"device 0 already serves rank 0":        {Streams: []*launcher.Stream{s[0], s[2]}},
		"rank 1: streams: closed, or a capture": {Streams: []*launcher.Stream{s[0], s[3]}},
	} {
		if want == "rank 1: streams: closed, or a capture" {
			require.NoError(t, s[3].BeginCapture())
		}
		_, err := NewGroup(rt, c)
		var arg *ArgumentError
		require.ErrorAs(t, err, &arg, want)
		require.ErrorContains(t, err, want)
		if want == "rank 1: streams: closed, or a capture" {
			graph, err := s[3].EndCapture()
			require.NoError(t, err)
			require.NoError(t, graph.Close())
		}
	}
}
