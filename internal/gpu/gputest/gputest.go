// Package gputest is the conformance suite of the driver seam. Both drivers run it: what it checks is
// the contract in package gpu, and nothing that only one of them promises.
//
// It passes on one device, and checks more on two and more. Nothing in it waits without a bound, and no
// kernel of it runs without one.
package gputest

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

//go:embed kernels.ptx
var kernelsPTX []byte

// patience is how long any one wait of the suite may take.
const patience = 30 * time.Second

// tests is the suite. Each runs alone, on a driver that others have used, and must leave nothing behind.
var tests = []struct {
	name string
	run  func(c *ctx)
}{
	{"info", testInfo},
	{"peer access", testPeerAccess},
	{"peer pointers", testPeerPointers},
	{"memory", testMemory},
	{"pointer info", testPointerInfo},
	{"host memory", testHostMemory},
	{"copy sizes", testCopySizes},
	{"copy kinds", testCopyKinds},
	{"copy peer", testCopyPeer},
	{"copy is asynchronous", testCopyAsync},
	{"copy refusals", testCopyRefusals},
	{"memset", testMemset},
	{"stream order", testStreamOrder},
	{"stream wait", testStreamWait},
	{"streams overlap", testStreamsOverlap},
	{"events", testEvents},
	{"events across devices", testEventsAcrossDevices},
	{"event rerecorded", testEventRerecorded},
	{"event elapsed", testEventElapsed},
	{"cross-stream order", testCrossStream},
	{"destroy with work", testDestroyWithWork},
	{"random order", testRandomOrder},
	{"graph replay", testGraphReplay},
	{"graph fork and join", testGraphForkJoin},
	{"graph across devices", testGraphAcrossDevices},
	{"graph parameters", testGraphParameters},
	{"graph order", testGraphOrder},
	{"graph empty", testGraphEmpty},
	{"capturing", testCapturing},
	{"capture refusals", testCaptureRefusals},
	{"capture not joined", testCaptureUnjoined},
	{"modules", testModules},
	{"module variables", testModuleVariables},
	{"module refusals", testModuleRefusals},
	{"launch arguments", testLaunchArgs},
	{"launch shapes", testLaunchShapes},
	{"launch shared memory", testLaunchShared},
	{"launch atomics", testLaunchAtomics},
	{"launch refusals", testLaunchRefusals},
	{"function info", testFunctionInfo},
	{"max active blocks", testMaxActiveBlocks},
	{"host polls kernel", testHostPollsKernel},
	{"kernel polls host", testKernelPollsHost},
	{"kernel polls kernel", testKernelPollsKernel},
	{"bad devices", testBadDevices},
	{"bad handles", testBadHandles},
	{"goroutines", testGoroutines},
}

// Run runs the suite on the driver that open makes. It closes what it opens. open may skip the test.
//
// The fault tests make a device unusable. An emulated driver is then just opened anew; a real one
// cannot be, so those run in a child process: this test binary again, told to run the calling test
// alone.
func Run(t *testing.T, open func(t *testing.T) gpu.Driver) {
	if name := os.Getenv(childEnv); name != "" {
		runChild(t, open, name)
		return
	}
	d := open(t)
	info := d.Info()
	t.Logf("%s: %s, %d devices", info.Name, info.Detail, d.DeviceCount())
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { runOne(t, d, test.run) })
	}
	for _, f := range faults {
		t.Run("fault "+f.name, func(t *testing.T) {
			if f.skip != nil {
				if why := f.skip(d); why != "" {
					t.Skip(why)
				}
			}
			if info.Emulated {
				runFault(t, open(t), f)
				return
			}
			inChild(t, f.name)
		})
	}
	t.Run("close", func(t *testing.T) { testClose(t, open(t)) })
	require.Zero(t, d.Live())
	require.NoError(t, d.Close())
}

func runOne(t *testing.T, d gpu.Driver, run func(c *ctx)) {
	// Runs after the cleanups that the test itself registers.
	t.Cleanup(func() {
		if !t.Failed() {
			require.Zero(t, d.Live(), "the test left something behind")
		}
	})
	run(&ctx{Assertions: require.New(t), t: t, d: d})
}

// ctx is what one test works with. What it makes is freed when the test ends.
type ctx struct {
	*require.Assertions
	t *testing.T
	d gpu.Driver
}

// pairs calls f for each ordered pair of devices that has P2P access; it skips the test when none has.
func (c *ctx) pairs(f func(dev, peer int)) {
	n, found := c.d.DeviceCount(), false
	for dev := range n {
		for peer := range n {
			if dev == peer {
				continue
			}
			info, err := c.d.P2P(dev, peer)
			c.NoError(err)
			if info.Access {
				found = true
				f(dev, peer)
			}
		}
	}
	if !found {
		c.t.Skipf("none of the %d devices can access another", n)
	}
}

// second skips the test unless there is a second device, which it returns.
func (c *ctx) second() int {
	if n := c.d.DeviceCount(); n < 2 {
		c.t.Skipf("%d device, needs 2", n)
	}
	return 1
}

func (c *ctx) alloc(dev int, size uint64) gpu.Ptr {
	p, err := c.d.MemAlloc(dev, size)
	c.NoError(err)
	c.NotZero(p)
	c.t.Cleanup(func() { c.NoError(c.d.MemFree(dev, p)) })
	return p
}

func (c *ctx) host(size uint64) gpu.HostMem {
	m, err := c.d.HostAlloc(size)
	c.NoError(err)
	c.NotZero(m.Ptr)
	c.Len(m.Bytes, int(size))
	clear(m.Bytes)
	c.t.Cleanup(func() { c.NoError(c.d.HostFree(m)) })
	return m
}

func (c *ctx) stream(dev int) gpu.Stream {
	s, err := c.d.StreamCreate(dev)
	c.NoError(err)
	c.NotZero(s)
	c.t.Cleanup(func() {
		// A failed test may leave work behind; memory must not be freed under it.
		_, _ = c.d.StreamWait(dev, s, patience)
		c.NoError(c.d.StreamDestroy(dev, s))
	})
	return s
}

func (c *ctx) event(dev int, timing bool) gpu.Event {
	e, err := c.d.EventCreate(dev, timing)
	c.NoError(err)
	c.NotZero(e)
	c.t.Cleanup(func() { c.NoError(c.d.EventDestroy(dev, e)) })
	return e
}

func (c *ctx) module(dev int, name string, text []byte) gpu.Module {
	m, err := c.d.ModuleLoad(dev, name, text)
	c.NoError(err)
	c.NotZero(m)
	c.t.Cleanup(func() { c.NoError(c.d.ModuleUnload(dev, m)) })
	return m
}

func (c *ctx) kernels(dev int) gpu.Module { return c.module(dev, "kernels.ptx", kernelsPTX) }

func (c *ctx) function(dev int, m gpu.Module, entry string) gpu.Function {
	f, err := c.d.ModuleFunction(dev, m, entry)
	c.NoError(err)
	c.NotZero(f)
	return f
}

// kernel is an entry of the suite's own PTX, loaded on a device.
func (c *ctx) kernel(dev int, entry string) gpu.Function {
	return c.function(dev, c.kernels(dev), entry)
}

// launch queues a kernel of 1-D shape.
func (c *ctx) launch(dev int, s gpu.Stream, f gpu.Function, blocks, threads uint32, args ...any) {
	c.t.Helper()
	cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: blocks, Y: 1, Z: 1}, Block: gpu.Dim3{X: threads, Y: 1, Z: 1}}
	c.NoError(c.d.Launch(dev, s, f, &cfg, pack(args...)))
}

func (c *ctx) wait(dev int, s gpu.Stream) {
	c.t.Helper()
	done, err := c.d.StreamWait(dev, s, patience)
	c.NoError(err)
	c.True(done, "the stream's work did not end within %v", patience)
}

func (c *ctx) put(dev int, s gpu.Stream, p gpu.Ptr, data []byte) {
	c.t.Helper()
	c.NoError(c.d.CopyIn(dev, s, p, data))
}

func (c *ctx) get(dev int, s gpu.Stream, p gpu.Ptr, n int) []byte {
	c.t.Helper()
	out := make([]byte, n)
	c.NoError(c.d.CopyOut(dev, s, out, p))
	return out
}

func (c *ctx) getWords(dev int, s gpu.Stream, p gpu.Ptr, n int) []uint32 {
	c.t.Helper()
	return toWords(c.get(dev, s, p, 4*n))
}

// is checks the kind of an error, and that it is typed.
func (c *ctx) is(err, kind error, what ...any) {
	c.t.Helper()
	c.ErrorIs(err, kind, what...)
	var typed *gpu.Error
	c.ErrorAs(err, &typed, what...)
	c.NotEmpty(typed.Op, what...)
}

// pack lays arguments out as PTX entries expect them: each at its natural alignment. Byte slices stand for
// .align 4 arrays.
func pack(args ...any) []byte {
	var b []byte
	align := func(n int) {
		for len(b)%n != 0 {
			b = append(b, 0xEE) // padding is nobody's to read
		}
	}
	le := binary.LittleEndian
	for _, a := range args {
		switch v := a.(type) {
		case uint8:
			b = append(b, v)
		case uint16:
			align(2)
			b = le.AppendUint16(b, v)
		case uint32:
			align(4)
			b = le.AppendUint32(b, v)
		case float32:
			align(4)
			b = le.AppendUint32(b, math.Float32bits(v))
		case uint64:
			align(8)
			b = le.AppendUint64(b, v)
		case float64:
			align(8)
			b = le.AppendUint64(b, math.Float64bits(v))
		case gpu.Ptr:
			align(8)
			b = le.AppendUint64(b, uint64(v))
		case time.Duration:
			align(8)
			b = le.AppendUint64(b, uint64(v))
		case []byte:
			align(4)
			b = append(b, v...)
		default:
			panic(fmt.Sprintf("gputest: argument of type %T", a))
		}
	}
	return b
}

func toWords(b []byte) []uint32 {
	w := make([]uint32, len(b)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

func fromWords(w ...uint32) []byte {
	b := make([]byte, 0, 4*len(w))
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// pattern is n bytes that differ from those of any other tag.
func pattern(tag, n int) []byte {
	b := make([]byte, n)
	x := uint32(tag)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// count is n words from first upwards.
func count(first uint32, n int) []uint32 {
	w := make([]uint32, n)
	for i := range w {
		w[i] = first + uint32(i)
	}
	return w
}
