package ptx

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// pull is a one-shot pull all-reduce of a few ranks over one flat memory, the launches of all ranks in
// step. The parameter layout is AllReduceArgs of kernels/oneshot_pull.cu.
type pull struct {
	k      *Kernel
	mem    *flat
	world  int
	blocks uint32
	count  int // elements per rank
	size   int // bytes of an element
	in     []int
	out    []int
	params [][]byte
	status int
}

const maxRanks = 16

func newPull(t testing.TB, file, entry string, world, count, size int, blocks uint32, inPlace bool) *pull {
	t.Helper()
	src, err := os.ReadFile(file)
	require.NoError(t, err)
	m, err := Parse(filepath.Base(file), src)
	require.NoError(t, err)
	k, ok := m.Kernel(entry)
	require.True(t, ok, entry)
	p := &pull{k: k, world: world, blocks: blocks, count: count, size: size}
	used := 0
	alloc := func(n int) int {
		at := used
		used = alignUp(used+n, 256)
		return at
	}
	bytes := count * size
	half := alignUp(bytes+16*size, 16)
	var pad, stage, control []int
	for range world {
		pad = append(pad, alloc(2*64*16*4))
		p.in = append(p.in, alloc(bytes))
		p.out = append(p.out, alloc(bytes))
		stage = append(stage, alloc(2*half))
		control = append(control, alloc(4096))
	}
	p.status = alloc(8192)
	p.mem = newFlat(used)
	for r := range world {
		var b []byte
		u64 := func(v uint64) { b = binary.LittleEndian.AppendUint64(b, v) }
		u32 := func(v uint32) { b = binary.LittleEndian.AppendUint32(b, v) }
		ptr := func(list []int) {
			for i := range maxRanks {
				if i < len(list) {
					u64(flatBase + uint64(list[i]))
				} else {
					u64(0)
				}
			}
		}
		if inPlace {
			ptr(p.in)
		} else {
			ptr(stage)
		}
		ptr(pad)
		u64(flatBase + uint64(p.in[r]))
		u64(flatBase + uint64(p.out[r]))
		if inPlace {
			u64(0)
		} else {
			u64(flatBase + uint64(stage[r]))
		}
		u64(flatBase + uint64(control[r]))
		u64(flatBase + uint64(p.status))
		u64(uint64(count))
		u64(uint64(half))
		u64(60e9)
		u32(uint32(r))
		u32(uint32(world))
		u32(0)
		u32(0)
		require.Len(t, b, k.Sig.ParamBytes, "AllReduceArgs has changed")
		p.params = append(p.params, b)
	}
	return p
}

// step runs one call on all ranks and returns the counts.
func (p *pull) step(t testing.TB, threads uint32, rng *rand.Rand) (warpInsts, threadInsts uint64) {
	var running, all []*Block
	for r := range p.world {
		l := &Launch{Kernel: p.k, Grid: [3]uint32{p.blocks, 1, 1}, Block: [3]uint32{threads, 1, 1}, Params: p.params[r],
			Memory: p.mem, StepLimit: 1 << 30}
		for i := range p.blocks {
			b, err := NewBlock(l, [3]uint32{i, 0, 0})
			require.NoError(t, err)
			running = append(running, b)
		}
	}
	all = append(all, running...)
	for len(running) > 0 {
		i := rng.IntN(len(running))
		state, err := running[i].Run(Quantum{Warps: 4096, Rand: rng})
		require.NoError(t, err)
		if state == Done {
			running[i] = running[len(running)-1]
			running = running[:len(running)-1]
		}
	}
	for _, b := range all {
		w, th := b.Counts()
		warpInsts, threadInsts = warpInsts+w, threadInsts+th
	}
	return warpInsts, threadInsts
}

// check compares every rank's output with the sum in float32, in rank order, rounded once.
func (p *pull) check(t *testing.T, toF32 func(uint32) float32, round func(float32) uint32) {
	get := func(at int) uint32 {
		if p.size == 2 {
			return uint32(binary.LittleEndian.Uint16(p.mem.data[at:]))
		}
		return binary.LittleEndian.Uint32(p.mem.data[at:])
	}
	for i := range p.count {
		first := get(p.in[0] + i*p.size)
		sum := toF32(first)
		for r := 1; r < p.world; r++ {
			sum += toF32(get(p.in[r] + i*p.size))
		}
		for r := range p.world {
			want := round(sum)
			if p.world == 1 && p.size == 4 {
				want = first // no arithmetic, so NaN payloads stay
			}
			if got := get(p.out[r] + i*p.size); got != want {
				require.Equalf(t, want, got, "rank %d element %d", r, i)
			}
		}
	}
	require.Zero(t, binary.LittleEndian.Uint32(p.mem.data[p.status+16:]), "a rank reported a failure")
}

var pullFiles = []string{
	"../../kernels/ptx/oneshot_pull.sm_70.ptx", "../../kernels/ptx/oneshot_pull.sm_80.ptx", "../../kernels/ptx/oneshot_pull.sm_90.ptx",
	"testdata/nvcc/oneshot_pull.sm_75.ptx", "testdata/nvcc/oneshot_pull.sm_90.ptx",
}

// The kernels that ship, and nvcc's rendering of them, give the reference's bits: several ranks that wait on
// one another, several calls with fresh data, odd sizes.
func TestPullKernels(t *testing.T) {
	for _, file := range pullFiles {
		for _, dtype := range []string{"f32", "f16", "bf16"} {
			for _, c := range []struct {
				world, count int
				inPlace      bool
			}{{1, 1000, false}, {2, 1001, true}, {3, 4099, false}, {4, 257, false}, {8, 2048, true}} {
				t.Run(fmt.Sprintf("%s/%s/%d ranks", filepath.Base(file), dtype, c.world), func(t *testing.T) {
					size := 2
					if dtype == "f32" {
						size = 4
					}
					p := newPull(t, file, "allreduce_oneshot_pull_"+dtype, c.world, c.count, size, 2, c.inPlace)
					rng := rand.New(rand.NewPCG(uint64(c.count), 7))
					for range 3 {
						for _, at := range p.in {
							for i := range p.count * size {
								p.mem.data[at+i] = byte(rng.Uint32())
							}
						}
						p.step(t, 64, rng)
						p.check(t, refWiden(dtype), refRound(dtype))
					}
				})
			}
		}
	}
}

func BenchmarkPull(b *testing.B) {
	for _, dtype := range []string{"bf16", "f16", "f32"} {
		size := 2
		if dtype == "f32" {
			size = 4
		}
		for _, world := range []int{1, 4, 8} {
			b.Run(fmt.Sprintf("%s/%d", dtype, world), func(b *testing.B) {
				p := newPull(b, "../../kernels/ptx/oneshot_pull.sm_80.ptx", "allreduce_oneshot_pull_"+dtype, world, 64<<10/size, size, 4, false)
				rng := rand.New(rand.NewPCG(1, 2))
				for _, at := range p.in {
					for i := range p.count {
						if size == 2 {
							binary.LittleEndian.PutUint16(p.mem.data[at+2*i:], uint16(0x3c00+rng.IntN(512)))
						} else {
							binary.LittleEndian.PutUint32(p.mem.data[at+4*i:], 0x3f800000+rng.Uint32N(1<<22))
						}
					}
				}
				var threads, warps uint64
				for b.Loop() {
					w, n := p.step(b, 512, rng)
					warps, threads = warps+w, threads+n
				}
				b.ReportMetric(float64(threads)/b.Elapsed().Seconds()/1e6, "Minst/s")
				b.ReportMetric(float64(threads)/float64(warps), "lanes")
			})
		}
	}
}
