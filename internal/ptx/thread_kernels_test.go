package ptx

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// scene is some launches that run at the same time over one memory.
type scene struct {
	mem      *flat
	launches []*Launch
}

// args is a parameter buffer in the making.
type args []byte

func (a *args) u64(v ...uint64) {
	for _, x := range v {
		*a = binary.LittleEndian.AppendUint64(*a, x)
	}
}

func (a *args) u32(v ...uint32) {
	for _, x := range v {
		*a = binary.LittleEndian.AppendUint32(*a, x)
	}
}

// both runs the scene in Blocks and by Threads, and returns both memories.
func (s *scene) both(t *testing.T, putOff bool) (blocks, threads []byte) {
	t.Helper()
	before := bytes.Clone(s.mem.data)
	rng := rand.New(rand.NewPCG(3, 4))
	var running []*Block
	for _, l := range s.launches {
		l.Memory = s.mem
		for i := range l.Grid[0] {
			b, err := NewBlock(l, [3]uint32{i, 0, 0})
			require.NoError(t, err)
			running = append(running, b)
		}
	}
	for len(running) > 0 {
		i := rng.IntN(len(running))
		state, err := running[i].Run(Quantum{Warps: 1000, Rand: rng})
		require.NoError(t, err)
		if state == Done {
			running = append(running[:i], running[i+1:]...)
		}
	}
	blocks = s.mem.data
	s.mem.data = before
	st, err := newStepper(s.mem, s.launches...)
	require.NoError(t, err)
	st.putOff, st.burst = putOff, 3
	require.NoError(t, st.run())
	return blocks, s.mem.data
}

func (s *scene) add(k *Kernel, params args, grid, block uint32) {
	s.launches = append(s.launches, &Launch{Kernel: k, Grid: [3]uint32{grid, 1, 1}, Block: [3]uint32{block, 1, 1}, Params: params,
		Clock: func() uint64 { return 1 }, StepLimit: 1 << 24})
}

// pullScene is one call of the one-shot pull by three ranks; the data is odd in number.
func pullScene(t *testing.T, file, name string) *scene {
	size := 2
	if name == "allreduce_oneshot_pull_f32" {
		size = 4
	}
	p := newPull(t, file, name, 3, 333, size, 2, false)
	s := &scene{mem: p.mem}
	for _, params := range p.params {
		s.add(p.k, params, p.blocks, 64)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for _, at := range p.in {
		for i := range p.count * size {
			p.mem.data[at+i] = byte(rng.Uint32())
		}
	}
	return s
}

func reduceScene(k *Kernel, head uint32) *scene {
	s := &scene{mem: newFlat(1 << 16)}
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range s.mem.data {
		s.mem.data[i] = byte(rng.Uint32())
	}
	var a args
	for r := range uint64(maxRanks) {
		a.u64(flatBase + 2048*r)
	}
	a.u64(flatBase+48<<10, 301)
	a.u32(3, head)
	s.add(k, a, 2, 64)
	return s
}

// probeScene is a kernel of the probe, or the two that belong together.
func probeScene(m *Module, name string) *scene {
	s := &scene{mem: newFlat(1 << 18)}
	const src, dst, flag, status, result, count = flatBase, flatBase + 64<<10, flatBase + 128<<10, flatBase + 132<<10, flatBase + 136<<10, 333
	args := func(flags, peer, result uint64, first uint32) (a args) {
		a.u64(src, dst, flags, peer, status, result, count, 99, 1e9)
		a.u32(5, first)
		return a
	}
	kernel := func(name string) *Kernel { return m.kernels[name] }
	rng := rand.New(rand.NewPCG(9, 10))
	for i := range 48 << 10 {
		s.mem.data[i] = byte(rng.Uint32())
	}
	s.mem.set32((status+4-flatBase)/4, 1)
	switch name {
	case "probe_post": // writes what expect reads
		a := args(flag, 0, result, 0)
		binary.LittleEndian.PutUint64(a[8:], src)
		s.add(kernel(name), a, 2, 64)
		s.add(kernel("probe_expect"), args(flag, 0, result, 0), 2, 64)
	case "probe_ping":
		s.add(kernel(name), args(flag, flag+1024, result, 1), 1, 1)
		s.add(kernel(name), args(flag+1024, flag, result+1024, 0), 1, 1)
	case "probe_add":
		s.add(kernel(name), args(flag, 0, result, 0), 2, 64)
		s.add(kernel(name), args(flag, 0, result+1024, 0), 2, 64)
	case "probe_chase":
		for i := range 16 {
			s.mem.set32(16*i, uint32((i*7+3)%16*64))
		}
		s.add(kernel(name), args(flag, 0, result, 0), 1, 1)
	default:
		s.add(kernel(name), args(flag, 0, result, 0), 2, 96)
	}
	return s
}

// Every kernel that ships gives the same bits in a Block and thread by thread.
func TestThreadKernels(t *testing.T) {
	files, err := filepath.Glob("../../kernels/ptx/*.ptx")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, parse := range []func(string, []byte) (*Module, error){Parse, ParseObserved} {
			m, err := parse(filepath.Base(file), src)
			require.NoError(t, err)
			for name, k := range m.kernels {
				t.Run(filepath.Base(file)+"/"+name, func(t *testing.T) {
					var s *scene
					switch name {
					case "probe_expect":
						return // runs with probe_post
					case "probe_fill", "probe_copy", "probe_post", "probe_add", "probe_ping", "probe_chase":
						s = probeScene(m, name)
					case "reduce_local_f32", "reduce_local_f16", "reduce_local_bf16":
						s = reduceScene(k, 3)
					case "allreduce_oneshot_pull_f32", "allreduce_oneshot_pull_f16", "allreduce_oneshot_pull_bf16":
						s = pullScene(t, file, name)
					default:
						return // run by Block in package allreduce, and by Thread in flags/check, which judge the sums
					}
					before := bytes.Clone(s.mem.data)
					blocks, threads := s.both(t, k.names != nil)
					require.False(t, bytes.Equal(before, blocks), "the kernel did nothing")
					if name == "probe_add" { // who gets which number is open; all numbers are got
						require.Equal(t, sums(blocks[136<<10:]), sums(threads[136<<10:]))
						clear(blocks[136<<10:])
						clear(threads[136<<10:])
					}
					require.True(t, bytes.Equal(blocks, threads), "a Block and its Threads differ")
				})
			}
		}
	}
}

func sums(b []byte) (sum uint64) {
	for i := 0; i < len(b); i += 8 {
		sum += binary.LittleEndian.Uint64(b[i:])
	}
	return sum
}
