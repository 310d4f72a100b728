//go:build linux && cgo

package cuda

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

func TestWaits(t *testing.T) {
	r := newRig(t, openFake(t), 0)
	d := r.d
	e, err := d.EventCreate(0, true)
	r.NoError(err)
	from, err := d.EventCreate(0, true)
	r.NoError(err)
	plain, err := d.EventCreate(0, false)
	r.NoError(err)

	done, err := d.EventWait(0, e, 0)
	r.NoError(err)
	r.True(done, "an event never recorded is done")
	_, err = d.EventElapsed(0, from, e)
	r.ErrorIs(err, gpu.ErrInvalidValue)
	r.ErrorContains(err, "never recorded")

	r.NoError(d.EventRecord(0, from, r.s))
	r.NoError(r.launch("busy", u32(60)))
	r.NoError(d.EventRecord(0, e, r.s))
	r.NoError(d.EventRecord(0, plain, r.s))
	for _, limit := range []time.Duration{-time.Second, 0, time.Microsecond, 25 * time.Millisecond} {
		start := time.Now()
		done, err = d.StreamWait(0, r.s, limit)
		r.NoError(err)
		r.False(done, "%v", limit)
		r.GreaterOrEqual(time.Since(start), limit)
	}
	_, err = d.EventElapsed(0, from, e)
	r.ErrorIs(err, gpu.ErrInvalidValue)
	r.ErrorContains(err, "wait for it")
	done, err = d.EventWait(0, e, 10*time.Second)
	r.NoError(err)
	r.True(done)
	took, err := d.EventElapsed(0, from, e)
	r.NoError(err)
	r.InDelta(60, took.Seconds()*1000, 5)
	_, err = d.EventElapsed(0, from, plain)
	r.ErrorIs(err, gpu.ErrInvalidValue)
	r.ErrorContains(err, "without timing")

	// A stream of another device waits for it too.
	other := newRig(t, d, 1)
	r.NoError(r.launch("busy", u32(30)))
	r.NoError(d.EventRecord(0, e, r.s))
	r.NoError(d.StreamWaitEvent(1, other.s, e))
	done, err = d.StreamWait(1, other.s, 0)
	r.NoError(err)
	r.False(done)
	other.wait()
}

func TestHandles(t *testing.T) {
	r, other := newRig(t, openFake(t), 0), (*rig)(nil)
	d := r.d
	other = newRig(t, d, 1)
	e, err := d.EventCreate(1, false)
	r.NoError(err)
	dead, err := d.StreamCreate(0)
	r.NoError(err)
	r.NoError(d.StreamDestroy(0, dead))
	p, err := d.MemAlloc(0, 8)
	r.NoError(err)
	for name, s := range map[string]gpu.Stream{"zero": 0, "destroyed": dead, "of device 1": other.s, "invented": 12345} {
		_, err := d.StreamWait(0, s, 0)
		for what, err := range map[string]error{
			"destroy": d.StreamDestroy(0, s), "launch": d.Launch(0, s, r.fn["bare"], &one, nil), "wait": err,
			"copy": d.Copy(0, s, p, p, 1), "capture": d.BeginCapture(0, s), "graph": d.GraphLaunch(0, 1, s),
		} {
			r.ErrorIs(err, gpu.ErrInvalidHandle, "%s: %s", name, what)
		}
	}
	_, err = d.EventWait(0, e, 0)
	r.ErrorIs(err, gpu.ErrInvalidHandle)
	r.ErrorContains(err, "belongs to device 1")
	r.ErrorIs(d.EventRecord(0, e, r.s), gpu.ErrInvalidHandle)
	r.ErrorIs(d.EventDestroy(0, e), gpu.ErrInvalidHandle)
	r.ErrorIs(d.Launch(0, r.s, other.fn["bare"], &one, nil), gpu.ErrInvalidHandle)
	r.ErrorIs(d.ModuleUnload(0, other.m), gpu.ErrInvalidHandle)
	r.NoError(d.ModuleUnload(1, other.m))
	r.ErrorIs(d.Launch(1, other.s, other.fn["bare"], &one, nil), gpu.ErrInvalidHandle, "its module is gone")
	_, err = d.FunctionInfo(1, other.fn["bare"])
	r.ErrorIs(err, gpu.ErrInvalidHandle)
	r.ErrorIs(d.GraphDestroy(0, 0), gpu.ErrInvalidHandle)
	r.ErrorIs(d.GraphExecDestroy(0, 7), gpu.ErrInvalidHandle)
	for _, dev := range []int{-1, 2, 1 << 40} {
		_, err := d.StreamCreate(dev)
		r.ErrorIs(err, gpu.ErrInvalidValue)
		r.ErrorContains(err, "there are 2")
	}
}

func TestPeerAccess(t *testing.T) {
	d := openFake(t)
	require.NoError(t, d.DisablePeerAccess(0, 1), "not enabled is success")
	require.NoError(t, d.EnablePeerAccess(0, 1))
	require.NoError(t, d.EnablePeerAccess(0, 1), "already enabled is success")
	require.NoError(t, d.DisablePeerAccess(0, 1))
	require.ErrorIs(t, d.EnablePeerAccess(1, 1), gpu.ErrInvalidValue)
	require.ErrorIs(t, d.EnablePeerAccess(0, 5), gpu.ErrInvalidValue)
	_, err := d.P2P(0, 0)
	require.ErrorIs(t, err, gpu.ErrInvalidValue)

	apart := openFake(t, "-DFAKE_P2P=0")
	p, err := apart.P2P(1, 0)
	require.NoError(t, err)
	require.Equal(t, gpu.P2PInfo{}, p)
	err = apart.EnablePeerAccess(1, 0)
	require.ErrorIs(t, err, gpu.ErrPeerAccess)
	require.ErrorContains(t, err, "from device 1 to device 0")
	require.NoError(t, apart.DisablePeerAccess(1, 0))
}

func TestCapture(t *testing.T) {
	r := newRig(t, openFake(t), 0)
	d := r.d
	p, err := d.MemAlloc(0, 8)
	r.NoError(err)
	s2, err := d.StreamCreate(0)
	r.NoError(err)
	e, err := d.EventCreate(0, false)
	r.NoError(err)
	word := func() byte {
		var b [1]byte
		r.NoError(d.CopyOut(0, r.s, b[:], p))
		return b[0]
	}
	store := func(s gpu.Stream, v uint32) {
		r.NoError(d.Launch(0, s, r.fn["store"], &one, append(u64(uint64(p)), u32(v)...)))
	}

	_, err = d.EndCapture(0, r.s)
	r.ErrorIs(err, gpu.ErrCapture, "nothing begun")

	r.NoError(d.Memset(0, r.s, p, 0, 8))
	r.NoError(d.BeginCapture(0, r.s))
	r.ErrorIs(d.BeginCapture(0, r.s), gpu.ErrCapture, "begun already")
	store(r.s, 1)
	r.NoError(d.EventRecord(0, e, r.s))
	r.NoError(d.StreamWaitEvent(0, s2, e)) // fork
	store(s2, 2)
	r.NoError(d.EventRecord(0, e, s2))
	r.NoError(d.StreamWaitEvent(0, r.s, e)) // join
	g, err := d.EndCapture(0, r.s)
	r.NoError(err)
	r.Equal(byte(0), word(), "capture records, it does not run")
	x, err := d.GraphInstantiate(0, g)
	r.NoError(err)
	r.Equal(1, d.Live().Graphs)
	r.Equal(1, d.Live().GraphExecs)
	r.NoError(d.GraphDestroy(0, g))
	for range 3 {
		r.NoError(d.Memset(0, r.s, p, 9, 8))
		r.NoError(d.GraphLaunch(0, x, r.s))
		r.Equal(byte(2), word())
	}
	r.NoError(d.GraphExecDestroy(0, x))
	r.ErrorIs(d.GraphLaunch(0, x, r.s), gpu.ErrInvalidHandle)

	r.NoError(d.BeginCapture(0, r.s))
	_, err = d.StreamWait(0, r.s, 0)
	r.ErrorIs(err, gpu.ErrCapture)
	_, err = d.EndCapture(0, r.s)
	r.ErrorIs(err, gpu.ErrCapture, "broken by the wait")
	r.ErrorContains(err, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")

	r.NoError(d.BeginCapture(0, r.s))
	r.NoError(d.EventRecord(0, e, r.s))
	_, err = d.EventWait(0, e, 0)
	r.ErrorIs(err, gpu.ErrCapture, "an event of a capture")
	_, err = d.EndCapture(0, r.s)
	r.ErrorIs(err, gpu.ErrCapture, "broken by asking for its event")

	r.NoError(d.BeginCapture(0, r.s))
	r.NoError(d.EventRecord(0, e, r.s))
	r.NoError(d.StreamWaitEvent(0, s2, e))
	_, err = d.EndCapture(0, r.s)
	r.ErrorIs(err, gpu.ErrCapture, "not joined")
	r.ErrorContains(err, "joined back")

	// A stream destroyed while it captures takes the capture with it.
	s3, err := d.StreamCreate(0)
	r.NoError(err)
	r.NoError(d.BeginCapture(0, s3))
	r.NoError(d.StreamDestroy(0, s3))
}
