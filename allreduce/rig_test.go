package allreduce

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags/stress"
	"github.com/fenceline/fenceline/launcher"
)

// Goroutines end: none is left when the tests are over.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	for i := 0; runtime.NumGoroutine() > before && i < 100; i++ {
		time.Sleep(20 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); code == 0 && n > before {
		buf := make([]byte, 1<<20)
		os.Stderr.Write(buf[:runtime.Stack(buf, true)])
		os.Stderr.WriteString("goroutines leaked\n")
		code = 1
	}
	os.Exit(code)
}

// openAny opens GPUs where there are any, otherwise the emulator. Under REQUIRE_GPU=1 it is a GPU or a failure.
func openAny(t testing.TB) *launcher.Runtime {
	t.Helper()
	cfg := launcher.Config{}
	if os.Getenv("REQUIRE_GPU") == "1" {
		cfg.Backend = launcher.CUDA
	}
	return open(t, cfg)
}

func openEmu(t testing.TB, machine string, devices int) *launcher.Runtime {
	t.Helper()
	return open(t, launcher.Config{Backend: launcher.Emu, Machine: machine, Devices: devices, Seed: 7})
}

// open opens a runtime that must have no leaks when the test ends.
func open(t testing.TB, cfg launcher.Config) *launcher.Runtime {
	t.Helper()
	rt, err := launcher.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	return rt
}

func newGroup(t testing.TB, rt *launcher.Runtime, cfg Config) *Group {
	t.Helper()
	cfg.Share = true
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 1 << 18
	}
	g, err := NewGroup(rt, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

// pause keeps a stream of device 0 busy for a time.
func pause(t testing.TB, rt *launcher.Runtime, s *launcher.Stream, d time.Duration) {
	t.Helper()
	pauser(t, rt, d, 0)(s)
}

// pauser loads a kernel that keeps a stream of device 0 busy for a time, and has so many bytes of shared memory: its launch does no more than that.
func pauser(t testing.TB, rt *launcher.Runtime, d time.Duration, shared int) func(*launcher.Stream) {
	t.Helper()
	m, err := rt.Load(0, "stress.ptx", stress.Kernels(rt.Devices()[0].SM()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	k, err := m.Kernel(stress.PauseKernel)
	require.NoError(t, err)
	args, err := k.Pack(uint64(d.Nanoseconds()))
	require.NoError(t, err)
	shape := launcher.Linear(1, 1)
	shape.Shared = uint32(shared)
	return func(s *launcher.Stream) {
		t.Helper()
		require.NoError(t, k.Launch(s, shape, args))
	}
}

// refresh is REFRESH of kernels/fenceline.cuh.
const refresh = 1 << 20

const (
	guard   = 256 // bytes kept around every buffer
	poison  = 0xa5
	waiting = 60 * time.Second
)

// arena is one rank's memory: an input and an output, with guards around both.
type arena struct {
	in, out launcher.Buffer
}

// rig runs verified calls on a group.
type rig struct {
	t      testing.TB
	g      *Group
	rng    *rand.Rand
	bytes  uint64
	arenas []arena
	reg    *Registration
}

func newRig(t testing.TB, g *Group, maxBytes uint64) *rig {
	t.Helper()
	r := &rig{t: t, g: g, rng: rand.New(rand.NewPCG(uint64(g.World()), maxBytes)), bytes: maxBytes + 2*guard}
	for p := range g.World() {
		var a arena
		for _, b := range []*launcher.Buffer{&a.in, &a.out} {
			m, err := g.rt.Alloc(g.Rank(p).Device(), r.bytes)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, m.Free()) })
			*b = m
		}
		r.arenas = append(r.arenas, a)
	}
	return r
}

func (r *rig) register() {
	var bufs []launcher.Buffer
	for _, a := range r.arenas {
		bufs = append(bufs, a.in)
	}
	reg, err := r.g.Register(bufs)
	require.NoError(r.t, err)
	r.reg = reg
}

// payload is n random elements: mostly numbers of like size, so that rounding matters, and some of every odd kind.
func payload(rng *rand.Rand, dt DType, n uint64) []byte {
	b := make([]byte, n*dt.Size())
	for i := range n {
		at := b[i*dt.Size():]
		switch rng.IntN(16) {
		case 0: // any bits: NaN, infinity, subnormal, huge
			for k := range dt.Size() {
				at[k] = byte(rng.Uint32())
			}
		case 1:
			dt.Store(at, []float32{0, -1 / float32(1<<30) / float32(1<<30), 65504, -65504, 3e38, -3e38}[rng.IntN(6)])
		case 2:
			at[dt.Size()-1] = 0x80 // -0.0
		default:
			dt.Store(at, float32(rng.NormFloat64()))
		}
	}
	return b
}

// shape of one verified call.
type trial struct {
	count         uint64
	dt            DType
	inOff, outOff uint64 // elements from where the buffers are 256-byte aligned
	skew          uint64 // more for each rank, modulo 8
	inPlace       bool
}

func (c trial) size() uint64 { return c.count * c.dt.Size() }

// views cuts the buffers of a trial from the arenas.
func (r *rig) views(c trial) (in, out []launcher.Buffer, inAt, outAt []uint64) {
	for p, a := range r.arenas {
		skew := uint64(p) * c.skew % 8
		i := guard + (c.inOff+skew)*c.dt.Size()
		o := guard + (c.outOff+skew)*c.dt.Size()
		bi, err := a.in.Slice(i, c.size())
		require.NoError(r.t, err)
		bo, err := a.out.Slice(o, c.size())
		require.NoError(r.t, err)
		if c.inPlace {
			bo, o = bi, i
		}
		in, out, inAt, outAt = append(in, bi), append(out, bo), append(inAt, i), append(outAt, o)
	}
	return
}

func (r *rig) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), waiting)
}

// fill gives every rank a fresh payload and a poisoned output, and returns the expected sum.
func (r *rig) fill(c trial) (inputs [][]byte, want []byte) { return r.fillWith(c, payload) }

func (r *rig) fillWith(c trial, payload func(rng *rand.Rand, dt DType, n uint64) []byte) (inputs [][]byte, want []byte) {
	ctx, cancel := r.ctx()
	defer cancel()
	_, _, inAt, _ := r.views(c)
	for p, a := range r.arenas {
		s := r.g.Rank(p).Stream()
		host := bytes.Repeat([]byte{poison}, int(r.bytes))
		require.NoError(r.t, s.CopyIn(ctx, a.out, host))
		data := payload(r.rng, c.dt, c.count)
		copy(host[inAt[p]:], data)
		require.NoError(r.t, s.CopyIn(ctx, a.in, host))
		inputs = append(inputs, data)
	}
	want = make([]byte, c.size())
	require.NoError(r.t, Reference(c.dt, want, inputs...))
	return inputs, want
}

// verify reads everything back: the sums, the inputs, and the guards.
// It returns rank 0's output as it was read.
func (r *rig) verify(c trial, inputs [][]byte, want []byte) (first []byte) {
	ctx, cancel := r.ctx()
	defer cancel()
	_, _, inAt, outAt := r.views(c)
	for p, a := range r.arenas {
		expectIn := bytes.Repeat([]byte{poison}, int(r.bytes))
		expectOut := bytes.Clone(expectIn)
		copy(expectIn[inAt[p]:], inputs[p])
		if c.inPlace {
			copy(expectIn[inAt[p]:], want)
		} else {
			copy(expectOut[outAt[p]:], want)
		}
		got := make([]byte, r.bytes)
		for what, b := range map[string]launcher.Buffer{"in": a.in, "out": a.out} {
			require.NoError(r.t, r.g.Rank(p).Stream().CopyOut(ctx, got, b))
			expect := expectIn
			if what == "out" {
				expect = expectOut
			}
			if i := firstDifference(got, expect); i >= 0 {
				plan, _ := r.g.Plan(c.count, c.dt)
				r.t.Fatalf("%+v %v: rank %d %s differs at byte %d (data from %d to %d): got % x, want % x", c, plan.Algorithm, p, what, i,
					outAt[p], outAt[p]+c.size(), got[i:min(i+16, len(got))], expect[i:min(i+16, len(got))])
			}
			if at := outAt[p]; p == 0 && (what == "out") != c.inPlace {
				first = bytes.Clone(got[at : at+c.size()])
			}
		}
	}
	return first
}

// countWrong is the number of output elements, over all ranks, whose bits are not the expected ones.
func (r *rig) countWrong(c trial, want []byte) (wrong int) {
	ctx, cancel := r.ctx()
	defer cancel()
	_, out, _, _ := r.views(c)
	got := make([]byte, c.size())
	for p := range r.arenas {
		require.NoError(r.t, r.g.Rank(p).Stream().CopyOut(ctx, got, out[p]))
		for i := uint64(0); i < c.size(); i += c.dt.Size() {
			if !bytes.Equal(got[i:i+c.dt.Size()], want[i:i+c.dt.Size()]) {
				wrong++
			}
		}
	}
	return wrong
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// run makes one verified call through Group.AllReduce, and returns rank 0's output.
func (r *rig) run(c trial) []byte {
	r.t.Helper()
	inputs, want := r.fill(c)
	in, out, _, _ := r.views(c)
	require.NoError(r.t, r.g.AllReduce(in, out, c.count, c.dt), "%+v", c)
	r.sync()
	return r.verify(c, inputs, want)
}

// runEach makes one verified call from a goroutine per rank.
func (r *rig) runEach(c trial) {
	r.t.Helper()
	inputs, want := r.fill(c)
	in, out, _, _ := r.views(c)
	ctx, cancel := r.ctx()
	defer cancel()
	require.NoError(r.t, r.g.Each(ctx, func(ctx context.Context, k *Rank) error {
		return errors.Join(k.AllReduce(in[k.ID()], out[k.ID()], c.count, c.dt), k.Sync(ctx))
	}), "%+v", c)
	r.verify(c, inputs, want)
}

func (r *rig) sync() {
	r.t.Helper()
	ctx, cancel := r.ctx()
	defer cancel()
	require.NoError(r.t, r.g.Sync(ctx))
}

// words reads device memory as 32-bit words.
func (r *rig) words(rank int, b launcher.Buffer) []uint32 {
	ctx, cancel := r.ctx()
	defer cancel()
	raw := make([]byte, b.Size())
	require.NoError(r.t, r.g.Rank(rank).Stream().CopyOut(ctx, raw, b))
	w := make([]uint32, len(raw)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return w
}
