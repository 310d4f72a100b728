//go:build linux && cgo

package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

// Another driver's stream, as another library's would be, can be used and captured, and is left alone in the end.
func TestStreamAdopt(t *testing.T) {
	r := require.New(t)
	flag := freshFlag()
	owner, d := openFake(t, flag), openFake(t, flag)
	s, err := owner.StreamCreate(0)
	r.NoError(err)
	far, err := owner.StreamCreate(1)
	r.NoError(err)
	p, err := d.MemAlloc(0, 64)
	r.NoError(err)

	r.ErrorIs(d.Memset(0, s, p, 1, 64), gpu.ErrInvalidHandle, "nobody has told of it")
	for handle := gpu.Stream(0); handle <= lastDefault; handle++ {
		err := d.StreamAdopt(0, handle)
		r.ErrorIs(err, gpu.ErrInvalidHandle)
		r.ErrorContains(err, "default stream")
	}
	err = d.StreamAdopt(0, far)
	r.ErrorIs(err, gpu.ErrInvalidHandle)
	r.ErrorContains(err, "not of this device's primary context")
	r.NoError(d.StreamAdopt(0, s))
	err = d.StreamAdopt(0, s)
	r.ErrorIs(err, gpu.ErrInvalidValue)
	r.ErrorContains(err, "known already")
	r.ErrorIs(owner.StreamAdopt(0, s), gpu.ErrInvalidValue, "its own")

	r.NoError(d.Memset(0, s, p, 7, 64))
	got := make([]byte, 64)
	r.NoError(d.CopyOut(0, s, got, p))
	r.EqualValues(7, got[63])

	r.NoError(owner.BeginCapture(0, s)) // by the one who made it
	is, err := d.StreamCapturing(0, s)
	r.NoError(err)
	r.True(is)
	g, err := owner.EndCapture(0, s)
	r.NoError(err)
	r.NoError(owner.GraphDestroy(0, g))
	is, err = d.StreamCapturing(0, s)
	r.NoError(err)
	r.False(is)

	r.NoError(owner.BeginCapture(0, s))
	_, err = owner.StreamWait(0, s, 0)
	r.ErrorIs(err, gpu.ErrCapture)
	is, err = d.StreamCapturing(0, s)
	r.True(is)
	r.ErrorIs(err, gpu.ErrCapture)
	r.ErrorContains(err, "void")
	_, err = owner.EndCapture(0, s)
	r.ErrorIs(err, gpu.ErrCapture)
	for range 2 { // by the one who adopted it
		r.NoError(d.BeginCapture(0, s))
		g, err := d.EndCapture(0, s)
		r.NoError(err)
		r.NoError(d.GraphDestroy(0, g))
	}

	r.NoError(owner.BeginCapture(0, s))
	r.NoError(d.StreamDestroy(0, s))
	r.ErrorIs(d.Memset(0, s, p, 1, 64), gpu.ErrInvalidHandle, "it was let go")
	third := openFake(t, flag)
	r.NoError(third.StreamAdopt(0, s))
	_ = third.Close()
	g, err = owner.EndCapture(0, s)
	r.NoError(err, "letting go, or closing, spoilt its owner's capture")
	r.NoError(owner.GraphDestroy(0, g))
	_, err = owner.StreamWait(0, s, 0)
	r.NoError(err, "it still lives")
	r.NoError(d.StreamAdopt(0, s))
	r.NoError(d.MemFree(0, p))
	_ = d.Close() // says that an adopted stream was left, and leaves it
	_, err = owner.StreamWait(0, s, 0)
	r.NoError(err, "closing destroyed it")
	r.NoError(owner.StreamDestroy(0, s))
	r.NoError(owner.StreamDestroy(1, far))
}

// A driver that cannot tell a stream's context is believed.
func TestStreamAdoptOldDriver(t *testing.T) {
	r := require.New(t)
	flags := []string{freshFlag(), "-DcuStreamGetCtx=hidden5"}
	owner, d := openFake(t, flags...), openFake(t, flags...)
	s, err := owner.StreamCreate(0)
	r.NoError(err)
	r.NoError(d.StreamAdopt(0, s))
	r.NoError(d.StreamDestroy(0, s))
	r.NoError(owner.StreamDestroy(0, s))
}
