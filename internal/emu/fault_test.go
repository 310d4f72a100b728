package emu_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
)

// TestFaultTexts: what a kernel did wrong is said in words.
func TestFaultTexts(t *testing.T) {
	for name, test := range map[string]struct {
		machine string
		entry   string // "load" unless set
		addr    func(b *bench) gpu.Ptr
		detail  string
	}{
		"null":          {addr: func(*bench) gpu.Ptr { return 0 }, detail: "null pointer, or an offset from one"},
		"near null":     {addr: func(*bench) gpu.Ptr { return 0x80 }, detail: "null pointer, or an offset from one"},
		"nowhere":       {addr: func(*bench) gpu.Ptr { return 1 << 50 }, detail: "no memory of this machine is there"},
		"unused":        {addr: func(b *bench) gpu.Ptr { return b.alloc(0, 64) + 1<<30 }, detail: "nothing of device 0 is allocated there"},
		"freed":         {addr: func(b *bench) gpu.Ptr { return b.freed(0, 64) + 8 }, detail: "freed 64-byte allocation of device 0"},
		"freed of peer": {addr: func(b *bench) gpu.Ptr { return b.freed(1, 64) }, detail: "freed 64-byte allocation of device 1"},
		"freed pinned": {addr: func(b *bench) gpu.Ptr {
			m, err := b.d.HostAlloc(32)
			b.NoError(err)
			b.NoError(b.d.HostFree(m))
			return m.Ptr
		}, detail: "freed 32-byte pinned host allocation"},
		"past the end":     {addr: func(b *bench) gpu.Ptr { return b.alloc(0, 64) + 64 }, detail: "0 bytes past the end of a 64-byte allocation of device 0"},
		"far past the end": {addr: func(b *bench) gpu.Ptr { return b.alloc(0, 64) + 1064 }, detail: "1000 bytes past the end of a 64-byte allocation of device 0"},
		"over the end":     {addr: func(b *bench) gpu.Ptr { return b.alloc(0, 66) + 64 }, detail: "runs 2 bytes past the end of a 66-byte allocation of device 0"},
		"before":           {addr: func(b *bench) gpu.Ptr { return b.alloc(0, 64) - 4 }, detail: "4 bytes before a 64-byte allocation of device 0"},
		"peer": {addr: func(b *bench) gpu.Ptr { return b.alloc(1, 64) },
			detail: "device 0 has no peer access to device 1 (64-byte allocation of device 1); call Runtime.EnablePeer(0, 1)"},
		"peer that cannot be": {machine: "no-p2p", addr: func(b *bench) gpu.Ptr { return b.alloc(1, 64) },
			detail: "device 0 has no peer access to device 1 (64-byte allocation of device 1), and this machine (no-p2p) can't give it"},
		"store": {entry: "store", addr: func(b *bench) gpu.Ptr { return b.freed(0, 64) }, detail: "freed 64-byte allocation of device 0"},
		"variable of an unloaded module": {addr: (*bench).unloaded,
			detail: "freed 4-byte variable variable of gone.ptx of device 0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, emu.Config{Machine: test.machine})
			s := b.stream(0)
			addr := test.addr(b)
			if test.entry == "store" {
				b.launch(0, s, b.kernel(0, "store"), 1, 1, addr)
			} else {
				b.launch(0, s, b.kernel(0, "load"), 1, 1, addr, b.alloc(0, 4))
			}
			f := b.faults(0, s)
			b.ErrorIs(f, gpu.ErrIllegalAddress)
			b.Equal(test.detail, f.Detail)
			b.Equal(uint64(addr), f.Addr)
			b.Equal(4, f.Size)
			b.Equal("emu.ptx", f.File)
			b.Positive(f.Line)
			b.Contains(f.Text, ".u32")
		})
	}
}

func (b *bench) freed(dev int, size uint64) gpu.Ptr {
	p := b.alloc(dev, size)
	b.NoError(b.d.MemFree(dev, p))
	return p
}

// unloaded is the address of a variable whose module is gone.
func (b *bench) unloaded() gpu.Ptr {
	m, err := b.d.ModuleLoad(0, "gone.ptx", emuPTX)
	b.NoError(err)
	f, err := b.d.ModuleFunction(0, m, "where")
	b.NoError(err)
	s, out := b.stream(0), b.alloc(0, 8)
	b.launch(0, s, f, 1, 1, out)
	var raw [8]byte
	b.NoError(b.d.CopyOut(0, s, raw[:], out))
	p := gpu.Ptr(binary.LittleEndian.Uint64(raw[:]))
	err = b.d.MemFree(0, p)
	b.ErrorIs(err, gpu.ErrInvalidValue)
	b.ErrorContains(err, "goes with its module")
	b.NoError(b.d.ModuleUnload(0, m))
	return p
}

// TestCopyFaults: copies check again when they run, for memory may be gone by then.
func TestCopyFaults(t *testing.T) {
	for name, test := range map[string]struct {
		queue  func(b *bench, s gpu.Stream, p, q gpu.Ptr) error
		kernel string
	}{
		"to":     {func(b *bench, s gpu.Stream, p, q gpu.Ptr) error { return b.d.Copy(0, s, p, q, 64) }, "copy"},
		"from":   {func(b *bench, s gpu.Stream, p, q gpu.Ptr) error { return b.d.Copy(0, s, q, p, 64) }, "copy"},
		"peer":   {func(b *bench, s gpu.Stream, p, q gpu.Ptr) error { return b.d.CopyPeer(0, s, q, 0, p, 0, 64) }, "copy"},
		"memset": {func(b *bench, s gpu.Stream, p, q gpu.Ptr) error { return b.d.Memset(0, s, p, 1, 64) }, "memset"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, emu.Config{})
			s, p, q := b.stream(0), b.alloc(0, 64), b.alloc(0, 64)
			b.NoError(test.queue(b, s, p, q))
			b.NoError(b.d.MemFree(0, p))
			f := b.faults(0, s)
			b.ErrorIs(f, gpu.ErrIllegalAddress)
			b.Equal(test.kernel, f.Kernel)
			b.Equal(64, f.Size)
			b.Equal(uint64(p), f.Addr)
			b.Contains(f.Detail, "freed 64-byte allocation of device 0")
		})
	}
	b := newBench(t, emu.Config{})
	s, p, q := b.stream(0), b.alloc(0, 64), b.alloc(1, 64)
	err := b.d.Copy(0, s, p, q, 64)
	b.ErrorIs(err, gpu.ErrPeerAccess)
	b.ErrorContains(err, "Stream.Copy")
	b.NoError(b.d.EnablePeerAccess(0, 1))
	b.NoError(b.d.Copy(0, s, p, q, 64))
	b.wait(0, s)
	b.NoError(b.d.Copy(0, s, p, q, 64))
	b.NoError(b.d.DisablePeerAccess(0, 1))
	b.Contains(b.faults(0, s).Detail, "no peer access to device 1")
}

// TestFaultReleases: a fault drops the device's work, lets other devices' waits on it go, and spares theirs.
func TestFaultReleases(t *testing.T) {
	b := newBench(t, emu.Config{Devices: 3})
	s, again, other := b.stream(0), b.stream(0), b.stream(1)
	out := b.zeroed(1, 4)
	host, err := b.d.HostAlloc(4)
	b.NoError(err)
	store := b.kernel(0, "store")
	e, err := b.d.EventCreate(0, false)
	b.NoError(err)
	held, err := b.d.EventCreate(1, false)
	b.NoError(err)
	blocker := b.stream(1)
	b.launch(1, blocker, b.kernel(1, "doze"), 1, 1, host.Ptr)
	b.NoError(b.d.EventRecord(1, held, blocker))
	b.NoError(b.d.StreamWaitEvent(0, again, held)) // device 0 waits for device 1 while it faults

	behind, err := b.d.EventCreate(0, false)
	b.NoError(err)
	b.NoError(b.d.EventRecord(0, behind, again))
	third := b.stream(2)
	b.NoError(b.d.StreamWaitEvent(2, third, behind)) // and device 2 for that

	b.launch(0, s, store, 1, 1, gpu.Ptr(0))
	b.launch(0, s, store, 1, 1, out) // no access either, but never runs
	b.NoError(b.d.EventRecord(0, e, s))
	b.NoError(b.d.StreamWaitEvent(1, other, e))
	b.launch(1, other, b.kernel(1, "store"), 1, 1, out)
	b.wait(1, other)
	b.Equal([]uint32{1}, b.words(1, other, out, 1))

	f := b.faults(0, s)
	b.Contains(f.Detail, "null pointer")
	b.Equal("store", f.Kernel)
	_, err = b.d.EventWait(0, e, patience)
	b.Same(f, err)
	b.wait(2, third)
	b.Same(f, b.d.StreamDestroy(0, again))
	done, err := b.d.StreamWait(1, blocker, time.Millisecond)
	b.NoError(err)
	b.False(done, "the fault ended another device's kernel")
	b.NoError(b.d.HostStore32(host, 0, 1))
	b.wait(1, blocker)
	b.NoError(b.d.Close())
}

// TestRevoked: what a kernel that is running may reach changes under it.
func TestRevoked(t *testing.T) {
	for name, test := range map[string]struct {
		revoke func(b *bench, p gpu.Ptr) error
		detail string
	}{
		"access": {func(b *bench, _ gpu.Ptr) error { return b.d.DisablePeerAccess(0, 1) }, "no peer access"},
		"memory": {func(b *bench, p gpu.Ptr) error { return b.d.MemFree(1, p) }, "freed 4-byte allocation of device 1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, emu.Config{Devices: 2})
			b.NoError(b.d.EnablePeerAccess(0, 1))
			s, p := b.stream(0), b.zeroed(1, 4)
			b.launch(0, s, b.kernel(0, "ball"), 1, 1, p, b.alloc(0, 4), uint32(1)) // polls p
			done, err := b.d.StreamWait(0, s, 5*time.Millisecond)
			b.NoError(err)
			b.False(done)
			b.NoError(test.revoke(b, p))
			f := b.faults(0, s)
			b.ErrorIs(f, gpu.ErrIllegalAddress)
			b.Contains(f.Detail, test.detail)
			b.Equal(63, f.Line)
		})
	}
}

// TestGraphFault: a node that faults on one device lets the rest of the graph, on another, come to its end.
func TestGraphFault(t *testing.T) {
	b := newBench(t, emu.Config{Devices: 2})
	s, r := b.stream(0), b.stream(1)
	out := b.zeroed(0, 4)
	fork, err := b.d.EventCreate(0, false)
	b.NoError(err)
	join, err := b.d.EventCreate(1, false)
	b.NoError(err)
	good, bad := b.kernel(0, "store"), b.kernel(1, "store")
	b.NoError(b.d.BeginCapture(0, s))
	b.NoError(b.d.EventRecord(0, fork, s))
	b.NoError(b.d.StreamWaitEvent(1, r, fork))
	b.launch(1, r, bad, 1, 1, gpu.Ptr(0))
	b.launch(1, r, bad, 1, 1, out) // would fault too, never runs
	b.NoError(b.d.EventRecord(1, join, r))
	b.NoError(b.d.StreamWaitEvent(0, s, join))
	b.launch(0, s, good, 1, 1, out)
	x := b.exec(s)
	b.NoError(b.d.GraphLaunch(0, x, s))
	b.wait(0, s)
	b.Equal([]uint32{1}, b.words(0, s, out, 1))
	f := b.faults(1, r)
	b.Contains(f.Detail, "null pointer")
	b.Same(f, b.d.GraphLaunch(0, x, s), "the graph needs a device that is lost")
	b.wait(0, s)
}

// TestGraphOfUnloaded: a graph does not outlive the code it launches.
func TestGraphOfUnloaded(t *testing.T) {
	b := newBench(t, emu.Config{})
	m, err := b.d.ModuleLoad(0, "gone.ptx", emuPTX)
	b.NoError(err)
	f, err := b.d.ModuleFunction(0, m, "store")
	b.NoError(err)
	s := b.stream(0)
	b.NoError(b.d.BeginCapture(0, s))
	b.launch(0, s, f, 1, 1, b.alloc(0, 4))
	g, err := b.d.EndCapture(0, s)
	b.NoError(err)
	x, err := b.d.GraphInstantiate(0, g)
	b.NoError(err)
	b.NoError(b.d.GraphLaunch(0, x, s))
	b.wait(0, s)
	b.NoError(b.d.ModuleUnload(0, m))
	err = b.d.GraphLaunch(0, x, s)
	b.ErrorIs(err, gpu.ErrInvalidHandle)
	b.ErrorContains(err, "gone.ptx")
}

// TestCaptures holds what the conformance suite leaves to the driver.
func TestCaptures(t *testing.T) {
	b := newBench(t, emu.Config{})
	s, r := b.stream(0), b.stream(0)
	p := b.zeroed(0, 8)
	event := func() gpu.Event {
		e, err := b.d.EventCreate(0, true)
		b.NoError(err)
		return e
	}
	outside, inside := event(), event()
	b.NoError(b.d.EventRecord(0, outside, r))

	b.NoError(b.d.BeginCapture(0, s))
	b.ErrorIs(b.d.StreamWaitEvent(0, s, outside), gpu.ErrCapture, "an event from outside")
	b.ErrorIs(b.d.Memset(0, s, p, 1, 4), gpu.ErrCapture, "the capture is void by now")
	_, err := b.d.EndCapture(0, s)
	b.ErrorIs(err, gpu.ErrCapture)
	b.ErrorContains(err, "outside of that capture")

	b.NoError(b.d.BeginCapture(0, s))
	b.NoError(b.d.EventRecord(0, inside, s))
	b.NoError(b.d.StreamWaitEvent(0, r, inside))
	_, err = b.d.EndCapture(0, r)
	b.ErrorIs(err, gpu.ErrCapture, "ended on a stream that joined")
	_, err = b.d.EndCapture(0, s)
	b.ErrorIs(err, gpu.ErrCapture)
	b.ErrorIs(b.d.StreamWaitEvent(0, r, inside), gpu.ErrCapture, "of a capture that has ended")
	_, err = b.d.EventElapsed(0, inside, outside)
	b.ErrorIs(err, gpu.ErrCapture)

	b.NoError(b.d.BeginCapture(0, s))
	b.ErrorIs(b.d.StreamDestroy(0, s), gpu.ErrCapture)
	_, err = b.d.EndCapture(0, s)
	b.ErrorIs(err, gpu.ErrCapture)

	// A graph launched into a capture becomes part of it.
	b.NoError(b.d.BeginCapture(0, s))
	b.NoError(b.d.Memset(0, s, p, 2, 4))
	b.NoError(b.d.Memset(0, s, p, 1, 4))
	inner := b.exec(s)
	b.NoError(b.d.BeginCapture(0, s))
	b.NoError(b.d.Memset(0, s, p, 9, 8))
	b.NoError(b.d.GraphLaunch(0, inner, s))
	b.NoError(b.d.Copy(0, s, p+4, p, 4))
	outer := b.exec(s)
	b.NoError(b.d.GraphLaunch(0, outer, s))
	b.Equal([]uint32{0x01010101, 0x01010101}, b.words(0, s, p, 2))
	require.Equal(t, 2, b.d.Live().GraphExecs)
}

func (b *bench) exec(s gpu.Stream) gpu.GraphExec {
	b.t.Helper()
	g, err := b.d.EndCapture(0, s)
	b.NoError(err)
	x, err := b.d.GraphInstantiate(0, g)
	b.NoError(err)
	b.NoError(b.d.GraphDestroy(0, g))
	return x
}
