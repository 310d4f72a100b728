//go:build linux && cgo

package cuda

import (
	"math"
	"testing"
	"time"

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
