package emu_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
)

// outcome is what became of a read that should have found 5, and of a write of 1 over 5 (kernels) or of
// 0x01010101 (copies). ^0 - 1 stands for one that never ended.
type outcome struct{ reads, wrote uint32 }

const never = ^uint32(0) - 1

// ends waits a while for the stream, and tells whether its work ended.
func (b *bench) ends(dev int, s gpu.Stream) bool {
	done, err := b.d.StreamWait(dev, s, 100*time.Millisecond)
	b.NoError(err)
	return done
}

// fives is memory that holds 5.
func (b *bench) fives(dev int) gpu.Ptr {
	p, s := b.alloc(dev, 4), b.stream(dev)
	b.NoError(b.d.CopyIn(dev, s, p, []byte{5, 0, 0, 0}))
	return p
}

// word reads memory from its own device.
func (b *bench) word(dev int, p gpu.Ptr) uint32 { return b.words(dev, b.stream(dev), p, 1)[0] }

// across does reads and writes of a peer's memory, and says what became of them.
func (b *bench) across(dev, peer int, read func(s gpu.Stream, to, from gpu.Ptr), write func(s gpu.Stream, to gpu.Ptr)) outcome {
	b.t.Helper()
	out := outcome{never, never}
	to, s := b.alloc(dev, 4), b.stream(dev)
	if read(s, to, b.fives(peer)); b.ends(dev, s) {
		out.reads = b.word(dev, to)
	}
	far := b.fives(peer)
	s = b.stream(dev)
	if write(s, far); b.ends(dev, s) {
		out.wrote = b.word(peer, far)
	}
	return out
}

// kernels is across with a kernel of dev that loads or stores.
func (b *bench) kernels(dev, peer int) outcome {
	b.t.Helper()
	b.NoError(b.d.EnablePeerAccess(dev, peer))
	return b.across(dev, peer,
		func(s gpu.Stream, to, from gpu.Ptr) { b.launch(dev, s, b.kernel(dev, "load"), 1, 1, from, to) },
		func(s gpu.Stream, to gpu.Ptr) { b.launch(dev, s, b.kernel(dev, "store"), 1, 1, to) })
}

func TestBrokenPeers(t *testing.T) {
	const ones, good = ^uint32(0), 0x01010101
	for machine, want := range map[string]struct {
		kernels, copies, host outcome
	}{
		"nvlink":       {outcome{5, 1}, outcome{5, good}, outcome{5, good}},
		"write-only":   {outcome{never, 1}, outcome{never, good}, outcome{5, good}},
		"read-garbage": {outcome{ones, 1}, outcome{ones, good}, outcome{5, good}},
		"lying":        {outcome{0, 5}, outcome{0, 5}, outcome{5, good}},
	} {
		t.Run(machine, func(t *testing.T) {
			b := newBench(t, emu.Config{Machine: machine})
			local := b.alloc(1, 4)
			b.NoError(b.d.CopyIn(1, b.stream(1), local, []byte{1, 1, 1, 1}))
			peers := func(s gpu.Stream, to, from gpu.Ptr) { b.NoError(b.d.CopyPeer(1, s, to, 1, from, 2, 4)) }
			push := func(s gpu.Stream, to gpu.Ptr) { b.NoError(b.d.CopyPeer(1, s, to, 2, local, 1, 4)) }
			b.Equal(want.host, b.across(1, 2, peers, push), "through the host while peer access is off")
			b.NoError(b.d.EnablePeerAccess(2, 1))
			b.Equal(want.host, b.across(1, 2, peers, push), "peer access the other way does not count")

			b.Equal(want.kernels, b.kernels(1, 2), "kernels")
			b.Equal(want.copies, b.across(1, 2, peers, push), "CopyPeer")
			b.Equal(want.copies, b.across(1, 2,
				func(s gpu.Stream, to, from gpu.Ptr) { b.NoError(b.d.Copy(1, s, to, from, 4)) },
				func(s gpu.Stream, to gpu.Ptr) { b.NoError(b.d.Copy(1, s, to, local, 4)) }), "Copy")
			b.Equal(want.copies.wrote, b.across(1, 2, peers,
				func(s gpu.Stream, to gpu.Ptr) { b.NoError(b.d.Memset(1, s, to, 1, 4)) }).wrote, "Memset")
			b.Equal(want.copies.wrote, b.across(1, 2, peers,
				func(s gpu.Stream, to gpu.Ptr) { b.NoError(b.d.CopyIn(1, s, to, []byte{1, 1, 1, 1})) }).wrote, "CopyIn")
			if want.copies.reads != never {
				b.Equal(want.copies.reads, b.words(1, b.stream(1), b.fives(2), 1)[0], "CopyOut")
			}
			// Its own memory is always all right.
			b.EqualValues(5, b.word(1, b.fives(1)))

			b.NoError(b.d.DisablePeerAccess(1, 2))
			b.Equal(want.host, b.across(1, 2, peers, push), "through the host again")
		})
	}
}

// TestStalledWork: what waits for an answer that never comes keeps its stream, and nothing else.
func TestStalledWork(t *testing.T) {
	b := newBench(t, emu.Config{Machine: "write-only", Devices: 3})
	b.NoError(b.d.EnablePeerAccess(0, 1))
	far, near := b.fives(1), b.fives(0)
	s, c := b.stream(0), b.stream(0)
	b.launch(0, s, b.kernel(0, "load"), 1, 64, far, near)
	b.NoError(b.d.Copy(0, c, near, far, 4))
	e, err := b.d.EventCreate(0, false)
	b.NoError(err)
	b.NoError(b.d.EventRecord(0, e, s))
	other := b.stream(2)
	b.NoError(b.d.StreamWaitEvent(2, other, e))

	start := time.Now()
	for _, w := range []struct {
		dev int
		s   gpu.Stream
	}{{0, s}, {0, c}, {2, other}} {
		b.False(b.ends(w.dev, w.s))
	}
	done, err := b.d.EventWait(0, e, 50*time.Millisecond)
	b.NoError(err)
	b.False(done)
	b.Less(time.Since(start), 5*time.Second)
	b.EqualValues(5, b.word(0, near), "nothing was copied")

	// The device works on, and so do its peers.
	fresh := b.stream(0)
	b.launch(0, fresh, b.kernel(0, "ball"), 1, 1, near, near, uint32(5))
	b.wait(0, fresh)
	b.EqualValues(5, b.word(1, far))

	// Freeing what the stalled work uses, and destroying its stream, do not wait for it.
	b.NoError(b.d.MemFree(1, far))
	b.NoError(b.d.StreamDestroy(0, s))
	b.NoError(b.d.EventDestroy(0, e))

	// A copy to Go memory behind it waits until the driver is closed.
	answer := make(chan error)
	go func() { answer <- b.d.CopyOut(0, c, make([]byte, 4), near) }()
	time.Sleep(20 * time.Millisecond)
	b.NoError(b.d.Close())
	select {
	case err := <-answer:
		b.ErrorIs(err, gpu.ErrClosed)
	case <-time.After(patience):
		t.Fatal("the copy outlived the driver")
	}
}

// TestStalledFault: a fault of the device ends its stalled work too, and whoever waits for it.
func TestStalledFault(t *testing.T) {
	b := newBench(t, emu.Config{Machine: "write-only", Devices: 2})
	b.NoError(b.d.EnablePeerAccess(0, 1))
	far, near := b.fives(1), b.fives(0)
	s, c, other := b.stream(0), b.stream(0), b.stream(1)
	b.launch(0, s, b.kernel(0, "load"), 1, 64, far, near)
	b.NoError(b.d.Copy(0, c, near, far, 4))
	e, err := b.d.EventCreate(0, false)
	b.NoError(err)
	b.NoError(b.d.EventRecord(0, e, c))
	b.NoError(b.d.StreamWaitEvent(1, other, e))
	b.False(b.ends(1, other))
	bad := b.stream(0)
	b.launch(0, bad, b.kernel(0, "store"), 1, 1, gpu.Ptr(64))
	f := b.faults(0, bad)
	b.Equal("store", f.Kernel)
	b.Same(f, b.faults(0, s))
	b.wait(1, other)
}

// TestStalledGraph: a graph whose copy never ends does not end, and its next launch waits.
func TestStalledGraph(t *testing.T) {
	b := newBench(t, emu.Config{Machine: "write-only", Devices: 2})
	b.NoError(b.d.EnablePeerAccess(0, 1))
	far, near := b.fives(1), b.fives(0)
	s, again := b.stream(0), b.stream(0)
	b.NoError(b.d.BeginCapture(0, s))
	b.NoError(b.d.Copy(0, s, near, far, 4))
	b.launch(0, s, b.kernel(0, "store"), 1, 1, near)
	g, err := b.d.EndCapture(0, s)
	b.NoError(err)
	x, err := b.d.GraphInstantiate(0, g)
	b.NoError(err)
	b.NoError(b.d.GraphLaunch(0, x, s))
	b.NoError(b.d.GraphLaunch(0, x, again))
	b.False(b.ends(0, s))
	b.False(b.ends(0, again))
	b.EqualValues(5, b.word(0, near))
	b.NoError(b.d.GraphExecDestroy(0, x))
	b.NoError(b.d.Close())
}

// TestPushOverWriteOnly: ranks that only write their peers, and poll their own memory, do work there.
func TestPushOverWriteOnly(t *testing.T) {
	b := newBench(t, emu.Config{Machine: "write-only", Devices: 2})
	b.NoError(b.d.EnablePeerAccess(0, 1))
	b.NoError(b.d.EnablePeerAccess(1, 0))
	p, q := b.zeroed(0, 4), b.zeroed(1, 4)
	s, r := b.stream(0), b.stream(1)
	b.launch(0, s, b.kernel(0, "ball"), 1, 1, p, q, uint32(100))
	b.launch(1, r, b.kernel(1, "ball"), 1, 1, q, p, uint32(100))
	b.wait(0, s)
	b.wait(1, r)
	require.EqualValues(t, 100, b.word(0, p))
	require.EqualValues(t, 100, b.word(1, q))
}
