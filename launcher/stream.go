package launcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
)

// Stream is a queue of work of one device. Work on one stream runs in order; streams are
// ordered among each other only by events. What a nil Stream is asked to do is refused.
type Stream struct {
	rt   *Runtime
	dev  int
	h    gpu.Stream
	life life

	// queue serialises what this runtime queues on the stream, and guards the fields below.
	queue sync.Mutex
	cfg   gpu.LaunchConfig // argument of Launch, kept here so that a launch allocates nothing
	last  string           // what was queued last, for timeouts
	lastK *Kernel          // set instead of last for kernels
}

// NewStream makes a stream on dev.
func (rt *Runtime) NewStream(dev int) (*Stream, error) {
	if err := rt.check("NewStream", dev); err != nil {
		return nil, err
	}
	h, err := rt.d.StreamCreate(dev)
	if err != nil {
		return nil, fmt.Errorf("new stream: %w", err)
	}
	return &Stream{rt: rt, dev: dev, h: h}, nil
}

// AdoptStream takes a stream that another library in this process made on dev, by its CUDA handle (a CUstream or cudaStream_t, such as
// PyTorch's torch.cuda.Stream.cuda_stream). It must belong to the device's primary context, as those of the CUDA runtime do, and
// outlive the Stream; Close only lets go of it. A handle that is no stream's cannot be told from one, and may crash. A stream that was
// made to synchronise with the default stream goes on doing so.
//
// A default stream (handle 0 to 2) is ErrInvalidHandle, one that is adopted already ErrInvalidValue, and an emulated device has none to
// adopt: ErrNotSupported.
func (rt *Runtime) AdoptStream(dev int, handle uintptr) (*Stream, error) {
	if err := rt.check("AdoptStream", dev); err != nil {
		return nil, err
	}
	if err := rt.d.StreamAdopt(dev, gpu.Stream(handle)); err != nil {
		return nil, fmt.Errorf("adopt stream: %w", err)
	}
	return &Stream{rt: rt, dev: dev, h: gpu.Stream(handle)}, nil
}

// Capturing is whether work queued on the stream is recorded into a graph instead of run, whoever began that. Of a capture that
// an earlier call has made void it says true, and ErrCapture.
func (s *Stream) Capturing() (bool, error) {
	if err := s.use("Capturing"); err != nil {
		return false, err
	}
	defer s.life.Leave()
	return s.rt.d.StreamCapturing(s.dev, s.h)
}

// Of is whether the stream is of this runtime.
func (s *Stream) Of(rt *Runtime) bool { return !s.null() && s.rt == rt }

// null is a Stream that NewStream did not make.
func (s *Stream) null() bool { return s == nil || s.rt == nil }

func (s *Stream) exists(op string) error {
	if s.null() {
		return invalid(op, -1, "null stream; make one with Runtime.NewStream")
	}
	return nil
}

// Device is the ordinal of the stream's device; -1 for a nil Stream.
func (s *Stream) Device() int {
	if s.null() {
		return -1
	}
	return s.dev
}

// Handle is the driver's handle (a CUstream on CUDA), valid until Close; 0 for a nil Stream.
func (s *Stream) Handle() uintptr {
	if s.null() {
		return 0
	}
	return uintptr(s.h)
}

func (s *Stream) String() string { return fmt.Sprintf("stream of device %d", s.Device()) }

// Sync waits for all work queued so far. It returns the work's failure if there was one, a
// *FaultError if that was a kernel's, or a *TimeoutError when ctx ends first.
func (s *Stream) Sync(ctx context.Context) error {
	if err := s.exists("Sync"); err != nil {
		return err
	}
	s.queue.Lock()
	last := s.last
	if s.lastK != nil {
		last = "kernel " + s.lastK.name
	}
	s.queue.Unlock()
	t := TimeoutError{What: s.String(), Device: s.dev, Last: last}
	return s.rt.wait(ctx, t, func(limit time.Duration) (bool, error) { return s.poll("Sync", limit) })
}

// Query says whether all work queued so far has ended. It does not wait.
func (s *Stream) Query() (bool, error) { return s.poll("Query", 0) }

func (s *Stream) poll(op string, limit time.Duration) (bool, error) {
	if err := s.use(op); err != nil {
		return false, err
	}
	defer s.life.Leave()
	return s.rt.d.StreamWait(s.dev, s.h, limit)
}

// Copy queues a copy of src to dst, which must have the same size in bytes and not overlap; otherwise it is
// ErrInvalidValue. Memory of two devices is copied by a peer copy, which needs no peer access.
func (s *Stream) Copy(dst, src Buffer) error {
	const op = "Copy"
	if err := s.operand(op, dst); err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	if err := s.operand(op, src); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if dst.n != src.n {
		return invalid(op, s.dev, "destination has %d bytes, source %d; slice them to the same size", dst.n, src.n)
	}
	d, c, n := dst.ptr(), src.ptr(), dst.n
	if n > 0 && d < c+gpu.Ptr(n) && c < d+gpu.Ptr(n) {
		return invalid(op, s.dev, "source and destination overlap")
	}
	local := func(b Buffer) bool { return b.a.dev == -1 || b.a.dev == s.dev }
	peer := !local(dst) || !local(src)
	if peer && (dst.a.dev == -1 || src.a.dev == -1) {
		return invalid(op, s.dev, "a copy between host memory and device %d needs a stream of that device",
			max(dst.a.dev, src.a.dev))
	}
	return s.submit(op, n == 0, "copy", func() error {
		if peer {
			return s.rt.d.CopyPeer(s.dev, s.h, d, dst.a.dev, c, src.a.dev, n)
		}
		return s.rt.d.Copy(s.dev, s.h, d, c, n)
	})
}

// CopyIn copies src to dst, of the same size in bytes, after the work queued on the stream, and returns when
// it is done. The wait for that work is bounded by ctx: errors are as of Sync, and ErrInvalidValue for sizes that differ.
func (s *Stream) CopyIn(ctx context.Context, dst Buffer, src []byte) error {
	const op = "CopyIn"
	if err := s.goCopy(op, dst, len(src)); err != nil {
		return err
	}
	return s.idle(ctx, op, len(src) == 0, func() error { return s.rt.d.CopyIn(s.dev, s.h, dst.ptr(), src) })
}

// CopyOut copies src to dst, of the same size in bytes, after the work queued on the stream, and returns
// when it is done. The wait for that work is bounded by ctx: errors are as of Sync, and ErrInvalidValue for sizes that differ.
func (s *Stream) CopyOut(ctx context.Context, dst []byte, src Buffer) error {
	const op = "CopyOut"
	if err := s.goCopy(op, src, len(dst)); err != nil {
		return err
	}
	return s.idle(ctx, op, len(dst) == 0, func() error { return s.rt.d.CopyOut(s.dev, s.h, dst, src.ptr()) })
}

// goCopy checks a copy of n bytes between b and Go memory.
func (s *Stream) goCopy(op string, b Buffer, n int) error {
	if err := s.near(op, b); err != nil {
		return err
	}
	if b.n != uint64(n) {
		return invalid(op, s.dev, "buffer has %d bytes, the Go slice %d; make them the same size", b.n, n)
	}
	return nil
}

// idle makes call with nothing queued on the stream before it: the driver waits for earlier
// work without a bound, so it must find none. The queue is held meanwhile, to keep it so.
func (s *Stream) idle(ctx context.Context, op string, empty bool, call func() error) error {
	for {
		if err := s.Sync(ctx); err != nil {
			return err
		}
		retry := false
		err := s.submit(op, false, "copy", func() error {
			done, err := s.rt.d.StreamWait(s.dev, s.h, 0)
			if retry = !done && err == nil; retry || err != nil || empty {
				return err
			}
			return call()
		})
		if !retry {
			return err
		}
	}
}

// Memset queues a fill of all of b, memory of the stream's device or of the host, with value.
func (s *Stream) Memset(b Buffer, value byte) error {
	const op = "Memset"
	if err := s.near(op, b); err != nil {
		return err
	}
	return s.submit(op, b.n == 0, "memset", func() error {
		return s.rt.d.Memset(s.dev, s.h, b.ptr(), value, b.n)
	})
}

// Record queues the recording of e, an event of the same device.
func (s *Stream) Record(e *Event) error {
	const op = "Record"
	if err := s.event(op, e); err != nil {
		return err
	}
	if e.dev != s.dev {
		return invalid(op, s.dev, "the event belongs to device %d; record it on a stream of that device", e.dev)
	}
	if !e.life.Enter() {
		return &ClosedError{op, e.String()}
	}
	defer e.life.Leave()
	return s.submit(op, false, "event record", func() error { return s.rt.d.EventRecord(s.dev, e.h, s.h) })
}

// Wait makes work queued later wait for what e has recorded so far. e may belong to another
// device. The host does not wait.
func (s *Stream) Wait(e *Event) error {
	const op = "Wait"
	if err := s.event(op, e); err != nil {
		return err
	}
	if !e.life.Enter() {
		return &ClosedError{op, e.String()}
	}
	defer e.life.Leave()
	return s.submit(op, false, "event wait", func() error { return s.rt.d.StreamWaitEvent(s.dev, s.h, e.h) })
}

// BeginCapture starts recording work into a graph instead of running it. Other streams join by
// waiting on an event recorded in the capture, and must be joined back before EndCapture. A stream that
// captures already is ErrCapture.
func (s *Stream) BeginCapture() error {
	return s.submit("BeginCapture", false, "capture", func() error { return s.rt.d.BeginCapture(s.dev, s.h) })
}

// EndCapture ends the recording and gives the graph. Failure, matching ErrCapture, ends it too.
func (s *Stream) EndCapture() (*Graph, error) {
	var h gpu.Graph
	err := s.submit("EndCapture", false, "capture", func() (err error) {
		h, err = s.rt.d.EndCapture(s.dev, s.h)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Graph{rt: s.rt, dev: s.dev, h: h}, nil
}

// Close destroys the stream. Work queued on it still runs. Closing again does nothing.
func (s *Stream) Close() error {
	if s.null() {
		return nil
	}
	return s.life.end(s.rt, func() error {
		if err := s.rt.d.StreamDestroy(s.dev, s.h); err != nil {
			return fmt.Errorf("close %s: %w", s, err)
		}
		return nil
	})
}

// use enters the stream's life, or says why not.
func (s *Stream) use(op string) error {
	if err := s.exists(op); err != nil {
		return err
	}
	if err := s.rt.alive(op); err != nil {
		return err
	}
	if !s.life.Enter() {
		return &ClosedError{op, s.String()}
	}
	return nil
}

// submit runs one driver call that queues work; an empty one only checks the stream.
func (s *Stream) submit(op string, empty bool, what string, call func() error) error {
	if err := s.use(op); err != nil {
		return err
	}
	defer s.life.Leave()
	if empty {
		return nil
	}
	s.queue.Lock()
	defer s.queue.Unlock()
	if err := call(); err != nil {
		return err
	}
	s.last, s.lastK = what, nil
	return nil
}

// operand checks a buffer of any device.
func (s *Stream) operand(op string, b Buffer) error {
	if err := s.exists(op); err != nil {
		return err
	}
	if err := b.check(op); err != nil {
		return err
	}
	if b.a.rt != s.rt {
		return invalid(op, s.dev, "the buffer belongs to another runtime")
	}
	return nil
}

// near checks a buffer that must be the stream's device's own, or host memory.
func (s *Stream) near(op string, b Buffer) error {
	if err := s.operand(op, b); err != nil {
		return err
	}
	if b.a.dev != -1 && b.a.dev != s.dev {
		return invalid(op, s.dev, "the buffer belongs to device %d; use a stream of that device", b.a.dev)
	}
	return nil
}

func (s *Stream) event(op string, e *Event) error {
	if err := s.exists(op); err != nil {
		return err
	}
	if e == nil {
		return invalid(op, s.dev, "nil event")
	}
	if e.rt != s.rt {
		return invalid(op, s.dev, "the event belongs to another runtime")
	}
	return nil
}
