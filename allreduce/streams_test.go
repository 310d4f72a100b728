package allreduce

import (
	"testing"
	"time"

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

// beginAll begins a capture on each of the streams.
func beginAll(t testing.TB, streams []*launcher.Stream) {
	t.Helper()
	for _, s := range streams {
		require.NoError(t, s.BeginCapture())
	}
}

// dropAll ends the captures, which are good, and throws them away.
func dropAll(t testing.TB, streams []*launcher.Stream) {
	t.Helper()
	for _, s := range streams {
		graph, err := s.EndCapture()
		require.NoError(t, err)
		require.NoError(t, graph.Close())
	}
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
				beginAll(t, streams)
				require.NoError(t, g.AllReduce(in, out, c.count, c.dt))
				ctx, cancel := eager.ctx()
				require.ErrorContains(t, g.Rank(1).Sync(ctx), "rank 1: sync: a capture is under way on the rank's stream")
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
		beginAll(t, streams)
		err := g.AllReduce(in, out, 100, F32)
		var arg *ArgumentError
		require.ErrorAs(t, err, &arg)
		require.ErrorContains(t, err, "calls by "+alg.String()+" are not taken in")
		dropAll(t, streams)
		r.run(trial{count: 100})
	}
}

// What cannot be done while the caller captures is refused, and leaves capture and group as they were.
func TestDuringCallersCapture(t *testing.T) {
	rt := openAny(t)
	streams := given(t, rt, 2)
	g := newGroup(t, rt, Config{Streams: streams, Share: true})
	r := newRig(t, g, 4096)
	c := trial{count: 100}
	gr, rigs := capture(t, g, 4096, []trial{c})
	in, out, _, _ := r.views(c)
	refused := func(err error, text string) {
		t.Helper()
		var arg *ArgumentError
		require.ErrorAs(t, err, &arg)
		require.ErrorContains(t, err, text)
	}
	beginAll(t, streams)
	refused(gr.Launch(), "rank 0: launch: a capture is under way")
	_, err := g.Capture(func() error { return nil })
	refused(err, "rank 0: capture: a capture is under way")
	err = g.Close()
	require.ErrorIs(t, err, ErrBusy)
	refused(err, "rank 0: close: a capture is under way")
	dropAll(t, streams)

	beginAll(t, streams[1:]) // on one of them
	refused(g.AllReduce(in, out, c.count, c.dt), "rank 1: capture: a capture is under way on the stream of this rank or of rank 0, and not on both")
	dropAll(t, streams[1:])

	beginAll(t, streams)
	_, err = streams[0].Query() // which a capture does not forgive
	require.ErrorIs(t, err, launcher.ErrCapture)
	refused(g.AllReduce(in, out, c.count, c.dt), "rank 0: capture: the capture on the rank's stream is void")
	_, err = streams[0].EndCapture()
	require.ErrorIs(t, err, launcher.ErrCapture)
	dropAll(t, streams[1:])

	require.NoError(t, g.Err())
	r.run(c)
	replay(t, gr, rigs, []trial{c})
	require.NoError(t, gr.Close())
}

// A group is made while the caller's stream is busy: loading waits for the kernel that runs there, and no other thing has to be idle.
func TestGivenStreamBusy(t *testing.T) {
	rt := openAny(t)
	streams := given(t, rt, 2)
	pause(t, rt, streams[0], 600*time.Millisecond)
	start := time.Now()
	g := newGroup(t, rt, Config{Streams: streams, Share: true, Timeout: 5 * time.Second})
	if !rt.Info().Emulated { // where time passes only while somebody waits
		require.Less(t, time.Since(start), 5*time.Second)
	}
	newRig(t, g, 4096).run(trial{count: 100})
}

// A stream that is closed ahead of its group takes what the group knows of its work along: the memory is kept.
func TestGivenStreamClosedFirst(t *testing.T) {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu, Devices: 2, Seed: 7})
	require.NoError(t, err)
	var streams []*launcher.Stream
	for dev := range 2 {
		s, err := rt.NewStream(dev)
		require.NoError(t, err)
		streams = append(streams, s)
	}
	g, err := NewGroup(rt, Config{Streams: streams, MaxBytes: 1 << 16})
	require.NoError(t, err)
	require.NoError(t, streams[1].Close())
	err = g.Close()
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "close rank 1")
	require.ErrorContains(t, err, "its stream was closed ahead of the group")
	var leak *launcher.LeakError
	require.ErrorAs(t, rt.Close(), &leak)
	_ = g.Close() // there is nothing left
}

func TestGivenStreamsRefused(t *testing.T) {
	rt, other := openEmu(t, "nvlink", 2), openEmu(t, "nvlink", 2)
	s, far := given(t, rt, 4), given(t, other, 2)
	for want, c := range map[string]Config{
		"3 streams for 2 ranks": {Ranks: 2, Streams: s[:3]},
		"rank 1: streams: a stream of device 1, the rank is on device 0":      {Devices: []int{0, 0}, Share: true, Streams: s[:2]},
		"rank 1: streams: rank 0 has the same, and":                           {Share: true, Streams: []*launcher.Stream{s[0], s[0]}},
		"rank 1: streams: no stream of the runtime":                           {Streams: []*launcher.Stream{s[0], far[1]}},
		"rank 0: streams: no stream of the runtime that the group is made on": {Devices: []int{0, 1}, Streams: []*launcher.Stream{nil, s[1]}},
		"device 0 already serves rank 0":                                      {Streams: []*launcher.Stream{s[0], s[2]}},
		"rank 1: streams: a capture is under way on it":                       {Streams: []*launcher.Stream{s[0], s[3]}},
	} {
		if want == "rank 1: streams: a capture is under way on it" {
			beginAll(t, s[3:])
		}
		_, err := NewGroup(rt, c)
		var arg *ArgumentError
		require.ErrorAs(t, err, &arg, want)
		require.ErrorContains(t, err, want)
		if want == "rank 1: streams: a capture is under way on it" {
			dropAll(t, s[3:])
		}
	}
}
