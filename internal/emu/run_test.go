package emu_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
)

// schedule is the order in which the blocks of several kernels, on two devices, take tickets.
func schedule(t *testing.T, seed uint64) []uint32 {
	b := newBench(t, emu.Config{Devices: 2, Seed: seed})
	b.NoError(b.d.EnablePeerAccess(1, 0))
	const each, kernels = 20, 4
	out := b.zeroed(0, 4*(each*kernels+1))
	streams := make([]gpu.Stream, kernels)
	for i := range streams {
		streams[i] = b.stream(i % 2)
	}
	for i, s := range streams {
		b.launch(i%2, s, b.kernel(i%2, "order"), each, 64, out, uint32(1000*i))
	}
	for i, s := range streams {
		b.wait(i%2, s)
	}
	w := b.words(0, streams[0], out, each*kernels+1)
	b.Equal(uint32(each*kernels), w[0])
	return w[1:]
}

func TestDeterminism(t *testing.T) {
	orders := map[uint64][]uint32{}
	for seed := range uint64(6) {
		first := schedule(t, seed)
		for range 5 {
			require.Equal(t, first, schedule(t, seed), "seed %d", seed)
		}
		for other, o := range orders {
			require.NotEqual(t, o, first, "seeds %d and %d", other, seed)
		}
		orders[seed] = first
	}
}

// TestDeadlock: an endless kernel is reported with where it spins, and sticks to its device alone.
func TestDeadlock(t *testing.T) {
	b := newBench(t, emu.Config{Devices: 2, StepBudget: 20000})
	word := b.zeroed(0, 4)
	s := b.stream(0)
	b.launch(0, s, b.kernel(0, "ball"), 1, 1, word, word+0, uint32(5)) // plays with itself: ends
	b.wait(0, s)
	mine := b.zeroed(0, 4)
	b.launch(0, s, b.kernel(0, "ball"), 1, 1, mine, word, uint32(5))
	f := b.faults(0, s)
	b.ErrorIs(f, gpu.ErrDeadlock)
	b.Equal("ball", f.Kernel)
	b.Equal("emu.ptx", f.File)
	b.Equal(63, f.Line)
	b.Equal("ld.acquire.sys.u32 %r3, [%d1];", f.Text)
	b.Equal(0, f.Device)
	b.Equal("20000 warp instructions and no end; it waits for what never happens, or needs a StepBudget above that", f.Detail)
	_, err := b.d.MemAlloc(0, 4)
	b.Same(f, err)

	other := b.stream(1)
	word = b.zeroed(1, 4)
	b.launch(1, other, b.kernel(1, "ball"), 1, 1, word, word, uint32(5))
	b.wait(1, other)
}

// TestResidency: as many blocks as fit on the device can wait for each other, and not one more.
func TestResidency(t *testing.T) {
	for name, test := range map[string]struct {
		threads, resident uint32
	}{
		"by threads": {1024, 2 * 132},
		"by blocks":  {32, 32 * 132},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, emu.Config{Devices: 1, StepBudget: 200000})
			f, s := b.kernel(0, "meet"), b.stream(0)
			n, err := b.d.MaxActiveBlocks(0, f, int(test.threads), 0)
			b.NoError(err)
			b.Equal(int(test.resident), n*132)
			b.launch(0, s, f, test.resident, test.threads, b.zeroed(0, 4))
			b.wait(0, s)
		})
	}
	b := newBench(t, emu.Config{Devices: 1, StepBudget: 2000})
	f, s := b.kernel(0, "meet"), b.stream(0)
	b.launch(0, s, f, 2*132+1, 1024, b.zeroed(0, 4))
	fault := b.faults(0, s)
	b.ErrorIs(fault, gpu.ErrDeadlock)
	b.Equal("ld.acquire.gpu.u32 %r4, [%d1];", fault.Text)
}

// TestResidencyOfTwoGrids: two kernels that fit one by one but not together, each waiting for the other.
func TestResidencyOfTwoGrids(t *testing.T) {
	run := func(blocks uint32) (gpu.Driver, error) {
		b := newBench(t, emu.Config{Devices: 1, StepBudget: 3000})
		f, s1, s2 := b.kernel(0, "ball"), b.stream(0), b.stream(0)
		p := b.zeroed(0, 8)
		b.launch(0, s1, f, blocks, 1024, p, p+4, uint32(3))
		b.launch(0, s2, f, blocks, 1024, p+4, p, uint32(3))
		if _, err := b.d.StreamWait(0, s1, patience); err != nil {
			return b.d, err
		}
		_, err := b.d.StreamWait(0, s2, patience)
		return b.d, err
	}
	_, err := run(100)
	require.NoError(t, err)
	_, err = run(264)
	require.ErrorIs(t, err, gpu.ErrDeadlock)
}

func TestSMs(t *testing.T) {
	b := newBench(t, emu.Config{Devices: 1})
	out, s := b.zeroed(0, 4*132), b.stream(0)
	b.launch(0, s, b.kernel(0, "smid"), 132, 1024, out)
	seen := map[uint32]bool{}
	for _, sm := range b.words(0, s, out, 132) {
		b.True(sm >= 1 && sm <= 132, "block on SM %d", sm)
		seen[sm] = true
	}
	b.Len(seen, 132, "blocks spread over all SMs")
}

// TestRanks has ranks play ball without a bound: on one device and on two, seeded differently.
func TestRanks(t *testing.T) {
	for seed := range uint64(5) {
		for _, peer := range []int{0, 1} {
			b := newBench(t, emu.Config{Devices: 2, Seed: seed, StepBudget: 1 << 22})
			if peer != 0 {
				b.NoError(b.d.EnablePeerAccess(0, peer))
				b.NoError(b.d.EnablePeerAccess(peer, 0))
			}
			p, q := b.zeroed(0, 4), b.zeroed(peer, 4)
			s, r := b.stream(0), b.stream(peer)
			b.launch(0, s, b.kernel(0, "ball"), 1, 1, p, q, uint32(200))
			b.launch(peer, r, b.kernel(peer, "ball"), 1, 1, q, p, uint32(200))
			b.wait(0, s)
			b.wait(peer, r)
			b.Equal(uint32(200), b.words(0, s, p, 1)[0])
			b.Equal(uint32(200), b.words(peer, r, q, 1)[0])
		}
	}
}

// TestGoroutineRanks is TestRanks with a goroutine for each rank, launching late and waiting on its own.
func TestGoroutineRanks(t *testing.T) {
	const ranks, calls, rounds = 6, 30, 10
	b := newBench(t, emu.Config{Devices: 3})
	for i := range 3 {
		for j := range 3 {
			if i != j {
				b.NoError(b.d.EnablePeerAccess(i, j))
			}
		}
	}
	words := make([]gpu.Ptr, ranks)
	streams, kernels := make([]gpu.Stream, ranks), make([]gpu.Function, ranks)
	for i := range ranks {
		words[i], streams[i], kernels[i] = b.zeroed(i%3, 4), b.stream(i%3), b.kernel(i%3, "ball")
	}
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for i := range ranks {
		wg.Go(func() {
			for call := range calls {
				if (call+i)%7 == 0 {
					time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				}
				next := words[(i+1)%ranks]
				// Each call starts over from 1, where its own word is past already, and goes further than the last.
				err := launch(b.d, i%3, streams[i], kernels[i], 1, 1, words[i], next, uint32((call+1)*rounds))
				if err == nil {
					_, err = b.d.StreamWait(i%3, streams[i], patience)
				}
				if err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	start := time.Now()
	wg.Wait()
	if e := failed.Load(); e != nil {
		b.NoError(*e)
	}
	for i := range ranks {
		b.Equal(uint32(calls*rounds), b.words(i%3, streams[i], words[i], 1)[0])
	}
	t.Logf("%d ranks, %d calls in %v", ranks, calls, time.Since(start))
}

// TestClose: closing ends waits, whatever they wait for.
func TestClose(t *testing.T) {
	b := newBench(t, emu.Config{Devices: 2})
	word := b.zeroed(0, 4)
	f, s, r := b.kernel(0, "ball"), b.stream(0), b.stream(0)
	b.launch(0, s, f, 1, 1, word, b.alloc(0, 4), uint32(1)) // never ends
	e, err := b.d.EventCreate(0, false)
	b.NoError(err)
	b.NoError(b.d.EventRecord(0, e, s))
	b.NoError(b.d.StreamWaitEvent(0, r, e))
	answers := make(chan error, 4)
	go func() { _, err := b.d.StreamWait(0, s, time.Hour); answers <- err }()
	go func() { _, err := b.d.StreamWait(0, r, time.Hour); answers <- err }()
	go func() { _, err := b.d.EventWait(0, e, time.Hour); answers <- err }()
	go func() { answers <- b.d.CopyOut(0, s, make([]byte, 4), word) }()
	time.Sleep(20 * time.Millisecond)
	start := time.Now()
	b.NoError(b.d.Close())
	for range 4 {
		select {
		case err := <-answers:
			b.ErrorIs(err, gpu.ErrClosed)
		case <-time.After(patience):
			t.Fatal("a wait outlived the driver")
		}
	}
	b.Less(time.Since(start), 5*time.Second)
	b.Zero(b.d.Live())
}

// TestWaitHandover: the call that drives ends at its limit, and another that waits goes on driving.
func TestWaitHandover(t *testing.T) {
	b := newBench(t, emu.Config{Devices: 1})
	word, other := b.zeroed(0, 4), b.alloc(0, 4)
	f, s, r := b.kernel(0, "ball"), b.stream(0), b.stream(0)
	b.launch(0, s, f, 1, 1, word, other, uint32(1)) // waits for word
	short := make(chan bool)
	long := make(chan bool)
	go func() { done, _ := b.d.StreamWait(0, s, 30*time.Millisecond); short <- done }()
	time.Sleep(5 * time.Millisecond)
	go func() { done, _ := b.d.StreamWait(0, s, patience); long <- done }()
	b.False(<-short)
	b.NoError(b.d.Memset(0, r, word, 1, 4)) // queued only: the long wait must run it
	b.True(<-long)
}

// TestLaunchAllocs: launching allocates nothing once as much has been in flight before.
func TestLaunchAllocs(t *testing.T) {
	b := newBench(t, emu.Config{Devices: 1})
	f, s, p := b.kernel(0, "store"), b.stream(0), b.alloc(0, 4)
	cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}}
	args := make([]byte, 8)
	for i := range args {
		args[i] = byte(p >> (8 * i))
	}
	for range 300 {
		b.NoError(b.d.Launch(0, s, f, &cfg, args))
	}
	b.wait(0, s)
	b.Zero(testing.AllocsPerRun(200, func() {
		if err := b.d.Launch(0, s, f, &cfg, args); err != nil {
			panic(err)
		}
	}))
	b.wait(0, s)
}

func BenchmarkLaunchWait(b *testing.B) {
	d, err := emu.Open(emu.Config{Devices: 1})
	require.NoError(b, err)
	defer func() { _ = d.Close() }()
	m, err := d.ModuleLoad(0, "emu.ptx", emuPTX)
	require.NoError(b, err)
	f, err := d.ModuleFunction(0, m, "store")
	require.NoError(b, err)
	s, err := d.StreamCreate(0)
	require.NoError(b, err)
	p, err := d.MemAlloc(0, 4)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if err := launch(d, 0, s, f, 1, 32, p); err != nil {
			b.Fatal(err)
		}
		if done, err := d.StreamWait(0, s, patience); !done || err != nil {
			b.Fatal(done, err)
		}
	}
}
