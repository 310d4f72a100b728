package gputest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

func testInfo(c *ctx) {
	info := c.d.Info()
	c.Contains([]string{"cuda", "emu"}, info.Name)
	c.Equal(info.Name == "emu", info.Emulated)
	c.GreaterOrEqual(info.Version, 11000)
	c.NotEmpty(info.Detail)

	seen := map[[16]byte]bool{}
	c.Positive(c.d.DeviceCount())
	for dev := range c.d.DeviceCount() {
		v, err := c.d.DeviceInfo(dev)
		c.NoError(err)
		c.Equal(dev, v.Ordinal)
		c.NotEmpty(v.Name)
		c.NotEmpty(v.PCI)
		c.False(seen[v.UUID], "device %d has the UUID of another", dev)
		c.NotZero(v.UUID)
		seen[v.UUID] = true
		c.GreaterOrEqual(v.SM(), 50)
		c.Positive(v.SMs)
		c.GreaterOrEqual(v.MaxThreadsPerSM, v.MaxThreadsPerBlock)
		c.GreaterOrEqual(v.MaxThreadsPerBlock, 1024)
		c.GreaterOrEqual(v.SharedPerBlock, 48<<10)
		c.True(v.CanMapHost)
		again, err := c.d.DeviceInfo(dev)
		c.NoError(err)
		c.Equal(v, again)

		free, total, err := c.d.MemInfo(dev)
		c.NoError(err)
		c.LessOrEqual(free, total)
		c.Positive(total)
	}
}

func testPeerAccess(c *ctx) {
	c.second()
	n := c.d.DeviceCount()
	for dev := range n {
		_, err := c.d.P2P(dev, dev)
		c.is(err, gpu.ErrInvalidValue)
		c.is(c.d.EnablePeerAccess(dev, dev), gpu.ErrInvalidValue)
		for peer := range n {
			if dev == peer {
				continue
			}
			info, err := c.d.P2P(dev, peer)
			c.NoError(err)
			if !info.Access {
				c.is(c.d.EnablePeerAccess(dev, peer), gpu.ErrPeerAccess)
				c.NoError(c.d.DisablePeerAccess(dev, peer))
				continue
			}
			c.NoError(c.d.DisablePeerAccess(dev, peer), "not enabled is success")
			c.NoError(c.d.EnablePeerAccess(dev, peer))
			c.NoError(c.d.EnablePeerAccess(dev, peer), "already enabled is success")
			c.NoError(c.d.DisablePeerAccess(dev, peer))
			c.NoError(c.d.DisablePeerAccess(dev, peer))
		}
	}
}

// testPeerPointers has kernels read and write a peer's memory by its address.
func testPeerPointers(c *ctx) {
	round := 0
	c.pairs(func(dev, peer int) {
		round++
		c.NoError(c.d.EnablePeerAccess(dev, peer))
		const n = 1000
		local, remote := c.alloc(dev, 4*n), c.alloc(peer, 4*n)
		s, ps := c.stream(dev), c.stream(peer)
		f := c.kernel(dev, "copyadd")
		want := count(uint32(1000*round), n)
		c.put(peer, ps, remote, fromWords(want...))
		c.launch(dev, s, f, 8, 128, local, remote, uint32(0), uint32(n))
		c.Equal(want, c.getWords(dev, s, local, n), "device %d reads device %d", dev, peer)

		c.launch(dev, s, f, 8, 128, remote, local, uint32(7), uint32(n))
		c.wait(dev, s)
		c.Equal(count(uint32(1000*round+7), n), c.getWords(peer, ps, remote, n), "device %d writes device %d", dev, peer)
		c.NoError(c.d.DisablePeerAccess(dev, peer))
	})
}

func testBadDevices(c *ctx) {
	d := c.d
	p, m := c.alloc(0, 64), c.host(64)
	s, e := c.stream(0), c.event(0, true)
	mod := c.kernels(0)
	f := c.function(0, mod, "nothing")
	cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}}
	calls := map[string]func(dev int) error{
		"DeviceInfo":        func(dev int) error { _, err := d.DeviceInfo(dev); return err },
		"MemInfo":           func(dev int) error { _, _, err := d.MemInfo(dev); return err },
		"P2P from":          func(dev int) error { _, err := d.P2P(dev, 0); return err },
		"P2P to":            func(dev int) error { _, err := d.P2P(0, dev); return err },
		"EnablePeerAccess":  func(dev int) error { return d.EnablePeerAccess(0, dev) },
		"DisablePeerAccess": func(dev int) error { return d.DisablePeerAccess(dev, 0) },
		"MemAlloc":          func(dev int) error { _, err := d.MemAlloc(dev, 64); return err },
		"MemFree":           func(dev int) error { return d.MemFree(dev, p) },
		"Memset":            func(dev int) error { return d.Memset(dev, s, p, 1, 64) },
		"Copy":              func(dev int) error { return d.Copy(dev, s, p, m.Ptr, 64) },
		"CopyPeer":          func(dev int) error { return d.CopyPeer(0, s, p, dev, p, 0, 64) },
		"CopyIn":            func(dev int) error { return d.CopyIn(dev, s, p, make([]byte, 64)) },
		"CopyOut":           func(dev int) error { return d.CopyOut(dev, s, make([]byte, 64), p) },
		"StreamCreate":      func(dev int) error { _, err := d.StreamCreate(dev); return err },
		"StreamDestroy":     func(dev int) error { return d.StreamDestroy(dev, s) },
		"StreamAdopt":       func(dev int) error { return d.StreamAdopt(dev, s) },
		"StreamCapturing":   func(dev int) error { _, err := d.StreamCapturing(dev, s); return err },
		"StreamWait":        func(dev int) error { _, err := d.StreamWait(dev, s, 0); return err },
		"StreamWaitEvent":   func(dev int) error { return d.StreamWaitEvent(dev, s, e) },
		"EventCreate":       func(dev int) error { _, err := d.EventCreate(dev, false); return err },
		"EventDestroy":      func(dev int) error { return d.EventDestroy(dev, e) },
		"EventRecord":       func(dev int) error { return d.EventRecord(dev, e, s) },
		"EventWait":         func(dev int) error { _, err := d.EventWait(dev, e, 0); return err },
		"EventElapsed":      func(dev int) error { _, err := d.EventElapsed(dev, e, e); return err },
		"ModuleLoad":        func(dev int) error { _, err := d.ModuleLoad(dev, "kernels.ptx", kernelsPTX); return err },
		"ModuleUnload":      func(dev int) error { return d.ModuleUnload(dev, mod) },
		"ModuleFunction":    func(dev int) error { _, err := d.ModuleFunction(dev, mod, "nothing"); return err },
		"FunctionInfo":      func(dev int) error { _, err := d.FunctionInfo(dev, f); return err },
		"MaxActiveBlocks":   func(dev int) error { _, err := d.MaxActiveBlocks(dev, f, 32, 0); return err },
		"Launch":            func(dev int) error { return d.Launch(dev, s, f, &cfg, nil) },
		"BeginCapture":      func(dev int) error { return d.BeginCapture(dev, s) },
	}
	for name, call := range calls {
		for _, dev := range []int{-1, d.DeviceCount(), 1 << 40} {
			c.is(call(dev), gpu.ErrInvalidValue, "%s on device %d", name, dev)
		}
	}
	c.wait(0, s) // it is all still there
}

func testBadHandles(c *ctx) {
	d := c.d
	p := c.alloc(0, 64)
	s, e := c.stream(0), c.event(0, true)
	f := c.kernel(0, "nothing")
	cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}}
	// A real driver may give a destroyed object's handle to a new one, so the dead ones are made last.
	streams, events := map[string]gpu.Stream{"zero": 0}, map[string]gpu.Event{"zero": 0}
	if d.DeviceCount() > 1 {
		streams["foreign"], events["foreign"] = c.stream(1), c.event(1, true)
	}
	deadS, err := d.StreamCreate(0)
	c.NoError(err)
	c.NoError(d.StreamDestroy(0, deadS))
	deadE, err := d.EventCreate(0, true)
	c.NoError(err)
	c.NoError(d.EventDestroy(0, deadE))
	deadM, err := d.ModuleLoad(0, "kernels.ptx", kernelsPTX)
	c.NoError(err)
	deadF := c.function(0, deadM, "nothing")
	c.NoError(d.ModuleUnload(0, deadM))

	streams["destroyed"], events["destroyed"] = deadS, deadE
	for name, s := range streams {
		c.is(d.StreamDestroy(0, s), gpu.ErrInvalidHandle, name)
		_, err := d.StreamWait(0, s, 0)
		c.is(err, gpu.ErrInvalidHandle, name)
		_, err = d.StreamCapturing(0, s)
		c.is(err, gpu.ErrInvalidHandle, name)
		c.is(d.Memset(0, s, p, 0, 64), gpu.ErrInvalidHandle, name)
		c.is(d.Copy(0, s, p, p, 64), gpu.ErrInvalidHandle, name)
		c.is(d.CopyIn(0, s, p, make([]byte, 4)), gpu.ErrInvalidHandle, name)
		c.is(d.EventRecord(0, e, s), gpu.ErrInvalidHandle, name)
		c.is(d.StreamWaitEvent(0, s, e), gpu.ErrInvalidHandle, name)
		c.is(d.Launch(0, s, f, &cfg, nil), gpu.ErrInvalidHandle, name)
		c.is(d.BeginCapture(0, s), gpu.ErrInvalidHandle, name)
	}
	for name, e := range events {
		c.is(d.EventDestroy(0, e), gpu.ErrInvalidHandle, name)
		c.is(d.EventRecord(0, e, s), gpu.ErrInvalidHandle, name)
		_, err := d.EventWait(0, e, 0)
		c.is(err, gpu.ErrInvalidHandle, name)
	}
	c.is(d.StreamWaitEvent(0, s, deadE), gpu.ErrInvalidHandle)
	for name, m := range map[string]gpu.Module{"zero": 0, "unloaded": deadM} {
		c.is(d.ModuleUnload(0, m), gpu.ErrInvalidHandle, name)
		_, err := d.ModuleFunction(0, m, "nothing")
		c.is(err, gpu.ErrInvalidHandle, name)
	}
	for name, f := range map[string]gpu.Function{"zero": 0, "unloaded": deadF} {
		c.is(d.Launch(0, s, f, &cfg, nil), gpu.ErrInvalidHandle, name)
		_, err := d.FunctionInfo(0, f)
		c.is(err, gpu.ErrInvalidHandle, name)
	}
	_, err = d.GraphInstantiate(0, 0)
	c.is(err, gpu.ErrInvalidHandle)
	c.is(d.GraphLaunch(0, 0, s), gpu.ErrInvalidHandle)
	c.is(d.GraphDestroy(0, 0), gpu.ErrInvalidHandle)
	c.is(d.GraphExecDestroy(0, 0), gpu.ErrInvalidHandle)
	c.wait(0, s)
}

// testClose leaves one of everything alive and work queued.
func testClose(t *testing.T, d gpu.Driver) {
	c := &ctx{Assertions: require.New(t), t: t, d: d}
	s, err := d.StreamCreate(0)
	c.NoError(err)
	e, err := d.EventCreate(0, false)
	c.NoError(err)
	p, err := d.MemAlloc(0, 4096)
	c.NoError(err)
	m, err := d.HostAlloc(64)
	c.NoError(err)
	mod, err := d.ModuleLoad(0, "kernels.ptx", kernelsPTX)
	c.NoError(err)
	f := c.function(0, mod, "fill")
	c.launch(0, s, f, 4, 256, p, uint32(1), uint32(1024))
	c.NoError(d.EventRecord(0, e, s))
	c.Equal(gpu.Counts{Allocs: 1, HostAllocs: 1, Streams: 1, Events: 1, Modules: 1}, d.Live())
	c.NoError(d.Close())

	for name, err := range map[string]error{
		"MemFree":       d.MemFree(0, p),
		"HostFree":      d.HostFree(m),
		"StreamDestroy": d.StreamDestroy(0, s),
		"EventRecord":   d.EventRecord(0, e, s),
		"Memset":        d.Memset(0, s, p, 0, 4),
		"CopyIn":        d.CopyIn(0, s, p, []byte{1}),
		"HostStore32":   d.HostStore32(m, 0, 1),
		"Close":         d.Close(),
	} {
		c.is(err, gpu.ErrClosed, name)
	}
	_, err = d.MemAlloc(0, 64)
	c.is(err, gpu.ErrClosed)
	_, err = d.DeviceInfo(0)
	c.is(err, gpu.ErrClosed)
	_, err = d.StreamWait(0, s, 0)
	c.is(err, gpu.ErrClosed)
	_, err = d.PointerInfo(p)
	c.is(err, gpu.ErrClosed)
	_, err = d.HostLoad32(m, 0)
	c.is(err, gpu.ErrClosed)
	_, err = d.ModuleFunction(0, mod, "fill")
	c.is(err, gpu.ErrClosed)
}
