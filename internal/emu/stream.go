package emu

import (
	"slices"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
)

// stream is a queue of ops, of which the first is running.
type stream struct {
	dev                  *device
	head, tail           *op
	submitted, completed uint64
	destroyed            bool

	capture *capture // when capturing
	deps    []int    // and the nodes that its next one depends on
}

func (s *stream) owner() *device { return s.dev }

// event is recorded again and again; waits are for one recording.
type event struct {
	dev    *device
	timing bool
	last   *record // nil until recorded

	capture *capture // when last recorded in a capture
	deps    []int
}

func (e *event) owner() *device { return e.dev }

// lookup finds a handle of one kind, which must belong to the device.
func lookup[H ~uintptr, T interface{ owner() *device }](d *driver, op string, dev int, table map[H]T, h H, what string) (T, error) {
	t, err := lookupAny(d, op, dev, table, h, what)
	if err == nil && t.owner().ordinal != dev {
		var none T
		return none, fail(op, dev, gpu.ErrInvalidHandle, "the %s %#x belongs to device %d", what, h, t.owner().ordinal)
	}
	return t, err
}

// lookupAny is lookup for handles of any device.
func lookupAny[H ~uintptr, T any](d *driver, op string, dev int, table map[H]T, h H, what string) (T, error) {
	t, ok := table[h]
	if !ok {
		return t, fail(op, dev, gpu.ErrInvalidHandle, "%#x is no %s, or a destroyed one", h, what)
	}
	return t, nil
}

// stream checks device and stream for a call that queues work or waits.
func (d *driver) stream(op string, dev int, h gpu.Stream) (*stream, error) {
	if _, err := d.healthy(op, dev); err != nil {
		return nil, err
	}
	return lookup(d, op, dev, d.streams, h, "stream")
}

// submit queues an op on its stream, or makes it a node of the graph being captured there. It does not run it.
func (d *driver) submit(op string, s *stream, o *op) error {
	if s.capture != nil {
		err := s.capture.check(op, s)
		if err == nil {
			s.deps = append(s.deps[:0], s.capture.add(o, s.deps))
		}
		d.recycle(o)
		return err
	}
	o.stream = s
	if s.tail == nil {
		s.head = o
		d.sched.starting = append(d.sched.starting, o)
	} else {
		s.tail.next = o
	}
	s.tail = o
	s.submitted++
	return nil
}

func (d *driver) StreamCreate(dev int) (gpu.Stream, error) {
	d.lock()
	defer d.mu.Unlock()
	v, err := d.healthy("StreamCreate", dev)
	if err != nil {
		return 0, err
	}
	h, s := gpu.Stream(d.handle()), &stream{dev: v}
	d.streams[h] = s
	d.queues = append(d.queues, s)
	d.counts.Streams++
	return h, nil
}

// StreamAdopt implements gpu.Driver: nobody else makes emulated streams.
func (d *driver) StreamAdopt(dev int, h gpu.Stream) error {
	const op = "StreamAdopt"
	d.lock()
	defer d.mu.Unlock()
	if _, err := d.healthy(op, dev); err != nil {
		return err
	}
	return fail(op, dev, gpu.ErrNotSupported, "stream %#x: emulated devices have no streams but those made with StreamCreate", uintptr(h))
}

func (d *driver) StreamCapturing(dev int, h gpu.Stream) (bool, error) {
	const op = "StreamCapturing"
	d.lock()
	defer d.mu.Unlock()
	if _, err := d.healthy(op, dev); err != nil {
		return false, err
	}
	s, err := lookup(d, op, dev, d.streams, h, "stream")
	if err != nil || s.capture == nil {
		return false, err
	}
	return true, s.capture.check(op, s)
}

// StreamDestroy implements gpu.Driver. Work that is queued still runs, as on CUDA.
func (d *driver) StreamDestroy(dev int, h gpu.Stream) error {
	const op = "StreamDestroy"
	d.lock()
	defer d.mu.Unlock()
	v, err := d.device(op, dev)
	if err != nil {
		return err
	}
	s, err := lookup(d, op, dev, d.streams, h, "stream")
	if err != nil {
		return err
	}
	if s.capture != nil {
		return s.capture.spoil(op, dev, "the stream is capturing; end the capture first")
	}
	delete(d.streams, h)
	d.counts.Streams--
	s.destroyed = true
	if s.head == nil {
		d.forget(s)
	}
	return v.fault
}

// forget drops a destroyed stream without work.
func (d *driver) forget(s *stream) {
	d.queues = slices.DeleteFunc(d.queues, func(q *stream) bool { return q == s })
}

func (d *driver) StreamWait(dev int, h gpu.Stream, limit time.Duration) (bool, error) {
	const op = "StreamWait"
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(op, dev, h)
	if err != nil {
		return false, err
	}
	if s.capture != nil {
		return false, s.capture.spoil(op, dev, "the stream is capturing, and a capture runs nothing to wait for")
	}
	return d.settle(op, &goal{dev: s.dev, queue: s, ticket: s.submitted}, limit)
}

// settle waits for a goal and turns the outcome into a driver's answer.
func (d *driver) settle(op string, g *goal, limit time.Duration) (bool, error) {
	d.await(g, limit)
	if d.closed {
		return false, closedError(op)
	}
	if g.dev.fault != nil {
		return false, g.dev.fault
	}
	return g.done(), nil
}

func (d *driver) StreamWaitEvent(dev int, h gpu.Stream, ev gpu.Event) error {
	const op = "StreamWaitEvent"
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(op, dev, h)
	if err != nil {
		return err
	}
	e, err := lookupAny(d, op, dev, d.events, ev, "event")
	if err != nil {
		return err
	}
	if s.capture != nil || e.capture != nil {
		return s.join(op, e)
	}
	if e.last == nil || e.last.done {
		return nil
	}
	o := d.newOp(opWait, s.dev)
	o.rec = e.last
	return d.submit(op, s, o)
}

func (d *driver) EventCreate(dev int, timing bool) (gpu.Event, error) {
	d.lock()
	defer d.mu.Unlock()
	v, err := d.healthy("EventCreate", dev)
	if err != nil {
		return 0, err
	}
	h := gpu.Event(d.handle())
	d.events[h] = &event{dev: v, timing: timing}
	d.counts.Events++
	return h, nil
}

// EventDestroy implements gpu.Driver. Waits already queued keep what they wait for.
func (d *driver) EventDestroy(dev int, h gpu.Event) error {
	const op = "EventDestroy"
	d.lock()
	defer d.mu.Unlock()
	v, err := d.device(op, dev)
	if err != nil {
		return err
	}
	if _, err := lookup(d, op, dev, d.events, h, "event"); err != nil {
		return err
	}
	delete(d.events, h)
	d.counts.Events--
	return v.fault
}

func (d *driver) EventRecord(dev int, ev gpu.Event, h gpu.Stream) error {
	const op = "EventRecord"
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(op, dev, h)
	if err != nil {
		return err
	}
	e, err := lookup(d, op, dev, d.events, ev, "event")
	if err != nil {
		return err
	}
	if s.capture != nil {
		if err := s.capture.check(op, s); err != nil {
			return err
		}
		e.capture, e.deps = s.capture, slices.Clone(s.deps)
		return nil
	}
	e.capture, e.deps = nil, nil
	e.last = &record{}
	o := d.newOp(opRecord, s.dev)
	o.rec = e.last
	return d.submit(op, s, o)
}

// event checks device and event for a call of the host about its last recording.
func (d *driver) event(op string, dev int, h gpu.Event) (*event, error) {
	if _, err := d.healthy(op, dev); err != nil {
		return nil, err
	}
	e, err := lookup(d, op, dev, d.events, h, "event")
	if err != nil {
		return nil, err
	}
	if e.capture != nil {
		return nil, e.capture.spoil(op, dev, "the event was last recorded in a capture, where nothing runs")
	}
	return e, nil
}

func (d *driver) EventWait(dev int, h gpu.Event, limit time.Duration) (bool, error) {
	const op = "EventWait"
	d.lock()
	defer d.mu.Unlock()
	e, err := d.event(op, dev, h)
	if err != nil {
		return false, err
	}
	if e.last == nil {
		return true, nil
	}
	return d.settle(op, &goal{dev: e.dev, rec: e.last}, limit)
}

// EventElapsed implements gpu.Driver: the wall time that the emulation took.
func (d *driver) EventElapsed(dev int, from, to gpu.Event) (time.Duration, error) {
	const op = "EventElapsed"
	d.lock()
	defer d.mu.Unlock()
	var ends [2]time.Time
	for i, h := range []gpu.Event{from, to} {
		e, err := d.event(op, dev, h)
		if err != nil {
			return 0, err
		}
		switch {
		case !e.timing:
			return 0, fail(op, dev, gpu.ErrInvalidValue, "event %#x was created without timing", h)
		case e.last == nil:
			return 0, fail(op, dev, gpu.ErrInvalidValue, "event %#x was never recorded", h)
		}
		done, err := d.settle(op, &goal{dev: e.dev, rec: e.last}, 0)
		if err != nil {
			return 0, err
		}
		if !done {
			return 0, fail(op, dev, gpu.ErrInvalidValue, "event %#x has not happened yet; wait for it first", h)
		}
		ends[i] = e.last.at
	}
	return ends[1].Sub(ends[0]), nil
}
