package allreduce

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
)

var gatherAlgorithms = []Algorithm{Copy, Host}

// Every byte of a message belongs to one chunk, wherever pieces and chunks end, and every chunk has room.
func TestChunking(t *testing.T) {
	for world := 1; world <= 16; world++ {
		for _, most := range []uint64{16, 48, 1024, 4096, 4 << 20, gatherMost(world)} {
			for n := uint64(1); n < 200*most; n = n*5/3 + 1 {
				c := chunkingOf(n, most, world)
				require.Zero(t, c.piece%16)
				require.Zero(t, c.chunk%line)
				require.LessOrEqual(t, c.piece, most)
				require.LessOrEqual(t, c.chunk, chunkRoom(most, world))
				if n <= most {
					require.LessOrEqual(t, c.pieces(), uint64(4))
				}
				if n >= 4*uint64(world)*chunkLeast {
					require.GreaterOrEqual(t, c.pieces(), uint64(4))
				}
				at := uint64(0)
				for k := range int(c.pieces()) {
					for r := range world {
						s := c.span(k, r)
						late := s.n != 0 && k > 0 && c.span(k-1, r).n == 0 // a rank that has nothing has nothing later
						if s.off != at || s.n > c.chunk || late {
							t.Fatalf("%d bytes, pieces of %d at most, %d ranks: %+v: rank %d has %+v of piece %d", n, most, world, c, r, s, k)
						}
						at += s.n
					}
				}
				require.Equal(t, n, at)
				require.Zero(t, c.span(int(c.pieces()), 0).n)
			}
		}
	}
	require.Equal(t, chunking{64 << 20, 4 << 20, 512 << 10}, chunkingOf(64<<20, 4<<20, 8))
	require.Equal(t, chunking{6 << 20, 2 << 20, 256 << 10}, chunkingOf(6<<20, 4<<20, 8))
	require.Equal(t, chunking{64 << 20, 4 << 20, 2 << 20}, chunkingOf(64<<20, gatherMost(2), 2))
}

// A plan says how many pieces there are, and the grid that sums a chunk, or the whole.
func TestChunksPlan(t *testing.T) {
	for _, c := range []struct {
		world           int
		most, bytes     uint64
		pieces          uint64
		blocks, threads int
	}{
		{2, 64 << 20, 64 << 20, 16, 32, 512}, {8, 64 << 20, 64 << 20, 4, 32, 512}, {8, 0, 64 << 20, 15, 32, 512},
		{2, 0, 1 << 20, 1, 32, 512}, {2, 0, 1<<20 + 2, 2, 32, 512}, {8, 0, 1 << 20, 1, 16, 512},
		{4, 4096, 4096, 1, 1, 256}, {4, 4096, 4098, 2, 1, 64}, {1, 4096, 16384, 4, 1, 256}, {2, 0, 0, 1, 1, 64},
	} {
		for _, alg := range gatherAlgorithms {
			p, err := Select(SelectInput{Machine: machine("X"), Devices: make([]int, c.world), Want: alg, MaxBytes: c.most, Bytes: c.bytes, DType: BF16})
			require.NoError(t, err)
			require.Equal(t, Plan{Algorithm: alg, Reason: "asked for", Pieces: c.pieces, Blocks: c.blocks, Threads: c.threads}, p, "%+v", c)
		}
	}
}

// chunked is trials of many pieces: those that divide, and those that do not; chunks that are uneven or empty.
func chunked() (list []trial) {
	for i, count := range []uint64{1024, 1537, 2048, 2049, 3333, 7168} {
		dt := DTypes()[i%3]
		list = append(list, trial{count: count, dt: dt}, trial{count: count, dt: dt, inPlace: true},
			trial{count: count, dt: dt, inOff: 3, outOff: 3, skew: 1}, trial{count: count, dt: dt, inOff: 5, skew: 3, inPlace: true})
	}
	return list
}

// Messages of many pieces have the reference's bits, on machines of every kind and in whatever order the streams run.
func TestChunks(t *testing.T) {
	for world, machine := range map[int]struct {
		name    string
		devices int
	}{1: {"pcie", 1}, 2: {"one-way", 2}, 3: {"no-p2p", 3}, 5: {"pcie", 5}, 8: {"nvlink", 4}} {
		rt := open(t, launcher.Config{Backend: launcher.Emu, Machine: machine.name, Devices: machine.devices, Seed: uint64(world)})
		for _, alg := range gatherAlgorithms {
			for _, most := range []uint64{48, 1024, 2064} {
				t.Run(fmt.Sprintf("%v/%d/%d", alg, world, most), func(t *testing.T) {
					r := newRig(t, newGroup(t, rt, Config{Ranks: world, Algorithm: alg, MaxBytes: most}), 40<<10)
					for j, c := range chunked() {
						if most == 48 { // less than a line for each rank: most have nothing to sum
							if c.count = c.count % 200; j%4 > 1 {
								continue
							}
						}
						p, err := r.g.Plan(c.count, c.dt)
						require.NoError(t, err)
						require.Equal(t, piecesOf(c.size(), most), p.Pieces)
						r.run(c)
					}
					r.runEach(trial{count: 3000, dt: F16, skew: 1})
					r.run(trial{count: 5, dt: F32}) // whole, in the same memory
				})
			}
		}
	}
}

// What is queued ahead of a call comes before it, and what is queued behind it after: calls in a chain, each with the output of
// the one before, and outputs and inputs overwritten at once.
func TestChunksInOrder(t *testing.T) {
	for seed := range uint64(6) {
		rt := open(t, launcher.Config{Backend: launcher.Emu, Machine: "pcie", Devices: 3, Seed: seed})
		for _, alg := range gatherAlgorithms {
			t.Run(fmt.Sprintf("%v/%d", alg, seed), func(t *testing.T) {
				g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, MaxBytes: 1024})
				r, spare := newRig(t, g, 8192), newRig(t, g, 8192)
				c := trial{count: 1500, dt: F32} // six pieces
				inputs, _ := r.fill(c)
				in, out, _, _ := r.views(c)
				from, _, _, _ := spare.views(c)
				want := inputs
				for round := range 4 {
					for p := range in {
						s := g.Rank(p).Stream()
						require.NoError(t, s.Copy(from[p], in[p]))
						require.NoError(t, s.Memset(in[p], byte(round)))
					}
					if round%2 == 0 {
						require.NoError(t, g.AllReduce(from, out, c.count, c.dt))
					} else { // the same in place
						for p := range in {
							require.NoError(t, g.Rank(p).Stream().Copy(out[p], from[p]))
						}
						require.NoError(t, g.AllReduce(out, out, c.count, c.dt))
					}
					sum := make([]byte, c.size())
					require.NoError(t, Reference(c.dt, sum, want...))
					want = [][]byte{sum, sum, sum}
					for p := range in {
						s := g.Rank(p).Stream()
						require.NoError(t, s.Memset(from[p], 0xee))
						require.NoError(t, s.Copy(in[p], out[p]))
						require.NoError(t, s.Memset(out[p], 0xdd))
					}
				}
				r.sync()
				got := make([]byte, c.size())
				for p := range in {
					ctx, cancel := r.ctx()
					require.NoError(t, g.Rank(p).Stream().CopyOut(ctx, got, in[p]))
					cancel()
					require.Equal(t, -1, firstDifference(got, want[p]), "rank %d", p)
				}
			})
		}
	}
}

// Calls by chunks, whole and of direct kernels follow each other on one group.
func TestChunksMixed(t *testing.T) {
	rt := openAny(t)
	table := append(Table{{From: 6000, To: 9000, Algorithm: Copy}, {From: 9001, To: 12000, Algorithm: Host}, {From: 4000, To: 4020, Algorithm: Host}}, turns()...)
	for _, world := range []int{2, 5} {
		g := newGroup(t, rt, Config{Ranks: world, Table: table, MaxBytes: 2048})
		r, other := newRig(t, g, 16<<10), newRig(t, g, 16<<10)
		for _, count := range []uint64{2000, 8, 3000, 1003, 9, 1501, 2250, 10} {
			c, d := trial{count: count, dt: F32, inPlace: count%2 == 0}, trial{count: 1 + count%7, dt: F32}
			inputs, want := r.fill(c)
			others, wanted := other.fill(d)
			in, out, _, _ := r.views(c)
			in2, out2, _, _ := other.views(d)
			require.NoError(t, g.AllReduce(in, out, c.count, c.dt)) // both in flight at once
			require.NoError(t, g.AllReduce(in2, out2, d.count, d.dt))
			r.sync()
			r.verify(c, inputs, want)
			other.verify(d, others, wanted)
		}
	}
}

// Lanes are part of a captured graph, which replays with new data between other calls.
func TestChunksGraph(t *testing.T) {
	for i, world := range []int{2, 3, 5} {
		rt := open(t, launcher.Config{Backend: launcher.Emu, Machine: "pcie", Devices: world, Seed: uint64(i)})
		for _, alg := range gatherAlgorithms {
			t.Run(fmt.Sprintf("%v/%d", alg, world), func(t *testing.T) {
				g := newGroup(t, rt, Config{Ranks: world, Algorithm: alg, MaxBytes: 1024})
				trials := []trial{{count: 1333, dt: F32}, {count: 2000, dt: BF16, inPlace: true}, {count: 100, dt: F32}, {count: 3000, dt: F16, inOff: 1, outOff: 3}, {count: 513, dt: BF16}}
				gr, rigs := capture(t, g, 16<<10, trials)
				again, more := capture(t, g, 16<<10, trials[1:2])
				for range 3 {
					replay(t, gr, rigs, trials)
					rigs[0].run(trial{count: 1234, dt: F32, inPlace: true})
					replay(t, again, more, trials[1:2])
				}
				require.NoError(t, gr.Close())
			})
		}
	}
}

// idle sees that no lane has work left, now that the ranks' streams have none.
func idle(t *testing.T, g *Group) {
	t.Helper()
	for _, r := range g.ranks {
		for _, l := range r.lanes(g.policy.forced) {
			done, err := l.stream.Query()
			require.NoError(t, err)
			require.True(t, done, "rank %d", r.id)
		}
	}
}

// A rank that stays away between the meetings of a call is missed within the timeout, and nothing leaks or hangs: what the
// others have queued by then runs out.
func TestChunksAbsent(t *testing.T) {
	rt := openAny(t)
	for _, alg := range gatherAlgorithms {
		t.Run(alg.String(), func(t *testing.T) {
			const timeout = 300 * time.Millisecond
			g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, MaxBytes: 1024})
			r := newRig(t, g, 8192)
			c := trial{count: 1500, dt: F32}
			r.run(c)
			g.cfg.Timeout = timeout
			in, out, _, _ := r.views(c)
			start := time.Now()
			errs := make([]error, 3)
			ctx, cancel := r.ctx()
			defer cancel()
			require.NoError(t, g.Each(ctx, func(_ context.Context, k *Rank) error {
				if k.ID() == 1 { // it comes to the first meeting, with the buffers of the call before
					return g.meet.arrive(1, "", timeout)
				}
				errs[k.ID()] = k.AllReduce(in[k.ID()], out[k.ID()], c.count, c.dt)
				return nil
			}))
			require.Less(t, time.Since(start), timeout+10*time.Second)
			for _, p := range []int{0, 2} {
				var gone *AbsentError
				require.ErrorAs(t, errs[p], &gone)
				require.Equal(t, []int{1}, gone.Missing)
				require.Equal(t, "after the copies", gone.Where)
			}
			require.ErrorIs(t, g.AllReduce(in, out, c.count, c.dt), ErrFailed)
			require.ErrorIs(t, g.Sync(ctx), ErrAbsent)
			idle(t, g)
			g.cfg.Timeout = 20 * time.Second
			require.NoError(t, g.Close())
		})
	}
}

// A rank that fails in the middle of its chunks takes the others with it at once, in a call as in a capture; a capture's
// failure leaves no lane behind in it, and the group working.
func TestChunksFail(t *testing.T) {
	rt := openAny(t)
	for _, alg := range gatherAlgorithms {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Devices: []int{0, 0, 0}, Algorithm: alg, MaxBytes: 1024, Timeout: time.Minute})
			r := newRig(t, g, 8192)
			c := trial{count: 1500, dt: F32}
			r.run(c)
			in, out, _, _ := r.views(c)
			room := &g.ranks[1].gather.room
			*room *= 2 // half the places, those of the second piece, are outside
			start := time.Now()
			_, err := g.Capture(func() error { return g.AllReduce(in, out, c.count, c.dt) })
			require.ErrorIs(t, err, launcher.ErrInvalidValue)
			require.NoError(t, g.Err())
			*room /= 2
			r.run(c)
			r.runEach(c)
			*room *= 2
			pause(t, rt, g.ranks[1].gather.to[2].stream, 100*time.Millisecond)
			require.ErrorIs(t, g.AllReduce(in, out, c.count, c.dt), launcher.ErrInvalidValue)
			require.ErrorIs(t, g.Sync(t.Context()), launcher.ErrInvalidValue)
			idle(t, g)
			require.NoError(t, g.Close())
			require.Less(t, time.Since(start), 50*time.Second, "nobody waits for the timeout")
		})
	}
}

// The call in which a group fails says why, whichever rank returns first; only later ones say that it has failed.
func TestGatherFailureIsTheCause(t *testing.T) {
	rt := openAny(t)
	for _, alg := range gatherAlgorithms {
		for range 20 {
			g := newGroup(t, rt, Config{Ranks: 8, Algorithm: alg, Timeout: time.Millisecond})
			r := newRig(t, g, 4096)
			in, out, _, _ := r.views(trial{count: 500})
			late := &g.ranks[5].mu
			late.Lock()
			time.AfterFunc(20*time.Millisecond, late.Unlock)
			err := g.AllReduce(in, out, 500, F32)
			require.ErrorIs(t, err, ErrAbsent)
			require.NotErrorIs(t, err, ErrFailed)
			require.ErrorIs(t, g.AllReduce(in, out, 500, F32), ErrFailed)
			require.NoError(t, g.Close())
		}
	}
}

// BenchmarkCopy is the time of a call of copy and host, bf16, out of place, with nothing else queued, as us/call, and the bus
// bandwidth as nccl-tests define it.
func BenchmarkCopy(b *testing.B) {
	rt := openAny(b)
	sizes := []uint64{64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20}
	if rt.Info().Emulated {
		sizes = sizes[:2] // to see that it works; the time means nothing
	}
	for _, alg := range gatherAlgorithms {
		for _, world := range []int{2, 4, 8} {
			for _, size := range sizes {
				b.Run(fmt.Sprintf("%v/ranks=%d/bytes=%d", alg, world, size), func(b *testing.B) {
					g := newGroup(b, rt, Config{Ranks: world, Algorithm: alg, MaxBytes: gatherMost(world)})
					r := newRig(b, g, size)
					c := trial{count: size / 2, dt: BF16}
					_, want := r.fill(c)
					in, out, _, _ := r.views(c)
					for b.Loop() {
						require.NoError(b, g.AllReduce(in, out, c.count, c.dt))
						r.sync()
					}
					call := b.Elapsed() / time.Duration(b.N)
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(float64(call.Nanoseconds())/1e3, "us/call")
					b.ReportMetric(2*float64(world-1)/float64(world)*float64(size)/float64(call.Nanoseconds()), "busGB/s")
					require.Zero(b, r.countWrong(c, want))
				})
			}
		}
	}
}
