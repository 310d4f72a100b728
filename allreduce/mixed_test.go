package allreduce

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// turns is a table by which the direct algorithms take turns from count to count of f32, and of others: any 8 counts in a
// row have all of them.
func turns() (t Table) {
	for i := range uint64(512) {
		t = append(t, Rule{From: 2 * i, To: 2*i + 1, Algorithm: directAlgorithms[i/2%uint64(len(directAlgorithms))]})
	}
	return t
}

// Calls of all algorithms follow each other on one group, near the places where epochs wrap and slots are refreshed.
func TestMixed(t *testing.T) {
	rt := openAny(t)
	for _, world := range worldsOf(2, 3, 8) {
		for _, first := range []uint32{0, 0xffff_ffff - 20, 1<<20 - 20} {
			t.Run(fmt.Sprintf("%d/%#x", world, first), func(t *testing.T) {
				table := append(Table{{From: 4000, To: 4020, Algorithm: Copy}, {From: 4021, To: 4040, Algorithm: Host}}, turns()...)
				g := newGroup(t, rt, Config{Ranks: world, FirstEpoch: first, Table: table, DirectBytes: 1})
				seen := map[Algorithm]bool{}
				r := newRig(t, g, 40<<10)
				run := func(c trial) {
					p, err := g.Plan(c.count, c.dt)
					require.NoError(t, err)
					seen[p.Algorithm] = true
					r.run(c)
				}
				rng := rand.New(rand.NewPCG(1, uint64(first)))
				for i := range 40 {
					if i == 20 {
						r.register()
					}
					run(trial{count: 1 + rng.Uint64N(250), dt: DTypes()[i%3], inPlace: i%5 == 0})
					switch i % 8 {
					case 0:
						run(trial{count: 1002, dt: F32})
					case 3:
						run(trial{count: 1007, dt: F32})
					case 5:
						run(trial{count: 5000 + rng.Uint64N(3000), dt: BF16, inOff: 1, outOff: 1})
					}
				}
				require.Len(t, seen, len(everyAlgorithm))
				r.runEach(trial{count: 8, dt: F32})
				r.runEach(trial{count: 1007, dt: F32})
				r.runEach(trial{count: 12, dt: F32})
			})
		}
	}
}

// A graph keeps the algorithms that its calls had when they were captured, and direct kernels are not mixed with copies.
func TestMixedGraph(t *testing.T) {
	g := newGroup(t, openAny(t), Config{Ranks: 3, Table: append(Table{{From: 4000, To: 4040, Algorithm: Copy}}, turns()...)})
	p, err := g.Plan(1002, F32)
	require.NoError(t, err)
	require.Equal(t, Copy, p.Algorithm)
	var trials []trial
	for _, count := range []uint64{1, 8, 9, 10, 64, 65, 200, 1002, 10_000} {
		trials = append(trials, trial{count: count, dt: F32})
	}
	gr, rigs := capture(t, g, 40<<10, trials)
	for range 3 {
		replay(t, gr, rigs, trials)
		rigs[0].run(trial{count: 1002, dt: F32})
		rigs[0].run(trial{count: 7, dt: F32})
	}
}

// Whatever the links, world and size: what is picked can work, has room for the call, and is the same from wherever one
// looks; and no memory is set aside for what is never picked.
func TestPolicy(t *testing.T) {
	var all [numAlgorithms]bool
	for a := OneshotPull; a < numAlgorithms; a++ {
		all[a] = true
	}
	writes := all
	writes[OneshotPull], writes[TwoshotPull], writes[Copy] = false, false, false
	for class := range linkClass(len(shipped)) {
		for world := 1; world <= 16; world++ {
			for _, most := range []uint64{16, 4096, 4 << 20, 64 << 20} {
				for _, push := range []uint64{0, 64, 1 << 20} {
					for _, allowed := range [][numAlgorithms]bool{all, writes} {
						p := &policy{world: world, class: class, rung: "because", allowed: allowed, most: most, push: push}
						p.bound()
						picked := map[Algorithm]bool{}
						for n := uint64(0); n < 256<<20; n = n*3/2 + 1 {
							for _, n := range []uint64{n, n &^ 15, n &^ 4095} {
								a, b := p.pick(p.table, n, F16, false)
								require.True(t, allowed[a])
								require.NotZero(t, p.limit[a], "%v", a)
								require.Zero(t, p.limit[a]%16)
								require.LessOrEqual(t, p.limit[a], most)
								if a.pushes() && allowed[OneshotPull] {
									require.LessOrEqual(t, n, p.room(a))
								}
								if n <= most && a.Direct() && (allowed[OneshotPull] || n <= p.room(a)) {
									require.LessOrEqual(t, n, p.limit[a], "one launch")
								}
								require.Contains(t, p.why(n, F16, b), "because")
								picked[a] = true
							}
						}
						for a, limit := range p.limit {
							require.False(t, limit != 0 && !picked[Algorithm(a)] && most >= 4096, "%v is never picked", Algorithm(a))
						}
						if push == 0 {
							require.LessOrEqual(t, 4*uint64(world)*p.limit[OneshotPush], uint64(8<<20))
							require.LessOrEqual(t, 8*p.limit[TwoshotPush], uint64(8<<20))
						}
					}
				}
			}
		}
	}
}

func TestClassify(t *testing.T) {
	m := linked(machine("X11", "1X1", "11X"), "NV4")
	require.Equal(t, linkNVLink, classify(m, []int{0, 1, 2, 2}))
	require.Equal(t, linkShared, classify(m, []int{1, 1}))
	m.Pairs[2][0].Link = "PIX"
	require.Equal(t, linkPCIe, classify(m, []int{0, 1, 2}))
	require.Equal(t, linkNVLink, classify(m, []int{0, 1}))
	require.Equal(t, linkPCIe, classify(machine("X1", "1X"), []int{0, 1}))
}
