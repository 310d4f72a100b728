package launcher

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRuntimeDevices(t *testing.T) {
	rt, f := openFake(t, 2)
	require.Equal(t, Info{Backend: "fake", Emulated: true, DriverVersion: 12020, Detail: "test", Why: "driver given by the caller"}, rt.Info())
	require.Same(t, f, rt.Driver())
	devs := rt.Devices()
	require.Len(t, devs, 2)
	devs[1].Name = "changed"
	require.Equal(t, "Fake GPU", rt.Devices()[1].Name, "Devices must return a copy")

	info, err := rt.P2P(1, 0)
	require.NoError(t, err)
	require.Equal(t, P2PInfo{Access: true, PerfRank: 10}, info)
	require.NoError(t, rt.EnablePeer(0, 1))
	require.NoError(t, rt.DisablePeer(1, 0))
	require.Equal(t, []string{"enable 0 1", "disable 1 0"}, f.noted())

	for _, pair := range [][2]int{{0, 0}, {0, 2}, {-1, 0}, {2, 1}} {
		_, err := rt.P2P(pair[0], pair[1])
		require.ErrorIs(t, err, ErrInvalidValue)
		require.ErrorIs(t, rt.EnablePeer(pair[0], pair[1]), ErrInvalidValue)
		require.ErrorIs(t, rt.DisablePeer(pair[0], pair[1]), ErrInvalidValue)
	}
	require.Empty(t, f.noted(), "refused before the driver is asked")
	require.ErrorContains(t, rt.EnablePeer(0, 5), "device 5")
	require.ErrorContains(t, rt.EnablePeer(0, 5), "the machine has 2")
}

func TestRuntimeCloseReportsLeaks(t *testing.T) {
	f := newFake(2)
	rt := OpenWith(f)
	b, err := rt.Alloc(0, 64)
	require.NoError(t, err)
	_, err = rt.Alloc(1, 64)
	require.NoError(t, err)
	h, err := rt.AllocHost(64)
	require.NoError(t, err)
	s, err := rt.NewStream(1)
	require.NoError(t, err)
	e, err := rt.NewEvent(1, false)
	require.NoError(t, err)
	g, err := s.EndCapture()
	require.NoError(t, err)
	x, err := g.Instantiate()
	require.NoError(t, err)

	err = rt.Close()
	var leak *LeakError
	require.ErrorAs(t, err, &leak)
	require.Equal(t, LeakError{Allocs: 2, HostAllocs: 1, Streams: 1, Events: 1, Graphs: 1, GraphExecs: 1}, *leak)
	require.ErrorContains(t, err, "2 buffers, 1 host buffer, 1 stream, 1 event, 1 graph, 1 executable graph")
	require.True(t, f.closed)
	require.NoError(t, rt.Close(), "closing again does nothing")

	// All handles are closed with it, and closing them is harmless.
	require.ErrorIs(t, b.Check(), ErrClosed)
	for _, close := range []func() error{b.Free, h.Free, s.Close, e.Close, g.Close, x.Close} {
		require.NoError(t, close())
	}
	ctx := t.Context()
	require.ErrorIs(t, s.Sync(ctx), ErrClosed)
	require.ErrorIs(t, s.Memset(b, 0), ErrClosed)
	require.ErrorIs(t, e.Sync(ctx), ErrClosed)
	require.ErrorIs(t, x.Launch(s), ErrClosed)
	require.Nil(t, h.Bytes())
	_, err = rt.Alloc(0, 1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = rt.AllocHost(1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = rt.NewStream(0)
	require.ErrorIs(t, err, ErrClosed)
	_, err = rt.NewEvent(0, true)
	require.ErrorIs(t, err, ErrClosed)
	_, err = rt.Load(0, "x.ptx", []byte("x"))
	require.ErrorIs(t, err, ErrClosed)
	_, err = rt.Wrap(-1, 1, 1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = g.Instantiate()
	require.ErrorIs(t, err, ErrClosed)
}
