//go:build linux && cgo

package cuda

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

func TestFaults(t *testing.T) {
	for code, kind := range map[uint32]error{700: gpu.ErrIllegalAddress, 716: gpu.ErrMisaligned, 719: gpu.ErrLaunchFailed,
		702: gpu.ErrLaunchFailed, 715: gpu.ErrLaunchFailed, 717: gpu.ErrIllegalAddress} {
		d := openFake(t)
		r, other := newRig(t, d, 0), newRig(t, d, 1)
		p, err := d.MemAlloc(0, 4)
		r.NoError(err)
		r.NoError(r.launch("fault", u32(code)))
		_, err = d.StreamWait(0, r.s, time.Second)
		r.ErrorIs(err, kind)
		var f *gpu.FaultError
		r.ErrorAs(err, &f)
		r.Equal(0, f.Device)
		r.ErrorContains(err, "reported by cuStreamQuery")
		for name, again := range map[string]error{
			"launch": r.launch("bare", nil), "free": d.MemFree(0, p), "copy": d.CopyOut(0, r.s, make([]byte, 4), p),
			"peer": d.CopyPeer(1, other.s, p, 0, p, 0, 4),
		} {
			r.Equal(err, again, "%s answers the same error", name)
		}
		// The other device is not touched, and what belongs to none goes on there.
		r.NoError(other.launch("bare", nil))
		other.wait()
		m, err := d.HostAlloc(8)
		r.NoError(err)
		r.NoError(d.HostFree(m))
		r.NoError(d.Close(), "a lost device is no failure of Close")
		r.Zero(d.Live())
	}
}

// TestFaultOfAnother has a healthy device be the first to hear of another's fault.
func TestFaultOfAnother(t *testing.T) {
	d := openFake(t)
	r, other := newRig(t, d, 0), newRig(t, d, 1)
	e, err := d.EventCreate(1, false)
	r.NoError(err)
	r.NoError(d.EventRecord(1, e, other.s))
	r.NoError(other.launch("fault", u32(700)))
	err = d.StreamWaitEvent(0, r.s, e)
	var f *gpu.FaultError
	r.ErrorAs(err, &f)
	r.Equal(1, f.Device)
	r.NoError(r.launch("bare", nil), "device 0 is well")
	r.wait()
	r.Equal(err, other.launch("bare", nil))
}

func TestClose(t *testing.T) {
	fresh := freshFlag()
	d := openFake(t, "-DFAKE_COUNT=3", fresh)
	r := newRig(t, d, 0)
	newRig(t, d, 1)
	p, err := d.MemAlloc(0, 64)
	r.NoError(err)
	m, err := d.HostAlloc(64)
	r.NoError(err)
	e, err := d.EventCreate(0, false)
	r.NoError(err)
	r.NoError(d.BeginCapture(0, r.s))
	g, err := d.EndCapture(0, r.s)
	r.NoError(err)
	x, err := d.GraphInstantiate(0, g)
	r.NoError(err)
	open, err := d.StreamCreate(1)
	r.NoError(err)
	r.NoError(d.BeginCapture(1, open)) // a capture that nobody ends
	r.NoError(r.launch("busy", u32(40)))
	start := time.Now()
	r.NoError(d.Close())
	r.GreaterOrEqual(time.Since(start), 30*time.Millisecond, "Close waits for queued work")
	r.Zero(d.Live())

	_, allocErr := d.MemAlloc(0, 1)
	_, hostErr := d.HostAlloc(1)
	_, loadErr := d.HostLoad32(m, 0)
	_, infoErr := d.DeviceInfo(0)
	_, ptrErr := d.PointerInfo(p)
	_, waitErr := d.StreamWait(0, r.s, time.Hour)
	_, fnErr := d.ModuleFunction(0, r.m, "noop")
	_, p2pErr := d.P2P(0, 1)
	for name, err := range map[string]error{
		"MemAlloc": allocErr, "HostAlloc": hostErr, "HostLoad32": loadErr, "DeviceInfo": infoErr, "PointerInfo": ptrErr,
		"StreamWait": waitErr, "ModuleFunction": fnErr, "P2P": p2pErr, "MemFree": d.MemFree(0, p), "HostFree": d.HostFree(m),
		"EventRecord": d.EventRecord(0, e, r.s), "GraphLaunch": d.GraphLaunch(0, x, r.s), "Launch": r.launch("bare", nil),
		"HostStore32": d.HostStore32(m, 0, 1), "CopyIn": d.CopyIn(0, r.s, p, []byte{1}), "Close": d.Close(),
	} {
		r.ErrorIs(err, gpu.ErrClosed, name)
	}

	// The library is still loaded: ask it whether everything was given back.
	again := newRig(t, openFake(t, "-DFAKE_COUNT=3", fresh), 0)
	st := again.stats()
	r.Equal(uint64(2), st[statReleased])
	r.Equal(uint64(3), st[statRetained], "device 2 was never used")
	r.Equal(uint64(3), st[statObjects], "only this stream, this module and the counters' buffer exist")
	r.Zero(st[statWrongCtx])
	r.Zero(st[statDeadCtx])
}

func TestCloseGivesUpOnEndlessWork(t *testing.T) {
	defer func(was time.Duration) { closeLimit = was }(closeLimit)
	closeLimit = 50 * time.Millisecond
	fresh := freshFlag()
	d := openFake(t, fresh)
	r := newRig(t, d, 0)
	r.NoError(r.launch("busy", u32(60_000)))
	err := d.Close()
	r.ErrorIs(err, gpu.ErrUnknown)
	r.ErrorContains(err, "did not end within 50ms")
	r.ErrorContains(err, "device 0")
	st := newRig(t, openFake(t, fresh), 0).stats()
	r.Zero(st[statReleased], "nothing may be freed under a running kernel")
}

// TestCloseUnderUse closes while goroutines are inside every kind of call: nothing may reach a context that
// is gone, and a long wait ends early.
func TestCloseUnderUse(t *testing.T) {
	fresh := freshFlag()
	d := openFake(t, fresh)
	var calls atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 8 {
		r := newRig(t, d, i%2)
		p, err := d.MemAlloc(r.dev, 64)
		r.NoError(err)
		wg.Go(func() {
			<-start
			buf := make([]byte, 64)
			for {
				err := r.launch("bare", nil)
				if err == nil {
					err = d.CopyOut(r.dev, r.s, buf, p)
				}
				if err == nil {
					_, err = d.PointerInfo(p)
				}
				if err != nil {
					assertClosed(t, err)
					return
				}
				calls.Add(1)
			}
		})
	}
	waiter := newRig(t, d, 0)
	waiter.NoError(waiter.launch("busy", u32(300)))
	wg.Go(func() {
		<-start
		_, err := d.StreamWait(0, waiter.s, time.Minute)
		assertClosed(t, err)
	})
	close(start)
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, d.Close())
	wg.Wait()
	require.Positive(t, calls.Load())
	st := newRig(t, openFake(t, fresh), 0).stats()
	require.Zero(t, st[statDeadCtx], "a call reached a released context")
	require.Zero(t, st[statWrongCtx])
	require.Equal(t, uint64(3), st[statObjects])
}

func assertClosed(t *testing.T, err error) {
	if e, ok := err.(*gpu.Error); !ok || e.Kind != gpu.ErrClosed {
		t.Errorf("want ErrClosed, got %v", err)
	}
}

// TestContexts has many goroutines use both devices through few threads: every call must carry its context.
func TestContexts(t *testing.T) {
	d := openFake(t, freshFlag())
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			s, err := d.StreamCreate(i % 2)
			if err != nil {
				t.Error(err)
				return
			}
			p, err := d.MemAlloc(i%2, 256)
			if err != nil {
				t.Error(err)
				return
			}
			out := make([]byte, 4)
			for k := range 200 {
				if err := d.CopyIn(i%2, s, p, []byte{byte(i), byte(k), 1, 2}); err != nil {
					t.Error(err)
					return
				}
				if err := d.CopyOut(i%2, s, out, p); err != nil || out[0] != byte(i) || out[1] != byte(k) {
					t.Errorf("goroutine %d round %d: %v, %v", i, k, out, err)
					return
				}
			}
			if err := d.MemFree(i%2, p); err != nil {
				t.Error(err)
			}
			if err := d.StreamDestroy(i%2, s); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Zero(t, d.Live())
	require.Zero(t, newRig(t, d, 0).stats()[statWrongCtx])
}
