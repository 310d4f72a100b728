//go:build linux && cgo

package cuda

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

func TestMemory(t *testing.T) {
	r := newRig(t, openFake(t), 1)
	d := r.d
	p, err := d.MemAlloc(1, 1000)
	r.NoError(err)
	m, err := d.HostAlloc(64)
	r.NoError(err)
	r.Len(m.Bytes, 64)

	info, err := d.PointerInfo(p + 999)
	r.NoError(err)
	r.Equal(gpu.PointerInfo{Kind: gpu.MemDevice, Device: 1, Base: p, Size: 1000}, info)
	info, err = d.PointerInfo(m.Ptr + 1)
	r.NoError(err)
	r.Equal(gpu.PointerInfo{Kind: gpu.MemHost, Device: -1, Base: m.Ptr, Size: 64}, info)

	_, err = d.MemAlloc(1, 1<<40)
	r.ErrorIs(err, gpu.ErrOutOfMemory)
	r.ErrorContains(err, "1099511627776 bytes; ")
	for name, err := range map[string]error{
		"free inside":          d.MemFree(1, p+256),
		"free null":            d.MemFree(1, 0),
		"free on other device": d.MemFree(0, p),
		"free pinned":          d.MemFree(1, m.Ptr),
		"host free of device":  d.HostFree(gpu.HostMem{Ptr: p}),
		"host free inside":     d.HostFree(gpu.HostMem{Ptr: m.Ptr + 4}),
		"store odd":            d.HostStore32(m, 2, 0),
		"store past the end":   d.HostStore32(m, 64, 0),
		"store wraps":          d.HostStore32(m, math.MaxUint64-3, 0),
	} {
		r.ErrorIs(err, gpu.ErrInvalidValue, name)
	}
	r.NoError(d.HostStore32(m, 60, 0x01020304))
	r.Equal([]byte{4, 3, 2, 1}, m.Bytes[60:])
	v, err := d.HostLoad32(m, 60)
	r.NoError(err)
	r.Equal(uint32(0x01020304), v)

	r.Equal(gpu.Counts{Allocs: 1, HostAllocs: 1, Streams: 1, Modules: 1}, d.Live())
	r.NoError(d.MemFree(1, p))
	r.ErrorIs(d.MemFree(1, p), gpu.ErrInvalidValue, "twice")
	r.NoError(d.HostFree(m))
	r.ErrorIs(d.HostFree(m), gpu.ErrInvalidValue, "twice")
	_, err = d.HostLoad32(m, 0)
	r.ErrorIs(err, gpu.ErrInvalidValue, "freed")
	_, err = d.PointerInfo(p)
	r.ErrorIs(err, gpu.ErrInvalidValue, "freed")
	r.free()
	r.Zero(d.Live())
}

// TestForeignMemory uses memory that another user of the same libcuda allocated.
func TestForeignMemory(t *testing.T) {
	other, r := openFake(t), newRig(t, openFake(t), 0)
	p, err := other.MemAlloc(0, 100)
	r.NoError(err)
	h, err := other.HostAlloc(100)
	r.NoError(err)
	info, err := r.d.PointerInfo(p + 50)
	r.NoError(err)
	r.Equal(gpu.PointerInfo{Kind: gpu.MemDevice, Device: 0, Base: p, Size: 100}, info)
	info, err = r.d.PointerInfo(h.Ptr + 50)
	r.NoError(err)
	r.Equal(gpu.PointerInfo{Kind: gpu.MemHost, Device: -1, Base: h.Ptr, Size: 100}, info)
	r.NoError(r.d.CopyIn(0, r.s, p+90, []byte("0123456789")))
	r.NoError(r.d.Copy(0, r.s, h.Ptr, p+90, 10))
	r.wait()
	r.Equal("0123456789", string(h.Bytes[:10]))
	r.ErrorIs(r.d.CopyIn(0, r.s, p+91, []byte("0123456789")), gpu.ErrInvalidValue)
	r.ErrorIs(r.d.MemFree(0, p), gpu.ErrInvalidValue, "not ours to free")
}

func TestCopies(t *testing.T) {
	r := newRig(t, openFake(t), 0)
	d := r.d
	a, err := d.MemAlloc(0, 64)
	r.NoError(err)
	b, err := d.MemAlloc(1, 64)
	r.NoError(err)
	want := []byte("a fence is not a wall")
	n := uint64(len(want))
	r.NoError(d.CopyIn(0, r.s, a, want))
	r.NoError(d.CopyPeer(0, r.s, b+3, 1, a, 0, n))
	r.NoError(d.Memset(0, r.s, a, 0xEE, 64))
	r.NoError(d.Copy(0, r.s, a+1, b+3, n))
	r.NoError(d.CopyPeer(0, r.s, a+40, 0, a+1, 0, 5))
	out := make([]byte, 64)
	r.NoError(d.CopyOut(0, r.s, out, a))
	r.Equal(byte(0xEE), out[0])
	r.Equal(want, out[1:1+n])
	r.Equal(want[:5], out[40:45])
	r.NoError(d.CopyOut(0, r.s, nil, a))
	r.NoError(d.CopyIn(0, r.s, a, nil))
	r.NoError(d.Copy(0, r.s, a, b, 0))

	for name, err := range map[string]error{
		"null":          d.Copy(0, r.s, 0, a, 1),
		"unknown":       d.Copy(0, r.s, a, 0x100, 1),
		"past the end":  d.Copy(0, r.s, a+1, b, 64),
		"wraps":         d.Copy(0, r.s, a+1, b, math.MaxUint64),
		"memset":        d.Memset(0, r.s, a+64, 0, 1),
		"wrong device":  d.CopyPeer(0, r.s, b, 0, a, 0, 1),
		"no such peer":  d.CopyPeer(0, r.s, b, 2, a, 0, 1),
		"into nothing":  d.CopyIn(0, r.s, a+63, make([]byte, 2)),
		"out of freed ": d.CopyOut(0, r.s, make([]byte, 1), b+64),
	} {
		r.ErrorIs(err, gpu.ErrInvalidValue, name)
	}
}

// TestCopyWaits has copies from and to Go memory wait for work ahead of them, longer than one slice.
func TestCopyWaits(t *testing.T) {
	r := newRig(t, openFake(t), 0)
	p, err := r.d.MemAlloc(0, 4)
	r.NoError(err)
	for _, call := range []func() error{
		func() error { return r.d.CopyIn(0, r.s, p, []byte{1}) },
		func() error { return r.d.CopyOut(0, r.s, make([]byte, 1), p) },
		func() error { return r.d.CopyOut(0, r.s, nil, p) },
	} {
		start := time.Now()
		r.NoError(r.launch("busy", u32(50)))
		r.NoError(call())
		r.GreaterOrEqual(time.Since(start), 50*time.Millisecond)
	}
}

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

func TestModules(t *testing.T) {
	r := newRig(t, openFake(t), 0)
	d := r.d
	for _, tt := range []struct {
		name string
		ptx  string
		kind error
		says []string
	}{
		{"empty", "", gpu.ErrInvalidPTX, []string{"no .version"}},
		{"not PTX", "\x7fELF\x02\x01", gpu.ErrInvalidPTX, []string{"line 1"}},
		{"binary", ".version 7.0\n.target sm_70\n\x00\x01", gpu.ErrInvalidPTX, []string{"zero byte at offset 27"}},
		{"compile error", ".version 7.0\n.target sm_70\n.address_size 64\n\n  mov.BAD r1, r2;\n", gpu.ErrInvalidPTX,
			[]string{"x.ptx:5 in `mov.BAD r1, r2;`", "Parsing error near 'BAD'", "CUDA_ERROR_INVALID_PTX"}},
		{"newer than the driver", ".version 9.0\n.target sm_70\n", gpu.ErrDriverTooOld, []string{"PTX 9.0", "CUDA 13.0", "this one is for CUDA 12.8"}},
		{"newer than the table", ".version 15.0\n.target sm_70\n// ANSWER 222\n", gpu.ErrDriverTooOld, []string{"PTX 15.0 needs a newer driver", "this one is for CUDA 12.8"}},
		{"too new by the log", ".version 98.0\n.target sm_70\n// ANSWER 218\n", gpu.ErrDriverTooOld, []string{"PTX 98.0 needs a newer driver"}},
		{"newer than the device", ".version 7.0\n.target sm_100a\n", gpu.ErrInvalidPTX, []string{"sm_100a", "is sm_90"}},
		{"no compiler", ".version 7.0\n.target sm_70\n// ANSWER 221\n", gpu.ErrNotSupported, []string{"libnvidia-ptxjitcompiler"}},
		{"no memory", ".version 7.0\n.target sm_70\n// ANSWER 2\n", gpu.ErrOutOfMemory, []string{"x.ptx"}},
		{"no log", ".version 7.0\n.target sm_70\n// ANSWER 218\n", gpu.ErrInvalidPTX, []string{"x.ptx: the driver's compiler left no log"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := d.ModuleLoad(0, "x.ptx", []byte(tt.ptx))
			require.ErrorIs(t, err, tt.kind)
			for _, s := range tt.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
	ending, err := d.ModuleLoad(0, "zero.ptx", append([]byte(fakePTX), 0))
	r.NoError(err, "text that ends in a zero byte already")
	r.NoError(d.ModuleUnload(0, ending))
	for _, entry := range []string{"", "nop", "noop\x00"} {
		_, err = d.ModuleFunction(0, r.m, entry)
		r.ErrorIs(err, gpu.ErrNotFound)
		r.ErrorContains(err, "fake.ptx")
	}
	again, err := d.ModuleFunction(0, r.m, "noop")
	r.NoError(err)
	r.Equal(r.fn["noop"], again)
	info, err := d.FunctionInfo(0, r.fn["noop"])
	r.NoError(err)
	r.Equal(gpu.FunctionInfo{MaxThreads: 512, Registers: 40, StaticShared: 1024, LocalBytes: 8}, info)
	r.NotZero(r.stats()[statFuncLoad], "lazily loaded kernels must be finished here")
}

func TestLaunch(t *testing.T) {
	r := newRig(t, openFake(t), 0)
	d := r.d
	shape := func(g, b gpu.Dim3, shared uint32) *gpu.LaunchConfig {
		return &gpu.LaunchConfig{Grid: g, Block: b, Shared: shared}
	}
	unit := gpu.Dim3{X: 1, Y: 1, Z: 1}
	for name, tt := range map[string]struct {
		cfg  *gpu.LaunchConfig
		args int
		says string
	}{
		"no shape":        {nil, 24, "no launch configuration"},
		"zero grid":       {shape(gpu.Dim3{X: 1, Y: 0, Z: 1}, unit, 0), 24, "a component is zero"},
		"zero block":      {shape(unit, gpu.Dim3{X: 1, Y: 1}, 0), 24, "a component is zero"},
		"wide block":      {shape(unit, gpu.Dim3{X: 513, Y: 1, Z: 1}, 0), 24, "513 threads; this kernel can have 512"},
		"block wraps":     {shape(unit, gpu.Dim3{X: 1 << 16, Y: 1 << 16, Z: 1}, 0), 24, "threads"},
		"deep block":      {shape(unit, gpu.Dim3{X: 1, Y: 1, Z: 65}, 0), 24, "threads"},
		"wide grid":       {shape(gpu.Dim3{X: 1 << 31, Y: 1, Z: 1}, unit, 0), 24, "beyond"},
		"tall grid":       {shape(gpu.Dim3{X: 1, Y: 65536, Z: 1}, unit, 0), 24, "beyond"},
		"too much shared": {shape(unit, unit, 232448), 24, "at most 231424"},
		"short arguments": {shape(unit, unit, 0), 16, "16 bytes of arguments; its parameters take 24"},
		"long arguments":  {shape(unit, unit, 0), 32, "parameters take 24"},
	} {
		err := d.Launch(0, r.s, r.fn["noop"], tt.cfg, make([]byte, tt.args))
		r.ErrorIs(err, gpu.ErrInvalidValue, name)
		r.ErrorContains(err, tt.says, name)
	}
	before := r.stats()
	r.NoError(d.Launch(0, r.s, r.fn["noop"], shape(gpu.Dim3{X: 7, Y: 3, Z: 2}, gpu.Dim3{X: 8, Y: 8, Z: 8}, 0), make([]byte, 24)))
	r.NoError(d.Launch(0, r.s, r.fn["bare"], shape(unit, unit, 231424), nil), "the most that fits")
	r.NoError(d.Launch(0, r.s, r.fn["bare"], shape(unit, unit, 200000), []byte{}))
	after := r.stats()
	r.Equal(uint64(4), after[statLaunch]-before[statLaunch], "three, and the one that reads the counters")
	r.Equal(uint64(1), after[statDynamic]-before[statDynamic], "the limit is raised once")
	r.Zero(after[statWrongCtx])

	n, err := d.MaxActiveBlocks(0, r.fn["noop"], 128, 0)
	r.NoError(err)
	r.Equal(16, n)
	n, err = d.MaxActiveBlocks(0, r.fn["noop"], 128, 100_000)
	r.NoError(err)
	r.Equal(2, n)
	for _, threads := range []int{-1, 0, 513} {
		_, err = d.MaxActiveBlocks(0, r.fn["noop"], threads, 0)
		r.ErrorIs(err, gpu.ErrInvalidValue)
	}
	_, err = d.MaxActiveBlocks(0, r.fn["noop"], 32, 300_000)
	r.ErrorIs(err, gpu.ErrInvalidValue)
}

// TestDependentLaunch sees the attribute passed where the device has it, and a plain launch where not.
func TestDependentLaunch(t *testing.T) {
	for sm, want := range map[string]uint64{"-DFAKE_SM=90": 1, "-DFAKE_SM=100": 1, "-DFAKE_SM=89": 0} {
		r := newRig(t, openFake(t, sm), 0)
		cfg := one
		cfg.Dependent = true
		before := r.stats()
		r.NoError(r.d.Launch(0, r.s, r.fn["noop"], &cfg, make([]byte, 24)))
		after := r.stats()
		r.Equal(want, after[statLaunchEx]-before[statLaunchEx], sm)
		r.Equal(want, after[statPDL]-before[statPDL], sm)
		r.Equal(uint64(2), after[statLaunch]-before[statLaunch], sm)
	}
}

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

func TestClose(t *testing.T) {
	lib := []string{"-DFAKE_COUNT=3"}
	d := openFake(t, lib...)
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
	again := newRig(t, openFake(t, lib...), 0)
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
	d := openFake(t, "-DFAKE_COUNT=4")
	r := newRig(t, d, 0)
	r.NoError(r.launch("busy", u32(60_000)))
	err := d.Close()
	r.ErrorIs(err, gpu.ErrUnknown)
	r.ErrorContains(err, "did not end within 50ms")
	r.ErrorContains(err, "device 0")
	st := newRig(t, openFake(t, "-DFAKE_COUNT=4"), 0).stats()
	r.Zero(st[statReleased], "nothing may be freed under a running kernel")
}

// TestCloseUnderUse closes while goroutines are inside every kind of call: nothing may reach a context that
// is gone, and a long wait ends early.
func TestCloseUnderUse(t *testing.T) {
	d := openFake(t, "-DFAKE_COUNT=2", "-DFAKE_VERSION=12090")
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
	st := newRig(t, openFake(t, "-DFAKE_COUNT=2", "-DFAKE_VERSION=12090"), 0).stats()
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
	d := openFake(t, "-DFAKE_VERSION=12040")
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

// TestHotPathAllocations holds the calls of a steady loop to no Go allocation.
func TestHotPathAllocations(t *testing.T) {
	r := newRig(t, openFake(t), 0)
	d := r.d
	p, err := d.MemAlloc(0, 4096)
	r.NoError(err)
	m, err := d.HostAlloc(64)
	r.NoError(err)
	e, err := d.EventCreate(0, false)
	r.NoError(err)
	r.NoError(d.BeginCapture(0, r.s))
	r.NoError(r.launch("bare", nil))
	g, err := d.EndCapture(0, r.s)
	r.NoError(err)
	x, err := d.GraphInstantiate(0, g)
	r.NoError(err)
	var drv gpu.Driver = d // as callers see it
	args, buf := make([]byte, 24), make([]byte, 512)
	for name, call := range map[string]func() error{
		"Launch":      func() error { return drv.Launch(0, r.s, r.fn["noop"], &one, args) },
		"GraphLaunch": func() error { return drv.GraphLaunch(0, x, r.s) },
		"Copy":        func() error { return drv.Copy(0, r.s, p, p+2048, 1024) },
		"CopyIn":      func() error { return drv.CopyIn(0, r.s, p, buf) },
		"CopyOut":     func() error { return drv.CopyOut(0, r.s, buf, p) },
		"Memset":      func() error { return drv.Memset(0, r.s, p, 0, 64) },
		"EventRecord": func() error { return drv.EventRecord(0, e, r.s) },
		"StreamWait":  func() error { _, err := drv.StreamWait(0, r.s, time.Second); return err },
		"EventWait":   func() error { _, err := drv.EventWait(0, e, 0); return err },
		"HostLoad32":  func() error { _, err := drv.HostLoad32(m, 8); return err },
		"PointerInfo": func() error { _, err := drv.PointerInfo(p + 1); return err },
	} {
		r.NoError(call(), name)
		r.Zero(testing.AllocsPerRun(100, func() { _ = call() }), name)
	}
}

func BenchmarkLaunch(b *testing.B) {
	r := newRig(b, openFake(b), 0)
	args := make([]byte, 24)
	var drv gpu.Driver = r.d
	f := r.fn["noop"]
	b.ReportAllocs()
	for b.Loop() {
		if err := drv.Launch(0, r.s, f, &one, args); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHostLoad32(b *testing.B) {
	d := openFake(b)
	m, err := d.HostAlloc(64)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.HostLoad32(m, 0); err != nil {
			b.Fatal(err)
		}
	}
}
