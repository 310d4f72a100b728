package allreduce

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"

	"github.com/fenceline/fenceline/flags"
)

// everyAlgorithm is all of ours, which NCCL is not; direct, those whose kernels wait for each other; pull, those that read their peers' data.
var everyAlgorithm, directAlgorithms, pullAlgorithms = func() (all, direct, pull []Algorithm) {
	for _, a := range Algorithms()[1:NCCL] {
		all = append(all, a)
		if a.Direct() {
			direct = append(direct, a)
		}
		if a.pulls() {
			pull = append(pull, a)
		}
	}
	return all, direct, pull
}()

// worldsOf is those world sizes; with -short, which the race detector's slowness asks for, the middle one: the size changes what the
// kernels do, and little of what goes on around them.
func worldsOf(sizes ...int) []int {
	if testing.Short() {
		return sizes[len(sizes)/2:][:1]
	}
	return sizes
}

// Every algorithm, world size, dtype, odd count and alignment gives the reference's bits.
func TestAllReduce(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		for _, world := range worldsOf(1, 2, 3, 4, 5, 8, 16) {
			t.Run(fmt.Sprintf("%v/%d", alg, world), func(t *testing.T) {
				r := newRig(t, newGroup(t, rt, Config{Ranks: world, Algorithm: alg}), 40<<10)
				for _, dt := range DTypes() {
					for _, c := range []trial{
						{count: 1}, {count: 7, inOff: 1, outOff: 3}, {count: 8}, {count: 9, inOff: 5, outOff: 5},
						{count: 255, inPlace: true, inOff: 3}, {count: 1031, inOff: 2, outOff: 2, skew: 3},
						{count: 4097, inOff: 7, outOff: 7}, {count: 2048, inPlace: true}, {count: 3000, skew: 1, inPlace: true},
					} {
						c.dt = dt
						r.run(c)
					}
				}
			})
		}
	}
}

// The world sizes between.
func TestOtherWorlds(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		for i, world := range worldsOf(6, 7, 9, 10, 11, 12, 13, 14, 15) {
			t.Run(fmt.Sprintf("%v/%d", alg, world), func(t *testing.T) {
				r := newRig(t, newGroup(t, rt, Config{Ranks: world, Algorithm: alg, MaxBytes: 16 << 10}), 12<<10)
				r.run(trial{count: 1031 + uint64(i), dt: DTypes()[i%3], inOff: 1, outOff: 2})
				r.run(trial{count: 5, dt: DTypes()[(i+1)%3], inPlace: true})
			})
		}
	}
}

// One goroutine per rank, as engines call it.
func TestRanksInGoroutines(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		t.Run(alg.String(), func(t *testing.T) {
			r := newRig(t, newGroup(t, rt, Config{Ranks: 4, Algorithm: alg}), 20<<10)
			for _, c := range []trial{{count: 3}, {count: 5000, dt: BF16}, {count: 0}, {count: 777, dt: F16, inOff: 1, outOff: 2, skew: 5}, {count: 5000, dt: F32, inPlace: true}} {
				r.runEach(c)
			}
		})
	}
}

// A message above MaxBytes is done in pieces; exactly MaxBytes is one.
func TestPieces(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, MaxBytes: 4096})
			r := newRig(t, g, 40<<10)
			for count, pieces := range map[uint64]uint64{0: 1, 2047: 1, 2048: 1, 2049: 2, 4096: 2, 12345: 7} {
				p, err := g.Plan(count, BF16)
				require.NoError(t, err)
				require.Equal(t, pieces, p.Pieces)
				require.Equal(t, alg, p.Algorithm)
				r.run(trial{count: count, dt: BF16, inOff: 3, outOff: 3})
				r.run(trial{count: count, dt: BF16, outOff: 1, skew: 1})
			}
		})
	}
}

// Calls of several pieces are queued piece by piece on all ranks: a GPU takes about a thousand launches of a stream, and holds
// the next back until some have run.
func TestPiecesBeyondTheQueue(t *testing.T) {
	rt := openAny(t)
	calls := 20
	if !rt.Info().Emulated {
		calls = 500
	}
	for _, alg := range directAlgorithms {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, MaxBytes: 1024})
			r := newRig(t, g, 16<<10)
			c := trial{count: 4096, dt: BF16}
			in, out, _, _ := r.views(c)
			for range calls {
				require.NoError(t, g.AllReduce(in, out, c.count, c.dt)) // 8 pieces
			}
			require.NoError(t, g.Sync(t.Context()))
			r.run(c)
		})
	}
}

// Registered inputs are read directly, and mix with staged calls, other sizes and other grids on one group.
func TestRegistered(t *testing.T) {
	rt := openAny(t)
	for _, world := range worldsOf(2, 3, 4, 8) {
		for _, alg := range pullAlgorithms {
			t.Run(fmt.Sprintf("%d/%v", world, alg), func(t *testing.T) {
				g := newGroup(t, rt, Config{Ranks: world, Algorithm: alg, DirectBytes: 1})
				r := newRig(t, g, 40<<10)
				run := func(c trial, registered bool) {
					t.Helper()
					in, out, _, _ := r.views(c)
					op, err := g.Rank(1).check(in[1], out[1], c.count, c.dt)
					require.NoError(t, err)
					require.Equal(t, registered, op.registration != nil, "%+v", c)
					r.run(c)
				}
				run(trial{count: 5000, dt: F16}, false)
				r.register()
				rng := rand.New(rand.NewPCG(3, 4))
				for range 30 {
					dt := DTypes()[rng.IntN(3)]
					off := rng.Uint64N(9)
					c := trial{dt: dt, count: 1 + rng.Uint64N(9000), inOff: off, outOff: off}
					run(c, true)
					c.outOff = rng.Uint64N(9)
					run(c, true)
					c.inPlace = true
					run(c, alg == TwoshotPull) // with one-shot the output would change under the peers' reads
				}
				// Registered at another offset on each rank: staged on all.
				r.run(trial{count: 500, dt: F32, inOff: 1, skew: 1})
				require.NoError(t, r.reg.Close())
				run(trial{count: 5000, dt: F16}, false)
			})
		}
	}
}

func TestRegisteredTooSmall(t *testing.T) {
	g := newGroup(t, openAny(t), Config{Ranks: 2, Algorithm: OneshotPull, DirectBytes: 1000})
	r := newRig(t, g, 4096)
	r.register()
	for count, registered := range map[uint64]bool{249: false, 250: true} {
		c := trial{count: count, dt: F32}
		in, out, _, _ := r.views(c)
		op, err := g.Rank(0).check(in[0], out[0], count, F32)
		require.NoError(t, err)
		require.Equal(t, registered, op.registration != nil)
		r.run(c)
	}
}

// The epoch wraps in the middle of the calls, staged, registered and pushed, with grids that change.
func TestEpochWraps(t *testing.T) {
	rt := openAny(t)
	for _, first := range []uint32{0xffff_fffb, 0x7fff_fffb} {
		for _, alg := range directAlgorithms {
			for _, registered := range []bool{false, true} {
				if registered && !alg.pulls() {
					continue
				}
				t.Run(fmt.Sprintf("%v/%#x/%v", alg, first, registered), func(t *testing.T) {
					r := newRig(t, newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, FirstEpoch: first, DirectBytes: 1}), 40<<10)
					if registered {
						r.register()
					}
					for i := range 4 {
						r.run(trial{count: 20000, dt: BF16})
						r.run(trial{count: uint64(1 + i), dt: F32})
					}
				})
			}
		}
	}
}

// After any call all epoch entries of a rank are equal. Once in 2^20 calls every slot of every pad is written,
// used by the grid or not, so that no old epoch ever looks like a future one.
func TestIdleSlotsAreRefreshed(t *testing.T) {
	rt := openAny(t)
	for k, alg := range append(pullAlgorithms, pullAlgorithms...) {
		registered := k >= len(pullAlgorithms)
		t.Run(fmt.Sprintf("%v/%v", alg, registered), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, FirstEpoch: refresh - 3, DirectBytes: 1})
			r := newRig(t, g, 40<<10)
			if registered {
				r.register()
			}
			for i, count := range []uint64{20000, 1, 20000, 1} { // the third is call refresh
				if i == 2 {
					count = 100 // a grid of one block
				}
				r.run(trial{count: count, dt: BF16})
				epoch := uint32(refresh - 2 + i)
				for p := range g.World() {
					for b, e := range r.words(p, g.Rank(p).scratch.control)[:flags.MaxBlocks] {
						require.Equal(t, epoch, e, "epoch of block %d", b)
					}
					pad := r.words(p, g.Rank(p).scratch.pad)
					for _, kind := range []flags.SlotKind{flags.Start, flags.End} {
						for b := range flags.MaxBlocks {
							for src := range g.World() {
								if src == p {
									continue
								}
								got := pad[flags.SlotOffset(kind, b, src)/4]
								if i == 2 {
									require.Equal(t, uint32(refresh), got, "%v slot, block %d, from %d", kind, b, src)
								} else {
									require.True(t, flags.Reached(epoch, got))
								}
							}
						}
					}
				}
			}
		})
	}
}

// In two of 2^20 calls every packet of a box is written, of one-shot's those of one half in each, so that no epoch comes again in one.
func TestIdlePacketsAreRefreshed(t *testing.T) {
	rt := openAny(t)
	for _, alg := range directAlgorithms {
		if !alg.pushes() {
			continue
		}
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, FirstEpoch: refresh - 3, MaxBytes: 4096})
			r := newRig(t, g, 4096)
			for _, count := range []uint64{2048, 1, 100, 100, 1} { // the third and fourth are calls refresh and refresh+1
				r.run(trial{count: count, dt: BF16})
			}
			for p := range g.World() {
				s := &g.Rank(p).scratch
				part := uint64(g.World()) * s.slots[alg] * packetBytes / 4 // words
				each := 2                                                  // words to an epoch
				if alg.wide() {
					each = 4
				}
				for i, w := range r.words(p, s.box[alg]) {
					half, src := uint64(i)/part, uint64(i)%part/(part/3)
					if alg.twoshot() {
						half = 1
					}
					if i%each == each-1 && int(src) != p {
						require.GreaterOrEqual(t, w, uint32(refresh)+uint32(half), "rank %d word %d", p, i)
					}
				}
			}
		})
	}
}

// All machines of the emulator end on the right rung, with the same bits.
func TestLadder(t *testing.T) {
	for name, want := range map[string]Algorithm{"nvlink": OneshotPush, "pcie": OneshotPush, "one-way": Copy, "no-p2p": Host} {
		t.Run(name, func(t *testing.T) {
			rt := openEmu(t, name, 3)
			g := newGroup(t, rt, Config{})
			p, err := g.Plan(1000, BF16)
			require.NoError(t, err)
			require.Equal(t, want, p.Algorithm)
			require.NotEmpty(t, p.Reason)
			r := newRig(t, g, 40<<10)
			for _, dt := range DTypes() {
				r.run(trial{count: 4097, dt: dt, inOff: 1, outOff: 1})
				r.run(trial{count: 100, dt: dt, inPlace: true})
			}
		})
	}
}

// The same payload through every algorithm gives the same bits. (That every build of a kernel does is tested in internal/ptx.)
func TestSameBits(t *testing.T) {
	rt := openAny(t)
	for _, dt := range DTypes() {
		var first []byte
		for _, alg := range everyAlgorithm {
			t.Run(fmt.Sprintf("%v/%v", dt, alg), func(t *testing.T) {
				r := newRig(t, newGroup(t, rt, Config{Ranks: 4, Algorithm: alg}), 20<<10)
				r.rng = rand.New(rand.NewPCG(11, 12))
				got := r.run(trial{count: 4001, dt: dt})
				if first == nil {
					first = got
				}
				require.Equal(t, first, got)
			})
		}
	}
}

// Fixed grids, odd thread counts included.
func TestGrids(t *testing.T) {
	rt := openAny(t)
	for _, alg := range directAlgorithms {
		for _, grid := range [][2]int{{1, 32}, {3, 96}, {5, 128}, {2, 512}, {7, 0}, {0, 64}} {
			t.Run(fmt.Sprint(alg, grid), func(t *testing.T) {
				r := newRig(t, newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, Blocks: grid[0], Threads: grid[1], DirectBytes: 1}), 40<<10)
				for _, count := range []uint64{1, 129, 10001} {
					r.run(trial{count: count, dt: BF16, inOff: 1, outOff: 1})
				}
				r.register()
				r.run(trial{count: 10001, dt: F16, inOff: 1, outOff: 1})
			})
		}
	}
}

// Calls queued back to back without waiting, each with data of its own, in several sizes.
func TestBackToBack(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 4, Algorithm: alg})
			const calls, most = 12, uint64(4000)
			rigs := make([]*rig, calls)
			trials := make([]trial, calls)
			inputs := make([][][]byte, calls)
			wants := make([][]byte, calls)
			rng := rand.New(rand.NewPCG(5, 6))
			for i := range rigs {
				rigs[i] = newRig(t, g, most*4)
				rigs[i].rng = rng
				trials[i] = trial{count: 1 + rng.Uint64N(most), dt: DTypes()[rng.IntN(3)], inPlace: i%5 == 0}
				inputs[i], wants[i] = rigs[i].fill(trials[i])
			}
			for i := range rigs {
				in, out, _, _ := rigs[i].views(trials[i])
				require.NoError(t, g.AllReduce(in, out, trials[i].count, trials[i].dt))
			}
			rigs[0].sync()
			for i := range rigs {
				rigs[i].verify(trials[i], inputs[i], wants[i])
			}
		})
	}
}

// Work behind a call with a registered input on its stream may overwrite the input: peers have read it by then.
func TestRegisteredInputIsReusable(t *testing.T) {
	rt := openAny(t)
	for _, alg := range pullAlgorithms {
		reuseRegistered(t, rt, alg)
	}
}

func reuseRegistered(t *testing.T, rt *launcher.Runtime, alg Algorithm) {
	t.Run(alg.String(), func(t *testing.T) { // a group of its own, closed before the next one asks for room
		g := newGroup(t, rt, Config{Ranks: 4, Algorithm: alg, DirectBytes: 1})
		r := newRig(t, g, 60<<10)
		r.register()
		c := trial{count: 15000, dt: F32}
		in, out, _, _ := r.views(c)
		for range 20 {
			_, want := r.fill(c)
			require.NoError(t, g.AllReduce(in, out, c.count, c.dt))
			for p := range in {
				require.NoError(t, g.Rank(p).Stream().Memset(in[p], 0x77))
			}
			r.sync()
			require.Zero(t, r.countWrong(c, want))
		}
	})
}

// Registered buffers that are not equally aligned cannot be read in packs of 16 bytes, and are staged.
func TestRegisteredUnequalAlignment(t *testing.T) {
	g := newGroup(t, openAny(t), Config{Ranks: 2, Algorithm: OneshotPull, DirectBytes: 1})
	r := newRig(t, g, 8<<10)
	in, out, _, _ := r.views(trial{count: 1000, dt: F32, skew: 1})
	reg, err := g.Register(in)
	require.NoError(t, err)
	op, err := g.Rank(0).check(in[0], out[0], 1000, F32)
	require.NoError(t, err)
	require.Nil(t, op.registration)
	r.run(trial{count: 1000, dt: F32, skew: 1})
	require.NoError(t, reg.Close())
}
