package gputest

import (
	"bytes"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
)

func testMemory(c *ctx) {
	type span struct{ from, to uint64 }
	var spans []span
	for dev := range c.d.DeviceCount() {
		for _, size := range []uint64{1, 3, 255, 256, 257, 4096, 65537, 1 << 20} {
			p := c.alloc(dev, size)
			c.Zero(uint64(p)%256, "%d bytes at %#x", size, p)
			spans = append(spans, span{uint64(p), uint64(p) + size})
		}
	}
	for i, a := range spans {
		for _, b := range spans[:i] {
			c.True(a.to <= b.from || b.to <= a.from, "allocations overlap: %#x and %#x", a, b)
		}
	}
	_, err := c.d.MemAlloc(0, 0)
	c.is(err, gpu.ErrInvalidValue)
	_, err = c.d.MemAlloc(0, 1<<50)
	c.is(err, gpu.ErrOutOfMemory)

	p := c.alloc(0, 512)
	c.is(c.d.MemFree(0, 0), gpu.ErrInvalidValue)
	c.is(c.d.MemFree(0, p+256), gpu.ErrInvalidValue)
	q, err := c.d.MemAlloc(0, 512)
	c.NoError(err)
	c.NoError(c.d.MemFree(0, q))
	c.is(c.d.MemFree(0, q), gpu.ErrInvalidValue, "freed twice")
}

func testPointerInfo(c *ctx) {
	for dev := range c.d.DeviceCount() {
		p := c.alloc(dev, 1000)
		for _, off := range []gpu.Ptr{0, 1, 512, 999} {
			info, err := c.d.PointerInfo(p + off)
			c.NoError(err)
			c.Equal(gpu.PointerInfo{Kind: gpu.MemDevice, Device: dev, Base: p, Size: 1000}, info)
		}
	}
	m := c.host(4096)
	info, err := c.d.PointerInfo(m.Ptr + 100)
	c.NoError(err)
	c.Equal(gpu.PointerInfo{Kind: gpu.MemHost, Device: -1, Base: m.Ptr, Size: 4096}, info)

	_, err = c.d.PointerInfo(0)
	c.is(err, gpu.ErrInvalidValue)
	_, err = c.d.PointerInfo(0x100)
	c.is(err, gpu.ErrInvalidValue)
	p, err := c.d.MemAlloc(0, 64)
	c.NoError(err)
	c.NoError(c.d.MemFree(0, p))
	_, err = c.d.PointerInfo(p)
	c.is(err, gpu.ErrInvalidValue, "freed")
}

func testHostMemory(c *ctx) {
	m := c.host(100)
	s := c.stream(0)
	p := c.alloc(0, 100)
	copy(m.Bytes, pattern(1, 100))
	c.NoError(c.d.Copy(0, s, p, m.Ptr, 100))
	c.wait(0, s)
	c.Equal(pattern(1, 100), c.get(0, s, p, 100))

	c.NoError(c.d.HostStore32(m, 8, 0xdeadbeef))
	v, err := c.d.HostLoad32(m, 8)
	c.NoError(err)
	c.Equal(uint32(0xdeadbeef), v)
	c.Equal([]byte{0xef, 0xbe, 0xad, 0xde}, m.Bytes[8:12])
	for _, off := range []uint64{1, 2, 98, 100, 1 << 40, ^uint64(0) - 3} {
		_, err := c.d.HostLoad32(m, off)
		c.is(err, gpu.ErrInvalidValue, "offset %d", off)
		c.is(c.d.HostStore32(m, off, 1), gpu.ErrInvalidValue, "offset %d", off)
	}
	_, err = c.d.HostAlloc(0)
	c.is(err, gpu.ErrInvalidValue)
	c.is(c.d.HostFree(gpu.HostMem{}), gpu.ErrInvalidValue)
	_, err = c.d.HostLoad32(gpu.HostMem{}, 0)
	c.is(err, gpu.ErrInvalidValue)

	// Every device reaches the same pinned memory.
	for dev := range c.d.DeviceCount() {
		s := c.stream(dev)
		c.launch(dev, s, c.kernel(dev, "fill"), 1, 32, m.Ptr, uint32(100*dev), uint32(25))
		c.wait(dev, s)
		c.Equal(count(uint32(100*dev), 25), toWords(m.Bytes))
	}
}

// testCopySizes copies odd sizes at odd offsets, and looks at the bytes around them.
func testCopySizes(c *ctx) {
	const size = 70000
	a, b := c.alloc(0, size), c.alloc(0, size)
	s := c.stream(0)
	tag := 0
	for _, n := range []int{1, 2, 3, 4, 7, 16, 31, 255, 256, 257, 4097, 65536, 65537} {
		for _, off := range [][2]int{{0, 0}, {1, 0}, {0, 3}, {5, 7}, {64, 1000}} {
			tag++
			src, was := pattern(tag, size), pattern(-tag, size)
			c.put(0, s, a, src)
			c.put(0, s, b, was)
			c.NoError(c.d.Copy(0, s, b+gpu.Ptr(off[1]), a+gpu.Ptr(off[0]), uint64(n)))
			want := bytes.Clone(was)
			copy(want[off[1]:off[1]+n], src[off[0]:])
			c.True(bytes.Equal(want, c.get(0, s, b, size)), "%d bytes from offset %d to %d", n, off[0], off[1])
		}
	}
	c.NoError(c.d.Copy(0, s, b, a, 0), "nothing to copy is success")
	c.NoError(c.d.CopyIn(0, s, a, nil))
	c.NoError(c.d.CopyOut(0, s, nil, a))
	part := c.get(0, s, b+77, 33)
	c.Equal(c.get(0, s, b, size)[77:77+33], part)
}

// testCopyKinds goes around: Go, device, device, pinned, pinned, device, Go.
func testCopyKinds(c *ctx) {
	const n = 12345
	for dev := range c.d.DeviceCount() {
		s := c.stream(dev)
		a, b, e := c.alloc(dev, n), c.alloc(dev, n), c.alloc(dev, n)
		h, k := c.host(n), c.host(n)
		want := pattern(dev+50, n)
		c.put(dev, s, a, want)
		c.NoError(c.d.Copy(dev, s, b, a, n))
		c.NoError(c.d.Copy(dev, s, h.Ptr, b, n))
		c.NoError(c.d.Copy(dev, s, k.Ptr, h.Ptr, n))
		c.NoError(c.d.Copy(dev, s, e, k.Ptr, n))
		c.True(bytes.Equal(want, c.get(dev, s, e, n)))
		c.True(bytes.Equal(want, h.Bytes))
		c.True(bytes.Equal(want, k.Bytes))
	}
}

// testCopyPeer needs no peer access, and goes both ways between all devices.
func testCopyPeer(c *ctx) {
	n := uint64(9999)
	for from := range c.d.DeviceCount() {
		for to := range c.d.DeviceCount() {
			src, dst := c.alloc(from, n), c.alloc(to, n)
			fs, ts := c.stream(from), c.stream(to)
			for round, run := range []struct {
				dev int
				s   gpu.Stream
			}{{from, fs}, {to, ts}} {
				want := pattern(100*from+10*to+round, int(n))
				c.put(from, fs, src, want)
				c.NoError(c.d.CopyPeer(run.dev, run.s, dst, to, src, from, n))
				c.wait(run.dev, run.s)
				c.True(bytes.Equal(want, c.get(to, ts, dst, int(n))), "from %d to %d, on %d", from, to, run.dev)
			}
		}
	}
}

// testCopyAsync queues copies behind a kernel, and sees that the calls come back before they are done.
func testCopyAsync(c *ctx) {
	s := c.stream(0)
	m := c.host(64)
	p := c.alloc(0, 64)
	gate := c.host(64)
	c.put(0, s, p, fromWords(1, 2, 3))
	poll := c.kernel(0, "poll")
	c.launch(0, s, poll, 1, 1, gate.Ptr, uint32(1), gate.Ptr+8, patience)
	c.NoError(c.d.Copy(0, s, m.Ptr, p, 12))
	done, err := c.d.StreamWait(0, s, 0)
	c.NoError(err)
	c.False(done)
	v, err := c.d.HostLoad32(m, 0)
	c.NoError(err)
	c.Zero(v, "the copy overtook the kernel ahead of it")
	c.NoError(c.d.HostStore32(gate, 0, 1))
	c.wait(0, s)
	c.Equal([]uint32{1, 2, 3}, toWords(m.Bytes[:12]))
	c.Equal(uint32(1), toWords(gate.Bytes)[2])
}

func testCopyRefusals(c *ctx) {
	s := c.stream(0)
	p, q := c.alloc(0, 64), c.alloc(0, 64)
	m := c.host(64)
	freed, err := c.d.MemAlloc(0, 64)
	c.NoError(err)
	c.NoError(c.d.MemFree(0, freed))
	for name, bad := range map[string]gpu.Ptr{"null": 0, "unknown": 0x100, "freed": freed, "short": q + 1, "short pinned": m.Ptr + 1} {
		c.is(c.d.Copy(0, s, bad, p, 64), gpu.ErrInvalidValue, "to %s", name)
		c.is(c.d.Copy(0, s, p, bad, 64), gpu.ErrInvalidValue, "from %s", name)
		c.is(c.d.CopyIn(0, s, bad, make([]byte, 64)), gpu.ErrInvalidValue, "into %s", name)
		c.is(c.d.CopyOut(0, s, make([]byte, 64), bad), gpu.ErrInvalidValue, "out of %s", name)
		c.is(c.d.Memset(0, s, bad, 1, 64), gpu.ErrInvalidValue, "memset of %s", name)
		c.is(c.d.CopyPeer(0, s, bad, 0, p, 0, 64), gpu.ErrInvalidValue, "peer copy to %s", name)
	}
	c.is(c.d.Copy(0, s, p, q, ^uint64(0)), gpu.ErrInvalidValue, "size that wraps")
	if c.d.DeviceCount() > 1 {
		c.is(c.d.CopyPeer(0, s, p, 1, q, 0, 64), gpu.ErrInvalidValue, "memory of another device than said")
	}
	c.wait(0, s)
}

func testMemset(c *ctx) {
	const size = 5000
	s := c.stream(0)
	p := c.alloc(0, size)
	for tag, n := range []int{1, 3, 64, 1001, 4096} {
		was := pattern(tag, size)
		c.put(0, s, p, was)
		c.NoError(c.d.Memset(0, s, p+13, byte(0xA0+tag), uint64(n)))
		copy(was[13:], bytes.Repeat([]byte{byte(0xA0 + tag)}, n))
		c.True(bytes.Equal(was, c.get(0, s, p, size)), "%d bytes", n)
	}
	c.NoError(c.d.Memset(0, s, p, 1, 0))
	m := c.host(64)
	c.NoError(c.d.Memset(0, s, m.Ptr, 0x5A, 64))
	c.wait(0, s)
	c.Equal(bytes.Repeat([]byte{0x5A}, 64), m.Bytes)
}

// testHostPollsKernel has the host watch a word that a running kernel stores.
func testHostPollsKernel(c *ctx) {
	s := c.stream(0)
	m := c.host(64)
	c.launch(0, s, c.kernel(0, "later"), 1, 1, m.Ptr+4, uint32(77), 2*time.Millisecond)
	c.pollHost(m, 4, 77)
	c.wait(0, s)
}

// pollHost watches a pinned word until it is v.
func (c *ctx) pollHost(m gpu.HostMem, off uint64, v uint32) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; {
		got, err := c.d.HostLoad32(m, off)
		c.NoError(err)
		if got == v {
			return
		}
		c.True(time.Now().Before(end), "pinned word is %d, never became %d", got, v)
	}
}

// testKernelPollsHost plays ball: the host stores, a running kernel sees it and answers.
func testKernelPollsHost(c *ctx) {
	s := c.stream(0)
	m := c.host(64)
	poll := c.kernel(0, "poll")
	for round := uint32(1); round <= 5; round++ {
		c.NoError(c.d.HostStore32(m, 4, 0))
		c.launch(0, s, poll, 1, 1, m.Ptr, round, m.Ptr+4, patience)
		done, err := c.d.StreamWait(0, s, time.Millisecond)
		c.NoError(err)
		c.False(done, "the kernel ended before the host stored")
		c.NoError(c.d.HostStore32(m, 0, round))
		c.pollHost(m, 4, 1)
		c.wait(0, s)
	}
	// A kernel that waits in vain gives up by itself.
	c.launch(0, s, poll, 1, 1, m.Ptr, uint32(99), m.Ptr+4, 5*time.Millisecond)
	c.pollHost(m, 4, 2)
	c.wait(0, s)
}

// testKernelPollsKernel runs two kernels of one device that wait for each other's stores.
func testKernelPollsKernel(c *ctx) {
	m := c.host(64)
	poll, later := c.kernel(0, "poll"), c.kernel(0, "later")
	a, b := c.stream(0), c.stream(0)
	c.launch(0, a, poll, 1, 1, m.Ptr, uint32(5), m.Ptr+8, patience)
	c.launch(0, b, later, 1, 1, m.Ptr, uint32(5), time.Millisecond)
	c.wait(0, a)
	c.wait(0, b)
	c.Equal(uint32(1), toWords(m.Bytes)[2])
}
