package gputest

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"

	"github.com/fenceline/fenceline/internal/gpu"
)

func testModules(c *ctx) {
	for dev := range c.d.DeviceCount() {
		m, again := c.kernels(dev), c.kernels(dev)
		c.NotEqual(m, again)
		c.NotEqual(c.function(dev, m, "fill"), c.function(dev, m, "copyadd"))
		for _, name := range []string{"", "Fill", "fill ", "absent"} {
			_, err := c.d.ModuleFunction(dev, m, name)
			c.is(err, gpu.ErrNotFound, "%q", name)
		}
	}
}

// testModuleVariables: variables are initialised at load, belong to one loaded module, and last across launches.
func testModuleVariables(c *ctx) {
	for dev := range c.d.DeviceCount() {
		s := c.stream(dev)
		out := c.alloc(dev, 12)
		first, second := c.kernel(dev, "variables"), c.kernel(dev, "variables")
		for round := range uint32(3) {
			c.launch(dev, s, first, 1, 1, out)
			c.Equal([]uint32{6 + round, 0, 17}, c.getWords(dev, s, out, 3))
		}
		c.launch(dev, s, second, 1, 1, out)
		c.Equal([]uint32{6, 0, 17}, c.getWords(dev, s, out, 3))
	}
}

func testModuleRefusals(c *ctx) {
	const good = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f() {\n\tret;\n}\n"
	c.module(0, "good.ptx", []byte(good))
	for name, test := range map[string]struct {
		text string
		kind error
	}{
		"empty":              {"", gpu.ErrInvalidPTX},
		"no PTX at all":      {"hello\n", gpu.ErrInvalidPTX},
		"unknown opcode":     {strings.Replace(good, "ret;", "frobnicate.u32 %r1, %r2;\n\tret;", 1), gpu.ErrInvalidPTX},
		"undeclared":         {strings.Replace(good, "ret;", "mov.u32 %r1, 5;\n\tret;", 1), gpu.ErrInvalidPTX},
		"cut short":          {strings.TrimSuffix(good, "}\n"), gpu.ErrInvalidPTX},
		"target too new":     {strings.Replace(strings.Replace(good, "7.0", "8.7", 1), "sm_70", "sm_120", 1), gpu.ErrInvalidPTX},
		"version too new":    {strings.Replace(good, "7.0", "99.0", 1), gpu.ErrDriverTooOld},
		"version just after": {strings.Replace(good, "7.0", "12.0", 1), gpu.ErrDriverTooOld},
	} {
		m, err := c.d.ModuleLoad(0, "bad.ptx", []byte(test.text))
		if name == "target too new" && err == nil { // on a GPU that new
			c.NoError(c.d.ModuleUnload(0, m))
			continue
		}
		c.is(err, test.kind, name)
	}
	_, err := c.d.ModuleLoad(0, "bad.ptx", []byte(strings.Replace(good, "ret;", "frobnicate;", 1)))
	c.ErrorContains(err, "bad.ptx")
}

// testLaunchArgs: every parameter at its natural alignment, in both directions of padding.
func testLaunchArgs(c *ctx) {
	s := c.stream(0)
	out := c.alloc(0, 64)
	structure := append(fromWords(1, 2), fromWords(0xcafef00d)...)
	c.launch(0, s, c.kernel(0, "mixed"), 1, 1, out, uint8(0xAB), uint16(0xCDEF), uint8(0x12), uint32(0x3456789A), uint8(0xFE),
		float64(math.Pi), float32(-1.5), structure, uint64(0xFEDCBA9876543210))
	got := c.get(0, s, out, 64)
	want := []uint64{0xAB, 0xCDEF, 0x12, 0x3456789A, math.Float64bits(math.Pi), uint64(math.Float32bits(-1.5)), 0xcafef00d, 0xFEDCBA9876543210}
	for i, w := range want {
		c.Equal(w, binary.LittleEndian.Uint64(got[8*i:]), "parameter %d", i)
	}

	// The buffer is the caller's again once Launch has returned, whenever the kernel runs.
	gate := c.host(64)
	fill, poll := c.kernel(0, "fill"), c.kernel(0, "poll")
	cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}}
	c.launch(0, s, poll, 1, 1, gate.Ptr, uint32(1), gate.Ptr+4, patience)
	args := pack(out, uint32(1234), uint32(1))
	c.NoError(c.d.Launch(0, s, fill, &cfg, args))
	clear(args)
	c.NoError(c.d.HostStore32(gate, 0, 1))
	c.Equal([]uint32{1234}, c.getWords(0, s, out, 1))
}

func testLaunchShapes(c *ctx) {
	s := c.stream(0)
	f := c.kernel(0, "shape")
	for _, cfg := range []gpu.LaunchConfig{
		{Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}},
		{Grid: gpu.Dim3{X: 3, Y: 5, Z: 7}, Block: gpu.Dim3{X: 5, Y: 3, Z: 2}},
		{Grid: gpu.Dim3{X: 1, Y: 1, Z: 13}, Block: gpu.Dim3{X: 1, Y: 1, Z: 64}},
		{Grid: gpu.Dim3{X: 1, Y: 17, Z: 1}, Block: gpu.Dim3{X: 33, Y: 1, Z: 1}},
		{Grid: gpu.Dim3{X: 2, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1024, Y: 1, Z: 1}},
		{Grid: gpu.Dim3{X: 5000, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}}, // more than can be resident at once
	} {
		n := int(cfg.Grid.Count() * cfg.Block.Count())
		out := c.alloc(0, uint64(4*n+4))
		c.NoError(c.d.Memset(0, s, out, 0xFF, uint64(4*n+4)))
		c.NoError(c.d.Launch(0, s, f, &cfg, pack(out)))
		c.Equal(append(count(1, n), ^uint32(0)), c.getWords(0, s, out, n+1), "grid %v of blocks %v", cfg.Grid, cfg.Block)
	}
}

func testLaunchShared(c *ctx) {
	s := c.stream(0)
	f := c.kernel(0, "reverse")
	for _, threads := range []int{1, 32, 100, 256} {
		const blocks = 5
		n := threads * blocks
		src, dst := c.alloc(0, uint64(4*n)), c.alloc(0, uint64(4*n))
		in := toWords(pattern(threads, 4*n))
		c.put(0, s, src, fromWords(in...))
		cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: blocks, Y: 1, Z: 1}, Block: gpu.Dim3{X: uint32(threads), Y: 1, Z: 1}, Shared: uint32(4 * threads)}
		c.NoError(c.d.Launch(0, s, f, &cfg, pack(dst, src)))
		want := make([]uint32, n)
		for i := range want {
			first := i / threads * threads
			want[i] = in[first+threads-1-(i-first)] + 1
		}
		c.Equal(want, c.getWords(0, s, dst, n), "%d threads", threads)
	}
}

func testLaunchAtomics(c *ctx) {
	s := c.stream(0)
	p := c.alloc(0, 4)
	f := c.kernel(0, "count")
	c.NoError(c.d.Memset(0, s, p, 0, 4))
	for range 3 {
		c.launch(0, s, f, 37, 96, p)
	}
	c.Equal([]uint32{3 * 37 * 96}, c.getWords(0, s, p, 1))
}

func testLaunchRefusals(c *ctx) {
	s := c.stream(0)
	p := c.alloc(0, 256)
	c.NoError(c.d.Memset(0, s, p, 0x77, 256))
	m := c.kernels(0)
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	args := pack(p)
	for name, test := range map[string]struct {
		entry string
		cfg   *gpu.LaunchConfig
		args  []byte
	}{
		"zero grid":        {"shape", &gpu.LaunchConfig{Grid: gpu.Dim3{X: 1, Y: 0, Z: 1}, Block: one}, args},
		"zero block":       {"shape", &gpu.LaunchConfig{Grid: one, Block: gpu.Dim3{X: 32, Y: 1}}, args},
		"block too large":  {"shape", &gpu.LaunchConfig{Grid: one, Block: gpu.Dim3{X: 32, Y: 33, Z: 1}}, args},
		"block.x":          {"shape", &gpu.LaunchConfig{Grid: one, Block: gpu.Dim3{X: 1025, Y: 1, Z: 1}}, args},
		"block.z":          {"shape", &gpu.LaunchConfig{Grid: one, Block: gpu.Dim3{X: 1, Y: 1, Z: 65}}, args},
		"above maxntid":    {"small", &gpu.LaunchConfig{Grid: one, Block: gpu.Dim3{X: 65, Y: 1, Z: 1}}, args},
		"grid.y":           {"shape", &gpu.LaunchConfig{Grid: gpu.Dim3{X: 1, Y: 65536, Z: 1}, Block: one}, args},
		"too much shared":  {"shape", &gpu.LaunchConfig{Grid: one, Block: one, Shared: 1 << 20}, args},
		"no arguments":     {"shape", &gpu.LaunchConfig{Grid: one, Block: one}, nil},
		"short arguments":  {"shape", &gpu.LaunchConfig{Grid: one, Block: one}, args[:7]},
		"long arguments":   {"shape", &gpu.LaunchConfig{Grid: one, Block: one}, append(args, 0)},
		"no configuration": {"shape", nil, args},
	} {
		c.is(c.d.Launch(0, s, c.function(0, m, test.entry), test.cfg, test.args), gpu.ErrInvalidValue, name)
	}
	if c.d.DeviceCount() > 1 {
		other := c.kernel(1, "shape")
		c.is(c.d.Launch(0, s, other, &gpu.LaunchConfig{Grid: one, Block: one}, args), gpu.ErrInvalidHandle, "function of another device")
	}
	c.True(bytes.Equal(bytes.Repeat([]byte{0x77}, 256), c.get(0, s, p, 256)), "a refused launch ran")
	c.launch(0, s, c.function(0, m, "small"), 1, 64, p)
	c.Equal([]uint32{64}, c.getWords(0, s, p, 1))
	c.launch(0, s, c.function(0, m, "nothing"), 1, 1)
	c.wait(0, s)

	// PDL may be ignored, but not refused.
	dependent := gpu.LaunchConfig{Grid: one, Block: one, Dependent: true}
	c.NoError(c.d.Launch(0, s, c.function(0, m, "shape"), &dependent, args))
	c.Equal([]uint32{1}, c.getWords(0, s, p, 1))
}

func testFunctionInfo(c *ctx) {
	m := c.kernels(0)
	info, err := c.d.FunctionInfo(0, c.function(0, m, "reverse"))
	c.NoError(err)
	c.Equal(1024, info.StaticShared)
	c.GreaterOrEqual(info.MaxThreads, 256)
	c.Zero(info.LocalBytes)
	info, err = c.d.FunctionInfo(0, c.function(0, m, "small"))
	c.NoError(err)
	c.Equal(64, info.MaxThreads)
	c.Zero(info.StaticShared)
}

func testMaxActiveBlocks(c *ctx) {
	v, err := c.d.DeviceInfo(0)
	c.NoError(err)
	f := c.kernel(0, "shape")
	last := math.MaxInt
	for _, threads := range []int{1, 32, 128, 512, 1024} {
		n, err := c.d.MaxActiveBlocks(0, f, threads, 0)
		c.NoError(err)
		c.Positive(n)
		c.LessOrEqual(n, last)
		c.LessOrEqual(n*threads, v.MaxThreadsPerSM)
		last = n
	}
	last = math.MaxInt
	for _, shared := range []uint32{0, 1 << 10, 16 << 10, 48 << 10} {
		n, err := c.d.MaxActiveBlocks(0, f, 32, shared)
		c.NoError(err)
		c.Positive(n)
		c.LessOrEqual(n, last)
		last = n
	}
	plenty, err := c.d.MaxActiveBlocks(0, f, 32, 0)
	c.NoError(err)
	c.Less(last, plenty)
	for _, threads := range []int{-1, 0, 1025} {
		_, err := c.d.MaxActiveBlocks(0, f, threads, 0)
		c.is(err, gpu.ErrInvalidValue, "%d threads", threads)
	}
}
