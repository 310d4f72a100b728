package gputest

import (
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
)

// exec ends the capture on s and makes it ready to run. The graph itself is destroyed at once: what was
// instantiated does not need it.
func (c *ctx) exec(dev int, s gpu.Stream) gpu.GraphExec {
	c.t.Helper()
	g, err := c.d.EndCapture(dev, s)
	c.NoError(err)
	c.NotZero(g)
	x, err := c.d.GraphInstantiate(dev, g)
	c.NoError(err)
	c.NotZero(x)
	c.NoError(c.d.GraphDestroy(dev, g))
	c.t.Cleanup(func() { c.NoError(c.d.GraphExecDestroy(dev, x)) })
	return x
}

// testGraphReplay captures a copy, two kernels and a memset, and replays them on changing memory.
func testGraphReplay(c *ctx) {
	const n = 300
	s := c.stream(0)
	in, mid, out := c.alloc(0, 4*n), c.alloc(0, 4*n), c.alloc(0, 4*n)
	add := c.kernel(0, "copyadd")
	c.put(0, s, in, fromWords(count(1, n)...))
	c.NoError(c.d.Memset(0, s, out, 0xFF, 4*n))
	c.wait(0, s)

	c.NoError(c.d.BeginCapture(0, s))
	c.NoError(c.d.Copy(0, s, mid, in, 4*n))
	c.launch(0, s, add, 2, 256, mid, mid, uint32(100), uint32(n))
	c.launch(0, s, add, 2, 256, out, mid, uint32(1000), uint32(n))
	c.NoError(c.d.Memset(0, s, mid, 0, 4*n))
	x := c.exec(0, s)
	before := c.getWords(0, s, out, n)
	c.Equal(^uint32(0), before[0], "the capture ran the work")

	for round := range uint32(4) {
		c.put(0, s, in, fromWords(count(round*7, n)...))
		c.NoError(c.d.GraphLaunch(0, x, s))
		c.Equal(count(round*7+1100, n), c.getWords(0, s, out, n))
		c.Equal(make([]uint32, n), c.getWords(0, s, mid, n))
	}
	// On another stream, twice without waiting: each launch comes after the one before.
	t := c.stream(0)
	c.NoError(c.d.GraphLaunch(0, x, t))
	c.NoError(c.d.GraphLaunch(0, x, t))
	c.wait(0, t)
	c.Equal(count(21+1100, n), c.getWords(0, t, out, n))
}

// testGraphForkJoin captures two streams: a fork through one event, a join through another.
func testGraphForkJoin(c *ctx) {
	a, b := c.stream(0), c.stream(0)
	fork, join := c.event(0, false), c.event(0, false)
	m := c.host(64)
	mod := c.kernels(0)
	later, add := c.function(0, mod, "later"), c.function(0, mod, "copyadd")

	c.NoError(c.d.BeginCapture(0, a))
	c.launch(0, a, later, 1, 1, m.Ptr, uint32(10), time.Millisecond)
	c.NoError(c.d.EventRecord(0, fork, a))
	c.NoError(c.d.StreamWaitEvent(0, b, fork))
	c.launch(0, b, later, 1, 1, m.Ptr+4, uint32(20), 2*time.Millisecond) // beside the next one
	c.launch(0, a, add, 1, 1, m.Ptr+8, m.Ptr, uint32(1), uint32(1))
	c.launch(0, b, add, 1, 1, m.Ptr+12, m.Ptr+4, uint32(2), uint32(1))
	c.NoError(c.d.EventRecord(0, join, b))
	c.NoError(c.d.StreamWaitEvent(0, a, join))
	c.launch(0, a, add, 1, 2, m.Ptr+16, m.Ptr+8, uint32(100), uint32(2))
	x := c.exec(0, a)

	for range 3 {
		c.NoError(c.d.Memset(0, a, m.Ptr, 0, 64))
		c.NoError(c.d.GraphLaunch(0, x, a))
		c.wait(0, a)
		c.Equal([]uint32{10, 20, 11, 22, 111, 122}, toWords(m.Bytes[:24]))
	}
	// Both streams and both events are good for ordinary work again.
	c.NoError(c.d.Memset(0, b, m.Ptr, 1, 4))
	c.NoError(c.d.EventRecord(0, fork, b))
	done, err := c.d.EventWait(0, fork, patience)
	c.NoError(err)
	c.True(done)
	c.wait(0, b)
}

// testGraphAcrossDevices captures copies between devices, which need no peer access in a graph either.
func testGraphAcrossDevices(c *ctx) {
	other := c.second()
	c.graphAcross(other)
	for _, p := range [2][2]int{{0, other}, {other, 0}} {
		info, err := c.d.P2P(p[0], p[1])
		c.NoError(err)
		if !info.Access {
			return
		}
		c.NoError(c.d.EnablePeerAccess(p[0], p[1]))
		c.t.Cleanup(func() { c.NoError(c.d.DisablePeerAccess(p[0], p[1])) })
	}
	c.graphAcross(other)
}

func (c *ctx) graphAcross(other int) {
	const n = 100
	a, b := c.stream(0), c.stream(other)
	p, q := c.alloc(0, 4*n), c.alloc(other, 4*n)
	fork, join := c.event(0, false), c.event(other, false)
	add, remoteAdd := c.kernel(0, "copyadd"), c.kernel(other, "copyadd")

	c.NoError(c.d.BeginCapture(0, a))
	c.launch(0, a, add, 1, 128, p, p, uint32(1), uint32(n))
	c.NoError(c.d.CopyPeer(0, a, q, other, p, 0, 4*n))
	c.NoError(c.d.EventRecord(0, fork, a))
	c.NoError(c.d.StreamWaitEvent(other, b, fork))
	c.launch(other, b, remoteAdd, 1, 128, q, q, uint32(10), uint32(n))
	c.NoError(c.d.EventRecord(other, join, b))
	c.NoError(c.d.StreamWaitEvent(0, a, join))
	c.NoError(c.d.CopyPeer(0, a, p, 0, q, other, 4*n))
	x := c.exec(0, a)
	c.put(0, a, p, fromWords(count(0, n)...))
	for round := uint32(1); round <= 3; round++ {
		c.NoError(c.d.GraphLaunch(0, x, a))
		c.Equal(count(11*round, n), c.getWords(0, a, p, n))
	}
	c.wait(other, b)
}

// testGraphParameters: parameters are those of the capture, whatever becomes of the caller's buffer.
func testGraphParameters(c *ctx) {
	s := c.stream(0)
	p := c.alloc(0, 8)
	fill := c.kernel(0, "fill")
	cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}}
	args := pack(p, uint32(5), uint32(2))
	c.NoError(c.d.BeginCapture(0, s))
	c.NoError(c.d.Launch(0, s, fill, &cfg, args))
	clear(args)
	cfg.Block.X = 1
	x := c.exec(0, s)
	c.NoError(c.d.GraphLaunch(0, x, s))
	c.Equal([]uint32{5, 6}, c.getWords(0, s, p, 2))
}

// testGraphOrder mixes graph launches with plain work of the same stream.
func testGraphOrder(c *ctx) {
	s := c.stream(0)
	p := c.alloc(0, 4)
	mod := c.kernels(0)
	add := c.function(0, mod, "copyadd")
	c.NoError(c.d.BeginCapture(0, s))
	for range 10 {
		c.launch(0, s, add, 1, 1, p, p, uint32(1), uint32(1))
	}
	x := c.exec(0, s)
	c.launch(0, s, c.function(0, mod, "fill"), 1, 1, p, uint32(0), uint32(1))
	for range 5 {
		c.NoError(c.d.GraphLaunch(0, x, s))
		c.launch(0, s, add, 1, 1, p, p, uint32(1000), uint32(1))
	}
	c.Equal([]uint32{5050}, c.getWords(0, s, p, 1))
}

func testGraphEmpty(c *ctx) {
	s := c.stream(0)
	c.NoError(c.d.BeginCapture(0, s))
	x := c.exec(0, s)
	c.NoError(c.d.GraphLaunch(0, x, s))
	c.wait(0, s)
}

// testCapturing: a stream is capturing from the begin of a capture, or from when it waits for one that is, to the end.
func testCapturing(c *ctx) {
	a, b, e := c.stream(0), c.stream(0), c.event(0, false)
	capturing := func(s gpu.Stream) bool {
		is, err := c.d.StreamCapturing(0, s)
		c.NoError(err)
		return is
	}
	c.False(capturing(a))
	c.NoError(c.d.BeginCapture(0, a))
	c.True(capturing(a))
	c.False(capturing(b))
	c.NoError(c.d.EventRecord(0, e, a))
	c.NoError(c.d.StreamWaitEvent(0, b, e))
	c.True(capturing(b))
	c.NoError(c.d.EventRecord(0, e, b))
	c.NoError(c.d.StreamWaitEvent(0, a, e))
	g, err := c.d.EndCapture(0, a)
	c.NoError(err)
	c.NoError(c.d.GraphDestroy(0, g))
	c.False(capturing(a))
	c.False(capturing(b))
}

// testCaptureRefusals: what cannot be captured is refused, spoils the capture, and leaves the stream usable.
func testCaptureRefusals(c *ctx) {
	s := c.stream(0)
	p := c.alloc(0, 64)
	e := c.event(0, false)
	_, err := c.d.EndCapture(0, s)
	c.is(err, gpu.ErrCapture, "no capture to end")

	calls := map[string]func() error{
		"StreamWait": func() error { _, err := c.d.StreamWait(0, s, 0); return err },
		"CopyIn":     func() error { return c.d.CopyIn(0, s, p, make([]byte, 64)) },
		"CopyOut":    func() error { return c.d.CopyOut(0, s, make([]byte, 64), p) },
		"EventWait": func() error {
			if err := c.d.EventRecord(0, e, s); err != nil {
				return err
			}
			_, err := c.d.EventWait(0, e, 0)
			return err
		},
	}
	for name, call := range calls {
		c.NoError(c.d.BeginCapture(0, s))
		c.NoError(c.d.Memset(0, s, p, 9, 64))
		c.is(call(), gpu.ErrCapture, name)
		_, err := c.d.EndCapture(0, s)
		c.is(err, gpu.ErrCapture, "the end of a capture with %s in it", name)
		c.NoError(c.d.Memset(0, s, p, 3, 64))
		c.Equal(byte(3), c.get(0, s, p, 1)[0], "after %s", name)
	}

	c.NoError(c.d.BeginCapture(0, s))
	c.is(c.d.BeginCapture(0, s), gpu.ErrCapture, "begun twice")
	if g, err := c.d.EndCapture(0, s); err == nil { // whether that spoils the capture is the driver's to say
		c.NoError(c.d.GraphDestroy(0, g))
	}
	c.wait(0, s)
}

func testCaptureUnjoined(c *ctx) {
	a, b := c.stream(0), c.stream(0)
	p := c.alloc(0, 64)
	fork := c.event(0, false)
	c.NoError(c.d.BeginCapture(0, a))
	c.NoError(c.d.Memset(0, a, p, 1, 64))
	c.NoError(c.d.EventRecord(0, fork, a))
	c.NoError(c.d.StreamWaitEvent(0, b, fork))
	c.NoError(c.d.Memset(0, b, p, 2, 64))
	_, err := c.d.EndCapture(0, a)
	c.is(err, gpu.ErrCapture)
	for _, s := range []gpu.Stream{a, b} {
		c.NoError(c.d.Memset(0, s, p, 5, 64))
		c.Equal(byte(5), c.get(0, s, p, 1)[0])
	}
}
