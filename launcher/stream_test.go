package launcher

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

// must ends the test on an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

func TestStreamCopies(t *testing.T) {
	rt, f := openFake(t, 3)
	buf, stream := must[Buffer](t), must[*Stream](t)
	s := stream(rt.NewStream(0))
	a, b := buf(rt.Alloc(0, 8)), buf(rt.Alloc(0, 8))
	one, two := buf(rt.Alloc(1, 8)), buf(rt.Alloc(2, 8))
	h := must[*HostBuffer](t)(rt.AllocHost(8))
	half := buf(a.Slice(0, 4))
	other := OpenWith(newFake(1))
	foreign := buf(other.Alloc(0, 8))
	var null Buffer

	tests := []struct {
		name     string
		dst, src Buffer
		call     string // the driver's call, "" when refused
		msg      string
	}{
		{"same device", a, b, "copy on 0", ""},
		{"from host", a, h.Buffer(), "copy on 0", ""},
		{"to host", h.Buffer(), a, "copy on 0", ""},
		{"from peer", a, one, "peer copy 0<-1 on 0", ""},
		{"to peer", one, a, "peer copy 1<-0 on 0", ""},
		{"between two others", one, two, "peer copy 1<-2 on 0", ""},
		{"host to another device", one, h.Buffer(), "", "needs a stream of that device"},
		{"sizes", half, b, "", "destination has 4 bytes, source 8"},
		{"overlap", half, buf(a.Slice(3, 4)), "", "overlap"},
		{"neighbours", half, buf(a.Slice(4, 4)), "copy on 0", ""},
		{"null destination", null, a, "", "destination: Copy: invalid value: null buffer"},
		{"null source", a, null, "", "source: Copy: invalid value: null buffer"},
		{"another runtime", a, foreign, "", "another runtime"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.noted()
			err := s.Copy(tt.dst, tt.src)
			if tt.call == "" {
				require.ErrorIs(t, err, ErrInvalidValue)
				require.ErrorContains(t, err, tt.msg)
				require.Empty(t, f.noted())
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{tt.call}, f.noted())
		})
	}

	ctx := t.Context()
	require.NoError(t, s.CopyIn(ctx, a, []byte("12345678")))
	require.NoError(t, s.Copy(one, a))
	out := make([]byte, 8)
	require.ErrorContains(t, s.CopyOut(ctx, out, one), "use a stream of that device")
	require.NoError(t, s.Copy(b, one))
	require.NoError(t, s.Memset(half, 'x'))
	require.NoError(t, s.CopyOut(ctx, out, b))
	require.Equal(t, "12345678", string(out))
	require.NoError(t, s.CopyOut(ctx, out, a))
	require.Equal(t, "xxxx5678", string(out))

	require.ErrorIs(t, s.CopyIn(ctx, a, out[:7]), ErrInvalidValue)
	require.ErrorIs(t, s.CopyOut(ctx, out[:7], a), ErrInvalidValue)
	require.ErrorIs(t, s.Memset(one, 0), ErrInvalidValue)
	empty := buf(a.Slice(8, 0))
	f.noted()
	require.NoError(t, s.Copy(empty, buf(b.Slice(0, 0))))
	require.NoError(t, s.CopyIn(ctx, empty, nil))
	require.NoError(t, s.Memset(empty, 1))
	require.Empty(t, f.noted(), "nothing to do, nothing queued")

	for _, free := range []func() error{a.Free, b.Free, one.Free, two.Free, h.Free, s.Close, foreign.Free, other.Close} {
		require.NoError(t, free())
	}
}

func TestWaitsAreBounded(t *testing.T) {
	f := newFake(1)
	rt := newRuntime(f, "", 30*time.Millisecond)
	s, e := must[*Stream](t)(rt.NewStream(0)), must[*Event](t)(rt.NewEvent(0, false))
	b := must[Buffer](t)(rt.Alloc(0, 4))
	require.NoError(t, s.Memset(b, 1))
	require.NoError(t, s.Sync(context.Background()))
	f.stuck.Store(true)
	f.noted()

	ownCause := errors.New("rank 3 has left")
	contexts := []struct {
		name  string
		ctx   func() (context.Context, context.CancelFunc)
		cause error
	}{
		{"no deadline", func() (context.Context, context.CancelFunc) { return context.Background(), func() {} }, context.DeadlineExceeded},
		{"deadline", func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 5*time.Millisecond)
		}, context.DeadlineExceeded},
		{"cancelled before", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		}, context.Canceled},
		{"cancelled during", func() (context.Context, context.CancelFunc) {
			far, stop := context.WithTimeout(context.Background(), time.Minute) // beyond the runtime's own limit
			ctx, cancel := context.WithCancelCause(far)
			time.AfterFunc(5*time.Millisecond, func() { cancel(ownCause) })
			return ctx, func() { cancel(nil); stop() }
		}, ownCause},
	}
	waits := []struct {
		name string
		wait func(context.Context) error
		what string
		last string
	}{
		{"stream", s.Sync, "stream of device 0", "memset"},
		{"event", e.Sync, "event of device 0", ""},
		{"copy in", func(ctx context.Context) error { return s.CopyIn(ctx, b, make([]byte, 4)) }, "stream of device 0", "memset"},
		{"copy out", func(ctx context.Context) error { return s.CopyOut(ctx, make([]byte, 4), b) }, "stream of device 0", "memset"},
	}
	for _, c := range contexts {
		for _, w := range waits {
			t.Run(w.name+" "+c.name, func(t *testing.T) {
				ctx, cancel := c.ctx()
				defer cancel()
				start := time.Now()
				err := w.wait(ctx)
				require.Less(t, time.Since(start), 5*time.Second)
				var te *TimeoutError
				require.ErrorAs(t, err, &te)
				require.True(t, te.Timeout())
				require.ErrorIs(t, err, c.cause)
				require.Equal(t, w.what, te.What)
				require.Equal(t, w.last, te.Last)
			})
		}
	}
	require.Empty(t, f.noted(), "no copy is started behind stuck work")

	done, err := s.Query()
	require.NoError(t, err)
	require.False(t, done)
	f.stuck.Store(false)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, s.Sync(ctx), "work that is done is no timeout")
	done, err = e.Query()
	require.NoError(t, err)
	require.True(t, done)
	f.failOn = "wait"
	f.fail.Store(&gpu.Error{Op: "StreamWait", Kind: gpu.ErrIllegalAddress})
	require.ErrorIs(t, s.Sync(ctx), ErrIllegalAddress)

	for _, free := range []func() error{b.Free, s.Close, e.Close, rt.Close} {
		require.NoError(t, free())
	}
}

func TestEventsAndStreams(t *testing.T) {
	rt, f := openFake(t, 2)
	s0, s1 := must[*Stream](t)(rt.NewStream(0)), must[*Stream](t)(rt.NewStream(1))
	a, b := must[*Event](t)(rt.NewEvent(0, true)), must[*Event](t)(rt.NewEvent(0, true))
	plain, far := must[*Event](t)(rt.NewEvent(0, false)), must[*Event](t)(rt.NewEvent(1, true))
	require.Equal(t, 1, far.Device())
	require.Equal(t, 1, s1.Device())
	require.NotZero(t, s1.Handle())

	require.NoError(t, s0.Record(a))
	require.NoError(t, s1.Wait(a), "events order streams of different devices")
	require.Equal(t, []string{"record on 0", "event wait on 1"}, f.noted())
	require.ErrorContains(t, s1.Record(a), "belongs to device 0")
	require.ErrorIs(t, s0.Record(nil), ErrInvalidValue)
	require.ErrorIs(t, s0.Wait(nil), ErrInvalidValue)

	d, err := b.Elapsed(a)
	require.NoError(t, err)
	require.Equal(t, time.Microsecond, d)
	d, err = a.Elapsed(a)
	require.NoError(t, err)
	require.Zero(t, d)
	for _, from := range []*Event{nil, plain, far} {
		_, err = b.Elapsed(from)
		require.ErrorIs(t, err, ErrInvalidValue)
	}
	_, err = plain.Elapsed(a)
	require.ErrorContains(t, err, "without timing")

	other := OpenWith(newFake(1))
	e := must[*Event](t)(other.NewEvent(0, true))
	require.ErrorContains(t, s0.Record(e), "another runtime")
	require.ErrorContains(t, s0.Wait(e), "another runtime")
	_, err = a.Elapsed(e)
	require.ErrorIs(t, err, ErrInvalidValue)
	require.NoError(t, e.Close())
	require.NoError(t, other.Close())

	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	require.ErrorIs(t, s0.Record(a), ErrClosed)
	require.ErrorIs(t, s0.Wait(a), ErrClosed)
	require.ErrorIs(t, a.Sync(t.Context()), ErrClosed)
	_, err = b.Elapsed(a)
	require.ErrorIs(t, err, ErrClosed)
	_, err = a.Query()
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, s0.Close())
	require.NoError(t, s0.Close())
	require.ErrorIs(t, s0.Record(b), ErrClosed)
	require.ErrorIs(t, s0.BeginCapture(), ErrClosed)
	require.ErrorContains(t, s0.Sync(t.Context()), "stream of device 0 is closed")
	for _, c := range []interface{ Close() error }{s1, b, plain, far} {
		require.NoError(t, c.Close())
	}
	_, err = rt.NewStream(2)
	require.ErrorIs(t, err, ErrInvalidValue)
	_, err = rt.NewEvent(-1, false)
	require.ErrorIs(t, err, ErrInvalidValue)
}

func TestGraph(t *testing.T) {
	rt, f := openFake(t, 2)
	s, far := must[*Stream](t)(rt.NewStream(0)), must[*Stream](t)(rt.NewStream(1))
	require.NoError(t, s.BeginCapture())
	g := must[*Graph](t)(s.EndCapture())
	x := must[*Exec](t)(g.Instantiate())
	require.NoError(t, g.Close())
	require.NoError(t, g.Close())
	_, err := g.Instantiate()
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, x.Launch(s), "an executable outlives its graph")
	require.Equal(t, []string{"begin on 0", "end on 0", "graph on 0"}, f.noted())
	require.ErrorIs(t, x.Launch(nil), ErrInvalidValue)
	require.ErrorContains(t, x.Launch(far), "use one of device 0")
	require.NoError(t, x.Close())
	require.NoError(t, x.Close())
	require.ErrorIs(t, x.Launch(s), ErrClosed)

	f.failOn = "end"
	f.fail.Store(&gpu.Error{Op: "EndCapture", Kind: gpu.ErrCapture})
	_, err = s.EndCapture()
	require.ErrorIs(t, err, ErrCapture)
	require.NoError(t, s.Close())
	require.NoError(t, far.Close())
}

func contextCanceled(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}

// A nil or zero stream is refused, not dereferenced.
func TestNullStream(t *testing.T) {
	onBackends(t, func(t *testing.T, rt *Runtime) {
		b, host := must[Buffer](t)(rt.Alloc(0, 64)), make([]byte, 64)
		e := must[*Event](t)(rt.NewEvent(0, false))
		for _, s := range []*Stream{nil, {}} {
			_, query := s.Query()
			_, end := s.EndCapture()
			for name, err := range map[string]error{
				"Sync": s.Sync(t.Context()), "Query": query, "Copy": s.Copy(b, b), "CopyIn": s.CopyIn(t.Context(), b, host),
				"CopyOut": s.CopyOut(t.Context(), host, b), "Memset": s.Memset(b, 0), "Record": s.Record(e), "Wait": s.Wait(e),
				"BeginCapture": s.BeginCapture(), "EndCapture": end,
			} {
				require.ErrorIs(t, err, ErrInvalidValue, name)
				require.ErrorContains(t, err, "null stream", name)
			}
			require.NoError(t, s.Close())
			require.Equal(t, -1, s.Device())
			require.Zero(t, s.Handle())
			require.Equal(t, "stream of device -1", s.String())
		}
		require.NoError(t, e.Close())
		require.NoError(t, b.Free())
	})
}
