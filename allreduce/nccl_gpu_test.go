package allreduce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
)

// openNCCL opens GPUs with NCCL, or skips with the reason; under REQUIRE_NCCL=1 it fails. NCCL_LIBRARY names the library.
func openNCCL(t *testing.T) (*launcher.Runtime, Config) {
	t.Helper()
	lack := t.Skipf
	if os.Getenv("REQUIRE_NCCL") == "1" {
		lack = t.Fatalf
	}
	rt := openAny(t)
	library := os.Getenv("NCCL_LIBRARY")
	switch n := len(rt.Devices()); {
	case rt.Info().Emulated:
		lack("NCCL needs GPUs, and these devices are emulated")
	case n < 2:
		lack("NCCL takes one rank for each GPU, and there is %d", n)
	}
	t.Setenv("NCCL_NVLS_ENABLE", "0") // no multicast objects, whatever the environment says
	if err := CheckNCCL(library); err != nil {
		lack("no NCCL: %v", err)
	}
	return rt, Config{Algorithm: NCCL, NCCLLibrary: library, Timeout: 5 * time.Second}
}

// The real library, on as many GPUs as there are.
func TestNCCLOnGPUs(t *testing.T) {
	rt, cfg := openNCCL(t)
	t.Run("calls", func(t *testing.T) {
		g := newGroup(t, rt, cfg)
		r := newRig(t, g, 8<<20)
		for _, dt := range DTypes() {
			for _, c := range []trial{{count: 1}, {count: 7, inOff: 1, outOff: 3}, {count: 4096}, {count: 1031, inOff: 2, outOff: 2, skew: 3},
				{count: 100_000, inPlace: true}, {count: 2_000_000}, {count: 2_000_000, inOff: 1, outOff: 5}} {
				c.dt = dt
				r.wholeCalls(c)
			}
		}
	})
	t.Run("one goroutine makes the ranks' calls in turn", func(t *testing.T) {
		g := newGroup(t, rt, cfg)
		r := newRig(t, g, 1<<20)
		c := trial{count: 5000, dt: BF16}
		for range 20 {
			inputs, want := r.wholeInputs(c)
			in, out, _, _ := r.views(c)
			for p := range g.World() {
				require.NoError(t, g.Rank(p).AllReduce(in[p], out[p], c.count, c.dt))
			}
			r.sync()
			r.verify(c, inputs, want)
		}
	})
	t.Run("rounding", func(t *testing.T) { onGPUsRounding(t, rt, cfg) })
	t.Run("graph", func(t *testing.T) {
		for _, each := range []bool{false, true} {
			g := newGroup(t, rt, cfg)
			r := newRig(t, g, 4<<20)
			for _, c := range []trial{{count: 1000, dt: F16}, {count: 1_000_000, dt: F32}} {
				in, out, _, _ := r.views(c)
				gr, err := g.Capture(func() error {
					if each {
						return g.Each(t.Context(), func(_ context.Context, k *Rank) error { return k.AllReduce(in[k.ID()], out[k.ID()], c.count, c.dt) })
					}
					return g.AllReduce(in, out, c.count, c.dt)
				})
				require.NoError(t, err)
				for range 5 {
					inputs, want := r.wholeInputs(c)
					require.NoError(t, gr.Launch())
					r.sync()
					r.verify(c, inputs, want)
					inputs, want = r.wholeInputs(c)
					require.NoError(t, g.AllReduce(in, out, c.count, c.dt))
					r.sync()
					r.verify(c, inputs, want)
				}
			} // the group closes the graphs
		}
	})
	t.Run("beside direct kernels", func(t *testing.T) { onGPUsMixed(t, rt, cfg) })
	t.Run("absent", func(t *testing.T) {
		cfg := cfg
		cfg.Timeout = time.Second
		g, err := NewGroup(rt, cfg)
		require.NoError(t, err)
		r := newRig(t, g, 1<<20)
		in, out, _, _ := r.views(trial{count: 1000})
		start := time.Now()
		call := g.Rank(0).AllReduce(in[0], out[0], 1000, F32)
		err = errors.Join(call, g.Sync(t.Context()))
		require.ErrorIs(t, err, ErrAbsent)
		require.Less(t, time.Since(start), 10*time.Second)
		t.Logf("after %v: %v", time.Since(start), err)
		require.ErrorIs(t, g.AllReduce(in, out, 1000, F32), ErrFailed)
		require.NoError(t, g.Close())
	})
	t.Run("again after that", func(t *testing.T) {
		for range 3 {
			g, err := NewGroup(rt, cfg)
			require.NoError(t, err)
			c := trial{count: 3000, dt: F32}
			r := newRig(t, g, 1<<20)
			inputs, want := r.wholeInputs(c)
			in, out, _, _ := r.views(c)
			require.NoError(t, g.AllReduce(in, out, c.count, c.dt))
			r.sync()
			r.verify(c, inputs, want)
			start := time.Now()
			require.NoError(t, g.Close())
			t.Logf("closed in %v", time.Since(start))
		}
	})
}

// onGPUsRounding says how far NCCL's sums are from the reference, which is never more than a bound from the number of ranks: each of the n-1
// additions is rounded once, to the element type at worst.
func onGPUsRounding(t *testing.T, rt *launcher.Runtime, cfg Config) {
	g := newGroup(t, rt, cfg)
	const count = 100_000
	r := newRig(t, g, count*4+4096)
	for dt, eps := range map[DType]float64{F32: 0x1p-24, F16: 0x1p-11, BF16: 0x1p-8} {
		c := trial{count: count, dt: dt}
		ctx, cancel := r.ctx()
		in, out, _, _ := r.views(c)
		exact, size := make([]float64, count), make([]float64, count)
		var inputs [][]byte
		for p := range g.World() {
			data := make([]byte, c.size())
			for i := range exact {
				at := data[uint64(i)*dt.Size():]
				dt.Store(at, float32(r.rng.NormFloat64()))
				exact[i] += float64(dt.Load(at))
				size[i] += math.Abs(float64(dt.Load(at)))
			}
			require.NoError(t, g.Rank(p).Stream().CopyIn(ctx, in[p], data))
			inputs = append(inputs, data)
		}
		require.NoError(t, g.AllReduce(in, out, count, dt))
		r.sync()
		want, first := make([]byte, c.size()), make([]byte, c.size())
		require.NoError(t, Reference(dt, want, inputs...))
		other := 0
		for p := range g.World() {
			got := make([]byte, c.size())
			require.NoError(t, g.Rank(p).Stream().CopyOut(ctx, got, out[p]))
			if p == 0 {
				copy(first, got)
			}
			require.True(t, bytes.Equal(first, got), "all ranks have the same bits")
			for i := range exact {
				at := uint64(i) * dt.Size()
				v := float64(dt.Load(got[at:]))
				require.LessOrEqual(t, math.Abs(v-exact[i]), float64(g.World())*eps*size[i], "rank %d, element %d of %v", p, i, dt)
				if p == 0 && !bytes.Equal(got[at:at+dt.Size()], want[at:at+dt.Size()]) {
					other++
				}
			}
		}
		cancel()
		t.Logf("%v on %d ranks: %d of %d elements have other bits than the reference", dt, g.World(), other, count)
	}
}

// onGPUsMixed lets direct kernels and NCCL take turns in one group, by hand and in a graph.
func onGPUsMixed(t *testing.T, rt *launcher.Runtime, cfg Config) {
	cfg.Algorithm, cfg.AllowNCCL = Auto, true
	cfg.Table = append(Table{{From: 64 << 10, Algorithm: NCCL}}, turns()...)
	g := newGroup(t, rt, cfg)
	if g.policy.last != Auto {
		t.Skipf("these GPUs do without direct kernels: %s", g.policy.rung)
	}
	var trials []trial
	for i := range uint64(24) {
		trials = append(trials, trial{count: 1 + i, dt: F32}, trial{count: 32<<10 + i, dt: F16})
	}
	r := newRig(t, g, 256<<10)
	for _, c := range trials {
		inputs, want := r.wholeInputs(c)
		in, out, _, _ := r.views(c)
		require.NoError(t, g.AllReduce(in, out, c.count, c.dt))
		r.sync()
		r.verify(c, inputs, want)
	}
	rigs := []*rig{newRig(t, g, 256<<10), newRig(t, g, 256<<10), newRig(t, g, 256<<10)}
	some := []trial{{count: 9, dt: F32}, {count: 40_000, dt: F16}, {count: 100, dt: F32}}
	gr, err := g.Capture(func() error {
		for i, c := range some {
			in, out, _, _ := rigs[i].views(c)
			if err := g.AllReduce(in, out, c.count, c.dt); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	for range 10 {
		var inputs [][][]byte
		var want [][]byte
		for i, c := range some {
			in, w := rigs[i].wholeInputs(c)
			inputs, want = append(inputs, in), append(want, w)
		}
		require.NoError(t, gr.Launch())
		r.sync()
		for i, c := range some {
			rigs[i].verify(c, inputs[i], want[i])
		}
	}
	require.NoError(t, gr.Close())
	require.True(t, slices.ContainsFunc(trials, func(c trial) bool { a, _ := g.policy.pick(g.policy.table, c.size(), c.dt, true); return a == NCCL }), fmt.Sprint(g.policy.refused[NCCL]))
}
