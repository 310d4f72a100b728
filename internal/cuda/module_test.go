//go:build linux && cgo

package cuda

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

func TestModules(t *testing.T) {
	r := newRig(t, openFake(t), 0)
	d := r.d
	for _, tt := range []struct {
		name string
		ptx  string
		kind error
		says []string
	}{
		{"empty", "", gpu.ErrInvalidPTX, []string{"no .version"}},
		{"not PTX", "\x7fELF\x02\x01", gpu.ErrInvalidPTX, []string{"line 1"}},
		{"binary", ".version 7.0\n.target sm_70\n\x00\x01", gpu.ErrInvalidPTX, []string{"zero byte at offset 27"}},
		{"compile error", ".version 7.0\n.target sm_70\n.address_size 64\n\n  mov.BAD r1, r2;\n", gpu.ErrInvalidPTX,
			[]string{"x.ptx:5 in `mov.BAD r1, r2;`", "Parsing error near 'BAD'", "CUDA_ERROR_INVALID_PTX"}},
		{"newer than the driver", ".version 9.0\n.target sm_70\n", gpu.ErrDriverTooOld, []string{"PTX 9.0", "CUDA 13.0", "this one is for CUDA 12.8"}},
		{"newer than the table", ".version 15.0\n.target sm_70\n// ANSWER 222\n", gpu.ErrDriverTooOld, []string{"PTX 15.0 needs a newer driver", "this one is for CUDA 12.8"}},
		{"too new by the log", ".version 98.0\n.target sm_70\n// ANSWER 218\n", gpu.ErrDriverTooOld, []string{"PTX 98.0 needs a newer driver"}},
		{"newer than the device", ".version 7.0\n.target sm_100a\n", gpu.ErrInvalidPTX, []string{"sm_100a", "is sm_90"}},
		{"no compiler", ".version 7.0\n.target sm_70\n// ANSWER 221\n", gpu.ErrNotSupported, []string{"libnvidia-ptxjitcompiler"}},
		{"no memory", ".version 7.0\n.target sm_70\n// ANSWER 2\n", gpu.ErrOutOfMemory, []string{"x.ptx"}},
		{"no log", ".version 7.0\n.target sm_70\n// ANSWER 218\n", gpu.ErrInvalidPTX, []string{"x.ptx: the driver's compiler left no log"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := d.ModuleLoad(0, "x.ptx", []byte(tt.ptx))
			require.ErrorIs(t, err, tt.kind)
			for _, s := range tt.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
	ending, err := d.ModuleLoad(0, "zero.ptx", append([]byte(fakePTX), 0))
	r.NoError(err, "text that ends in a zero byte already")
	r.NoError(d.ModuleUnload(0, ending))
	for _, entry := range []string{"", "nop", "noop\x00"} {
		_, err = d.ModuleFunction(0, r.m, entry)
		r.ErrorIs(err, gpu.ErrNotFound)
		r.ErrorContains(err, "fake.ptx")
	}
	again, err := d.ModuleFunction(0, r.m, "noop")
	r.NoError(err)
	r.Equal(r.fn["noop"], again)
	info, err := d.FunctionInfo(0, r.fn["noop"])
	r.NoError(err)
	r.Equal(gpu.FunctionInfo{MaxThreads: 512, Registers: 40, StaticShared: 1024, LocalBytes: 8}, info)
	r.NotZero(r.stats()[statFuncLoad], "lazily loaded kernels must be finished here")
}

func TestLaunch(t *testing.T) {
	r := newRig(t, openFake(t), 0)
	d := r.d
	shape := func(g, b gpu.Dim3, shared uint32) *gpu.LaunchConfig {
		return &gpu.LaunchConfig{Grid: g, Block: b, Shared: shared}
	}
	unit := gpu.Dim3{X: 1, Y: 1, Z: 1}
	for name, tt := range map[string]struct {
		cfg  *gpu.LaunchConfig
		args int
		says string
	}{
		"no shape":        {nil, 24, "no launch configuration"},
		"zero grid":       {shape(gpu.Dim3{X: 1, Y: 0, Z: 1}, unit, 0), 24, "a component is zero"},
		"zero block":      {shape(unit, gpu.Dim3{X: 1, Y: 1}, 0), 24, "a component is zero"},
		"wide block":      {shape(unit, gpu.Dim3{X: 513, Y: 1, Z: 1}, 0), 24, "513 threads; this kernel can have 512"},
		"block wraps":     {shape(unit, gpu.Dim3{X: 1 << 16, Y: 1 << 16, Z: 1}, 0), 24, "threads"},
		"deep block":      {shape(unit, gpu.Dim3{X: 1, Y: 1, Z: 65}, 0), 24, "threads"},
		"wide grid":       {shape(gpu.Dim3{X: 1 << 31, Y: 1, Z: 1}, unit, 0), 24, "beyond"},
		"tall grid":       {shape(gpu.Dim3{X: 1, Y: 65536, Z: 1}, unit, 0), 24, "beyond"},
		"too much shared": {shape(unit, unit, 232448), 24, "at most 231424"},
		"short arguments": {shape(unit, unit, 0), 16, "16 bytes of arguments; its parameters take 24"},
		"long arguments":  {shape(unit, unit, 0), 32, "parameters take 24"},
	} {
		err := d.Launch(0, r.s, r.fn["noop"], tt.cfg, make([]byte, tt.args))
		r.ErrorIs(err, gpu.ErrInvalidValue, name)
		r.ErrorContains(err, tt.says, name)
	}
	before := r.stats()
	r.NoError(d.Launch(0, r.s, r.fn["noop"], shape(gpu.Dim3{X: 7, Y: 3, Z: 2}, gpu.Dim3{X: 8, Y: 8, Z: 8}, 0), make([]byte, 24)))
	r.NoError(d.Launch(0, r.s, r.fn["bare"], shape(unit, unit, 231424), nil), "the most that fits")
	r.NoError(d.Launch(0, r.s, r.fn["bare"], shape(unit, unit, 200000), []byte{}))
	after := r.stats()
	r.Equal(uint64(4), after[statLaunch]-before[statLaunch], "three, and the one that reads the counters")
	r.Equal(uint64(1), after[statDynamic]-before[statDynamic], "the limit is raised once")
	r.Zero(after[statWrongCtx])

	n, err := d.MaxActiveBlocks(0, r.fn["noop"], 128, 0)
	r.NoError(err)
	r.Equal(16, n)
	n, err = d.MaxActiveBlocks(0, r.fn["noop"], 128, 100_000)
	r.NoError(err)
	r.Equal(2, n)
	for _, threads := range []int{-1, 0, 513} {
		_, err = d.MaxActiveBlocks(0, r.fn["noop"], threads, 0)
		r.ErrorIs(err, gpu.ErrInvalidValue)
	}
	_, err = d.MaxActiveBlocks(0, r.fn["noop"], 32, 300_000)
	r.ErrorIs(err, gpu.ErrInvalidValue)
}

// TestDependentLaunch sees the attribute passed where the device has it, and a plain launch where not.
func TestDependentLaunch(t *testing.T) {
	for sm, want := range map[string]uint64{"-DFAKE_SM=90": 1, "-DFAKE_SM=100": 1, "-DFAKE_SM=89": 0} {
		r := newRig(t, openFake(t, sm), 0)
		cfg := one
		cfg.Dependent = true
		before := r.stats()
		r.NoError(r.d.Launch(0, r.s, r.fn["noop"], &cfg, make([]byte, 24)))
		after := r.stats()
		r.Equal(want, after[statLaunchEx]-before[statLaunchEx], sm)
		r.Equal(want, after[statPDL]-before[statPDL], sm)
		r.Equal(uint64(2), after[statLaunch]-before[statLaunch], sm)
	}
}

// TestHotPathAllocations holds the calls of a steady loop to no Go allocation.
func TestHotPathAllocations(t *testing.T) {
	r := newRig(t, openFake(t), 0)
	d := r.d
	p, err := d.MemAlloc(0, 4096)
	r.NoError(err)
	m, err := d.HostAlloc(64)
	r.NoError(err)
	e, err := d.EventCreate(0, false)
	r.NoError(err)
	r.NoError(d.BeginCapture(0, r.s))
	r.NoError(r.launch("bare", nil))
	g, err := d.EndCapture(0, r.s)
	r.NoError(err)
	x, err := d.GraphInstantiate(0, g)
	r.NoError(err)
	var drv gpu.Driver = d // as callers see it
	args, buf := make([]byte, 24), make([]byte, 512)
	for name, call := range map[string]func() error{
		"Launch":      func() error { return drv.Launch(0, r.s, r.fn["noop"], &one, args) },
		"GraphLaunch": func() error { return drv.GraphLaunch(0, x, r.s) },
		"Copy":        func() error { return drv.Copy(0, r.s, p, p+2048, 1024) },
		"CopyIn":      func() error { return drv.CopyIn(0, r.s, p, buf) },
		"CopyOut":     func() error { return drv.CopyOut(0, r.s, buf, p) },
		"Memset":      func() error { return drv.Memset(0, r.s, p, 0, 64) },
		"EventRecord": func() error { return drv.EventRecord(0, e, r.s) },
		"StreamWait":  func() error { _, err := drv.StreamWait(0, r.s, time.Second); return err },
		"Capturing":   func() error { _, err := drv.StreamCapturing(0, r.s); return err },
		"EventWait":   func() error { _, err := drv.EventWait(0, e, 0); return err },
		"HostLoad32":  func() error { _, err := drv.HostLoad32(m, 8); return err },
		"PointerInfo": func() error { _, err := drv.PointerInfo(p + 1); return err },
	} {
		r.NoError(call(), name)
		r.Zero(testing.AllocsPerRun(100, func() { _ = call() }), name)
	}
}

func BenchmarkLaunch(b *testing.B) {
	r := newRig(b, openFake(b), 0)
	args := make([]byte, 24)
	var drv gpu.Driver = r.d
	f := r.fn["noop"]
	b.ReportAllocs()
	for b.Loop() {
		if err := drv.Launch(0, r.s, f, &one, args); err != nil {
			b.Fatal(err)
		}
	}
}

// What of a launch is the driver's own: beside it, BenchmarkLaunch of package allreduce, on the same host in the same run, says what is ours.
// The shapes and the size of the arguments are those of a small call there.
func BenchmarkLaunchOnGPU(b *testing.B) {
	d, err := Open()
	if errors.Is(err, gpu.ErrNoDriver) {
		b.Skip(err)
	}
	r := require.New(b)
	r.NoError(err)
	defer func() { r.NoError(d.Close()) }()
	s, err := d.StreamCreate(0)
	r.NoError(err)
	const ptx = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .align 8 .b8 a[464]) { griddepcontrol.wait; ret; }\n"
	m, err := d.ModuleLoad(0, "k.ptx", []byte(ptx))
	r.NoError(err)
	f, err := d.ModuleFunction(0, m, "k")
	r.NoError(err)
	args := make([]byte, 464)
	for name, dependent := range map[string]bool{"ordinary": false, "dependent": true} {
		b.Run(name, func(b *testing.B) {
			cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: 2, Y: 1, Z: 1}, Block: gpu.Dim3{X: 256, Y: 1, Z: 1}, Dependent: dependent}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := d.Launch(0, s, f, &cfg, args); err != nil {
					b.Fatal(err)
				}
				if i%100 == 99 {
					b.StopTimer()
					_, err := d.StreamWait(0, s, 10*time.Second)
					r.NoError(err)
					b.StartTimer()
				}
			}
			_, err := d.StreamWait(0, s, 10*time.Second)
			r.NoError(err)
		})
	}
	r.NoError(d.ModuleUnload(0, m))
	r.NoError(d.StreamDestroy(0, s))
}

func BenchmarkHostLoad32(b *testing.B) {
	d := openFake(b)
	m, err := d.HostAlloc(64)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.HostLoad32(m, 0); err != nil {
			b.Fatal(err)
		}
	}
}
