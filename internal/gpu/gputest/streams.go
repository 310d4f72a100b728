package gputest

import (
	"sync"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
)

// testStreamOrder queues many small ops that only give the right answer in order.
func testStreamOrder(c *ctx) {
	const n = 256
	s := c.stream(0)
	a, b := c.alloc(0, 4*n), c.alloc(0, 4*n)
	mod := c.kernels(0)
	fill, copyadd := c.function(0, mod, "fill"), c.function(0, mod, "copyadd")
	c.launch(0, s, fill, 1, 256, a, uint32(10), uint32(n))
	want := uint32(10)
	for i := range uint32(20) {
		c.launch(0, s, copyadd, 1, 256, b, a, i, uint32(n))
		c.NoError(c.d.Memset(0, s, a, 0, 4*n))
		c.NoError(c.d.Copy(0, s, a, b, 4*n))
		want += i
	}
	c.Equal(count(want, n), c.getWords(0, s, a, n))
}

func testStreamWait(c *ctx) {
	s := c.stream(0)
	done, err := c.d.StreamWait(0, s, 0)
	c.NoError(err)
	c.True(done, "a stream without work is done")

	m := c.host(64)
	c.launch(0, s, c.kernel(0, "poll"), 1, 1, m.Ptr, uint32(1), m.Ptr+4, patience)
	start := time.Now()
	done, err = c.d.StreamWait(0, s, 20*time.Millisecond)
	c.NoError(err)
	c.False(done)
	took := time.Since(start)
	c.GreaterOrEqual(took, 20*time.Millisecond)
	c.Less(took, 5*time.Second, "the wait went on long after its limit")
	c.NoError(c.d.HostStore32(m, 0, 1))
	for end := time.Now().Add(patience); ; { // asking alone gets there too
		done, err := c.d.StreamWait(0, s, 0)
		c.NoError(err)
		if done {
			break
		}
		c.True(time.Now().Before(end), "never done")
	}
}

// testStreamsOverlap has one stream wait for what a later launch on another stream stores.
func testStreamsOverlap(c *ctx) {
	m := c.host(64)
	mod := c.kernels(0)
	poll, later := c.function(0, mod, "poll"), c.function(0, mod, "later")
	var streams []gpu.Stream
	for i := range uint32(4) { // each waits for the next one's store
		s := c.stream(0)
		streams = append(streams, s)
		c.launch(0, s, poll, 1, 1, m.Ptr+gpu.Ptr(4*i+4), uint32(1), m.Ptr+gpu.Ptr(4*i), patience)
	}
	last := c.stream(0)
	c.launch(0, last, later, 1, 1, m.Ptr+16, uint32(1), time.Millisecond)
	for _, s := range append(streams, last) {
		c.wait(0, s)
	}
	c.Equal([]uint32{1, 1, 1, 1, 1}, toWords(m.Bytes[:20]))
}

func testEvents(c *ctx) {
	s := c.stream(0)
	for _, timing := range []bool{false, true} {
		e := c.event(0, timing)
		done, err := c.d.EventWait(0, e, 0)
		c.NoError(err)
		c.True(done, "an event never recorded is done")
		c.NoError(c.d.StreamWaitEvent(0, s, e), "waiting for it is nothing")
		c.wait(0, s)

		m := c.host(64)
		c.launch(0, s, c.kernel(0, "poll"), 1, 1, m.Ptr, uint32(1), m.Ptr+4, patience)
		c.NoError(c.d.EventRecord(0, e, s))
		for _, limit := range []time.Duration{0, 5 * time.Millisecond} {
			done, err = c.d.EventWait(0, e, limit)
			c.NoError(err)
			c.False(done)
		}
		c.NoError(c.d.HostStore32(m, 0, 1))
		done, err = c.d.EventWait(0, e, patience)
		c.NoError(err)
		c.True(done)
		c.Equal(uint32(1), toWords(m.Bytes)[1], "the event came before the kernel ahead of it ended")
		c.wait(0, s)
	}
}

// testEventsAcrossDevices passes a buffer around all devices, each step ordered by an event alone.
func testEventsAcrossDevices(c *ctx) {
	c.second()
	const n = 1000
	devices := c.d.DeviceCount()
	bufs, streams, events := make([]gpu.Ptr, devices), make([]gpu.Stream, devices), make([]gpu.Event, devices)
	adds := make([]gpu.Function, devices)
	for i := range devices {
		bufs[i], streams[i], events[i] = c.alloc(i, 4*n), c.stream(i), c.event(i, false)
		adds[i] = c.kernel(i, "copyadd")
		c.NoError(c.d.Memset(i, streams[i], bufs[i], 0xFF, 4*n))
		c.wait(i, streams[i])
	}
	gate := c.host(64)
	c.put(0, streams[0], bufs[0], fromWords(count(0, n)...))
	c.launch(0, streams[0], c.kernel(0, "poll"), 1, 1, gate.Ptr, uint32(1), gate.Ptr+4, patience)
	for hop := range 3 * devices {
		from, to := hop%devices, (hop+1)%devices
		c.launch(from, streams[from], adds[from], 8, 128, bufs[from], bufs[from], uint32(1), uint32(n))
		c.NoError(c.d.CopyPeer(from, streams[from], bufs[to], to, bufs[from], from, 4*n))
		c.NoError(c.d.EventRecord(from, events[from], streams[from]))
		c.NoError(c.d.StreamWaitEvent(to, streams[to], events[from]))
	}
	done, err := c.d.StreamWait(0, streams[0], 0)
	c.NoError(err)
	c.False(done)
	c.NoError(c.d.HostStore32(gate, 0, 1))
	c.wait(0, streams[0])
	c.Equal(count(uint32(3*devices), n), c.getWords(0, streams[0], bufs[0], n))
	for i := range devices {
		c.wait(i, streams[i])
	}
}

// testEventRerecorded: a wait is for the recording made before it, not for later ones.
func testEventRerecorded(c *ctx) {
	a, b := c.stream(0), c.stream(0)
	m := c.host(64)
	e := c.event(0, false)
	c.NoError(c.d.EventRecord(0, e, a))
	c.NoError(c.d.StreamWaitEvent(0, b, e))
	c.launch(0, a, c.kernel(0, "poll"), 1, 1, m.Ptr, uint32(1), m.Ptr+4, patience)
	c.NoError(c.d.EventRecord(0, e, a))
	c.wait(0, b) // not held up by the kernel
	done, err := c.d.EventWait(0, e, 0)
	c.NoError(err)
	c.False(done, "the second recording is behind the kernel")
	c.NoError(c.d.HostStore32(m, 0, 1))
	done, err = c.d.EventWait(0, e, patience)
	c.NoError(err)
	c.True(done)
	c.wait(0, a)
}

func testEventElapsed(c *ctx) {
	const busy = 5 * time.Millisecond
	s := c.stream(0)
	from, to, untimed, unused := c.event(0, true), c.event(0, true), c.event(0, false), c.event(0, true)
	m := c.host(64)
	later := c.kernel(0, "later")
	c.NoError(c.d.EventRecord(0, from, s))
	c.launch(0, s, later, 1, 1, m.Ptr, uint32(1), busy)
	c.NoError(c.d.EventRecord(0, to, s))
	c.NoError(c.d.EventRecord(0, untimed, s))
	c.wait(0, s)
	took, err := c.d.EventElapsed(0, from, to)
	c.NoError(err)
	c.Greater(took, busy*8/10)
	c.Less(took, patience)
	_, err = c.d.EventElapsed(0, from, untimed)
	c.is(err, gpu.ErrInvalidValue, "without timing")
	_, err = c.d.EventElapsed(0, unused, to)
	c.is(err, gpu.ErrInvalidValue, "never recorded")
	c.NoError(c.d.HostStore32(m, 0, 0))
	c.launch(0, s, c.kernel(0, "poll"), 1, 1, m.Ptr, uint32(1), m.Ptr+4, patience)
	c.NoError(c.d.EventRecord(0, to, s))
	_, err = c.d.EventElapsed(0, from, to)
	c.is(err, gpu.ErrInvalidValue, "not there yet")
	c.NoError(c.d.HostStore32(m, 0, 1))
	c.wait(0, s)
}

// testCrossStream: b's copy must see what a's slow kernel stores, because of the event alone.
func testCrossStream(c *ctx) {
	a, b := c.stream(0), c.stream(0)
	p := c.alloc(0, 4)
	m := c.host(4)
	e := c.event(0, false)
	later := c.kernel(0, "later")
	c.NoError(c.d.Memset(0, a, p, 0, 4))
	c.wait(0, a)
	for round := uint32(1); round <= 3; round++ {
		c.launch(0, a, later, 1, 1, p, round, 3*time.Millisecond)
		c.NoError(c.d.EventRecord(0, e, a))
		c.NoError(c.d.StreamWaitEvent(0, b, e))
		c.NoError(c.d.Copy(0, b, m.Ptr, p, 4))
		c.wait(0, b)
		c.Equal(round, toWords(m.Bytes)[0])
	}
	c.wait(0, a)
}

// testDestroyWithWork destroys a stream and an event while work uses them; the work still runs.
func testDestroyWithWork(c *ctx) {
	m := c.host(64)
	mod := c.kernels(0)
	b := c.stream(0)
	a, err := c.d.StreamCreate(0)
	c.NoError(err)
	e, err := c.d.EventCreate(0, false)
	c.NoError(err)
	c.launch(0, a, c.function(0, mod, "later"), 1, 1, m.Ptr, uint32(4), 3*time.Millisecond)
	c.NoError(c.d.EventRecord(0, e, a))
	c.NoError(c.d.StreamWaitEvent(0, b, e))
	c.NoError(c.d.Copy(0, b, m.Ptr+4, m.Ptr, 4))
	c.NoError(c.d.EventDestroy(0, e))
	c.NoError(c.d.StreamDestroy(0, a))
	c.wait(0, b)
	c.Equal([]uint32{4, 4}, toWords(m.Bytes[:8]))
}

// testGoroutines uses one driver from many goroutines, each with its own stream, on all devices.
func testGoroutines(c *ctx) {
	const workers, rounds, n = 8, 15, 500
	type worker struct {
		dev    int
		stream gpu.Stream
		buf    gpu.Ptr
		add    gpu.Function
		event  gpu.Event
	}
	var all []worker
	for i := range workers {
		dev := i % c.d.DeviceCount()
		all = append(all, worker{dev, c.stream(dev), c.alloc(dev, 4*n), c.kernel(dev, "copyadd"), c.event(dev, false)})
	}
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i, w := range all {
		wg.Go(func() { errs[i] = work(c.d, i, w.dev, w.stream, w.buf, w.add, w.event, rounds, n) })
	}
	wg.Wait()
	for _, err := range errs {
		c.NoError(err)
	}
	for i, w := range all {
		c.Equal(count(uint32(1000*i)+rounds*(rounds-1)/2, n), c.getWords(w.dev, w.stream, w.buf, n))
	}
}

// work is one goroutine's share. It returns errors, for only the test's own goroutine may fail it.
func work(d gpu.Driver, id, dev int, s gpu.Stream, buf gpu.Ptr, add gpu.Function, e gpu.Event, rounds, n int) error {
	if err := d.CopyIn(dev, s, buf, fromWords(count(uint32(1000*id), n)...)); err != nil {
		return err
	}
	cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: 4, Y: 1, Z: 1}, Block: gpu.Dim3{X: 128, Y: 1, Z: 1}}
	for round := range uint32(rounds) {
		if err := d.Launch(dev, s, add, &cfg, pack(buf, buf, round, uint32(n))); err != nil {
			return err
		}
		if err := d.EventRecord(dev, e, s); err != nil {
			return err
		}
		if round%3 != 0 {
			continue
		}
		if done, err := d.EventWait(dev, e, patience); err != nil || !done {
			return &unfinished{err}
		}
		p, err := d.MemAlloc(dev, 100)
		if err != nil {
			return err
		}
		if err := d.MemFree(dev, p); err != nil {
			return err
		}
	}
	if done, err := d.StreamWait(dev, s, patience); err != nil || !done {
		return &unfinished{err}
	}
	return nil
}

type unfinished struct{ err error }

func (u *unfinished) Error() string {
	if u.err != nil {
		return u.err.Error()
	}
	return "work did not end in time"
}
