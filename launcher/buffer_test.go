package launcher

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

func TestBuffer(t *testing.T) {
	rt, _ := openFake(t, 2)
	b, err := rt.Alloc(1, 100)
	require.NoError(t, err)
	require.NotZero(t, b.Ptr())
	require.EqualValues(t, 100, b.Size())
	require.Equal(t, 1, b.Device())

	s, err := b.Slice(10, 20)
	require.NoError(t, err)
	s, err = s.Slice(5, 15)
	require.NoError(t, err)
	require.Equal(t, b.Ptr()+15, s.Ptr())
	require.EqualValues(t, 15, s.Size())
	end, err := b.Slice(100, 0)
	require.NoError(t, err)
	require.Zero(t, end.Size())
	for _, r := range [][2]uint64{{0, 101}, {101, 0}, {99, 2}, {1, math.MaxUint64}, {math.MaxUint64, 2}} {
		_, err := b.Slice(r[0], r[1])
		require.ErrorIs(t, err, ErrInvalidValue, "%v", r)
	}

	require.ErrorIs(t, s.Free(), ErrInvalidValue, "a slice does not own the memory")
	require.NoError(t, s.Check())
	require.NoError(t, b.Free())
	require.NoError(t, b.Free(), "freeing again does nothing")
	require.ErrorIs(t, s.Check(), ErrClosed)
	require.ErrorContains(t, s.Check(), "100 bytes on device 1 is closed")
	_, err = s.Slice(0, 1)
	require.ErrorIs(t, err, ErrClosed)

	var zero Buffer
	require.Zero(t, zero.Ptr())
	require.Equal(t, -1, zero.Device())
	require.ErrorIs(t, zero.Check(), ErrInvalidValue)
	require.NoError(t, zero.Free())
}

func TestAllocRefuses(t *testing.T) {
	rt, f := openFake(t, 1)
	_, err := rt.Alloc(0, 0)
	require.ErrorIs(t, err, ErrInvalidValue)
	_, err = rt.Alloc(1, 4)
	require.ErrorIs(t, err, ErrInvalidValue)
	_, err = rt.AllocHost(0)
	require.ErrorIs(t, err, ErrInvalidValue)
	f.failOn = "MemAlloc"
	f.fail.Store(&gpu.Error{Op: "cuMemAlloc", Device: 0, Code: 2, Kind: gpu.ErrOutOfMemory})
	_, err = rt.Alloc(0, 1<<40)
	require.ErrorIs(t, err, ErrOutOfMemory)
	require.ErrorContains(t, err, "1099511627776 bytes")
}

func TestWrap(t *testing.T) {
	rt, f := openFake(t, 2)
	own, err := rt.Alloc(1, 4096)
	require.NoError(t, err)
	h, err := rt.AllocHost(64)
	require.NoError(t, err)
	p := own.Ptr()
	tests := []struct {
		name      string
		dev       int
		ptr, size uint64
		msg       string // part of the refusal, "" when fine
	}{
		{"whole", 1, p, 4096, ""},
		{"inside", 1, p + 96, 4000, ""},
		{"last byte", 1, p + 4095, 1, ""},
		{"host", -1, h.Ptr() + 8, 56, ""},
		{"null", 1, 0, 4, "null pointer"},
		{"empty", 1, p, 0, "0 bytes"},
		{"unknown", 1, 0x10, 4, "not memory the driver knows"},
		{"just past the end", 1, p + 4096, 1, "not memory the driver knows"},
		{"wrong device", 0, p, 4, "belongs to device 1"},
		{"no such device", 2, p, 4, "the machine has 2"},
		{"too short", 1, p + 96, 4001, "4000 bytes to the end of its allocation of 4096, fewer than the 4001"},
		{"overflow", 1, p + 96, math.MaxUint64, "fewer than"},
		{"host as device", 1, h.Ptr(), 4, "pinned host memory"},
		{"device as host", -1, p, 4, "belongs to device 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := rt.Wrap(tt.dev, tt.ptr, tt.size)
			if tt.msg != "" {
				require.ErrorIs(t, err, ErrInvalidValue)
				require.ErrorContains(t, err, tt.msg)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.ptr, b.Ptr())
			require.Equal(t, tt.size, b.Size())
			require.Equal(t, tt.dev, b.Device())
			require.NoError(t, b.Free())
			require.ErrorIs(t, b.Check(), ErrClosed)
		})
	}
	require.Equal(t, 1, f.Live().Allocs, "freeing a wrapped buffer leaves the memory alone")
	require.NoError(t, own.Check())
	require.NoError(t, own.Free())
	require.NoError(t, h.Free())
}

func TestHostBuffer(t *testing.T) {
	rt, f := openFake(t, 1)
	h, err := rt.AllocHost(10)
	require.NoError(t, err)
	require.EqualValues(t, 10, h.Size())
	require.Len(t, h.Bytes(), 10)
	require.Equal(t, h.Ptr(), h.Buffer().Ptr())
	require.Equal(t, -1, h.Buffer().Device())

	require.NoError(t, h.Store32(4, 42))
	v, err := h.Load32(4)
	require.NoError(t, err)
	require.EqualValues(t, 42, v)
	for _, off := range []uint64{1, 2, 8, 12, math.MaxUint64 - 3} {
		_, err := h.Load32(off)
		require.ErrorIs(t, err, ErrInvalidValue, "offset %d", off)
		require.ErrorIs(t, h.Store32(off, 1), ErrInvalidValue, "offset %d", off)
	}
	tiny, err := rt.AllocHost(3)
	require.NoError(t, err)
	_, err = tiny.Load32(0)
	require.ErrorIs(t, err, ErrInvalidValue)
	require.NoError(t, tiny.Free())

	view := h.Buffer()
	require.ErrorIs(t, view.Free(), ErrInvalidValue)
	require.NoError(t, h.Free())
	require.NoError(t, h.Free())
	require.Zero(t, f.Live().HostAllocs)
	require.ErrorIs(t, view.Check(), ErrClosed)
	require.Nil(t, h.Bytes())
	_, err = h.Load32(0)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, h.Store32(0, 0), ErrClosed)
}

func TestBufferDoesNotAllocate(t *testing.T) {
	rt, _ := openFake(t, 1)
	b, err := rt.Alloc(0, 64)
	require.NoError(t, err)
	var s Buffer
	n := testing.AllocsPerRun(100, func() {
		s, _ = b.Slice(8, 8)
		if s.Check() != nil {
			panic("slice of a live buffer must be fine")
		}
	})
	require.Zero(t, n)
	require.NoError(t, b.Free())
}

func TestZeroHostBuffer(t *testing.T) {
	for _, h := range []*HostBuffer{nil, {}} {
		require.Zero(t, h.Ptr())
		require.Zero(t, h.Size())
		require.Nil(t, h.Bytes())
		_, err := h.Load32(0)
		require.ErrorIs(t, err, ErrInvalidValue)
		require.ErrorIs(t, h.Store32(0, 1), ErrInvalidValue)
		require.NoError(t, h.Free())
	}
}

func TestOwns(t *testing.T) {
	rt, other := OpenWith(newFake(1)), OpenWith(newFake(1))
	b := must[Buffer](t)(rt.Alloc(0, 64))
	require.True(t, rt.Owns(b))
	require.False(t, other.Owns(b))
	require.False(t, rt.Owns(Buffer{}))
}
