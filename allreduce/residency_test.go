package allreduce

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The ranks of a group that can all be waiting on a device for one more leave one of its SMs empty, whatever the algorithm and the blocks.
func TestEmptySM(t *testing.T) {
	rt := openEmu(t, "nvlink", 2)
	for _, devices := range [][]int{{0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}, make([]int, 16), {0, 1}, {0, 0, 1}, {0, 0, 0, 0, 1, 1, 1, 1}} {
		on := map[int]int{}
		for _, d := range devices {
			on[d]++
		}
		for _, alg := range directAlgorithms {
			g := newGroup(t, rt, Config{Devices: devices, Share: true, Algorithm: alg, MaxBytes: 1 << 20})
			for d, ranks := range on {
				for warps, room := range g.rooms[alg] {
					require.Less(t, min(ranks, len(devices)-1)*room, rt.Devices()[d].SMs, "%v, %d threads, devices %v", alg, 32*warps, devices)
				}
			}
			require.Positive(t, g.rooms[alg][maxThreads/32])
			require.NoError(t, g.Close())
		}
	}
}

// While the calls of all other ranks wait for one, a kernel that needs an SM to itself runs ahead of its call.
func TestKernelNeedsAnSM(t *testing.T) {
	for name, devices := range map[string][]int{"one device": {0, 0, 0, 0}, "two devices": {0, 0, 0, 0, 1}} {
		t.Run(name, func(t *testing.T) {
			late := len(devices) - 1
			rt := openAny(t)
			if len(rt.Devices()) <= devices[late] {
				rt = openEmu(t, "nvlink", 2)
			}
			g := newGroup(t, rt, Config{Devices: devices, Share: true, Algorithm: OneshotPull, MaxBytes: 1 << 20, Timeout: 20 * time.Second})
			r := newRig(t, g, 600<<10)
			c := trial{count: 140000, dt: F32} // all the room
			inputs, want := r.fill(c)
			in, out, _, _ := r.views(c)
			alone := pauser(t, rt, time.Microsecond, rt.Devices()[0].SharedPerBlock) // loaded ahead: that would wait for the ranks that wait
			for p := range late {
				require.NoError(t, g.Rank(p).AllReduce(in[p], out[p], c.count, c.dt))
			}
			ctx, cancel := r.ctx()
			defer cancel()
			s, err := rt.NewStream(0)
			require.NoError(t, err)
			done, err := rt.NewEvent(0, false)
			require.NoError(t, err)
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); { // time passes while somebody asks: the others' blocks are all there
				_, err := g.Rank(0).Stream().Query()
				require.NoError(t, err)
			}
			alone(s)
			require.NoError(t, s.Record(done))
			require.NoError(t, g.Rank(late).Stream().Wait(done))
			require.NoError(t, g.Rank(late).AllReduce(in[late], out[late], c.count, c.dt))
			r.sync()
			r.verify(c, inputs, want)
			require.NoError(t, s.Sync(ctx))
			require.NoError(t, done.Close())
			require.NoError(t, s.Close())
		})
	}
}

// Where there is room for one call and not for the next beside it, each begins when the one ahead has ended. More than there is room for is refused.
func TestRoomForOneCall(t *testing.T) {
	rt := openEmu(t, "nvlink", 1)
	room := leavingOne(rt.Devices()[0].SMs, 15)
	g := newGroup(t, rt, Config{Ranks: 16, Share: true, Algorithm: OneshotPull, MaxBytes: 64 << 10, Blocks: room, Threads: 64})
	require.Equal(t, 1, g.waiting(OneshotPull))
	r := newRig(t, g, 4096)
	for _, count := range []uint64{1000, 1, 1000} {
		r.run(trial{count: count, dt: BF16})
	}
	_, err := NewGroup(rt, Config{Ranks: 16, Share: true, Algorithm: OneshotPull, Blocks: room + 1, Threads: 64})
	require.ErrorIs(t, err, ErrNoPlan)
	require.ErrorContains(t, err, "an SM left empty")
	require.NoError(t, g.Close())
	g = newGroup(t, rt, Config{Ranks: 16, Share: true, Algorithm: OneshotPull, MaxBytes: 64 << 10, Blocks: room / 2, Threads: 64})
	require.Equal(t, 2, g.waiting(OneshotPull))
}
