package launcher

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A stream of another runtime in this process, as of another library, is adopted by its handle and stays its maker's.
func TestAdoptStream(t *testing.T) {
	onBackends(t, func(t *testing.T, rt *Runtime) {
		other := must[*Runtime](t)(Open(Config{Backend: rt.Info().Backend}))
		made := must[*Stream](t)(other.NewStream(0))
		s, err := rt.AdoptStream(0, made.Handle())
		if rt.Info().Emulated {
			require.ErrorIs(t, err, ErrNotSupported)
			require.NoError(t, made.Close())
			require.NoError(t, other.Close())
			return
		}
		require.NoError(t, err)
		require.True(t, s.Of(rt))
		require.False(t, s.Of(other))
		_, err = rt.AdoptStream(0, made.Handle())
		require.ErrorIs(t, err, ErrInvalidValue)
		_, err = rt.AdoptStream(0, 0)
		require.ErrorIs(t, err, ErrInvalidHandle)

		ctx, b := patience(t), must[Buffer](t)(rt.Alloc(0, 64))
		require.NoError(t, s.Memset(b, 9))
		require.NoError(t, made.Sync(ctx)) // it is one stream
		got := make([]byte, 64)
		require.NoError(t, s.CopyOut(ctx, got, b))
		require.EqualValues(t, 9, got[63])

		require.NoError(t, made.BeginCapture())
		require.True(t, must[bool](t)(s.Capturing()))
		require.NoError(t, s.Memset(b, 5))
		graph := must[*Graph](t)(made.EndCapture())
		require.False(t, must[bool](t)(s.Capturing()))
		x := must[*Exec](t)(graph.Instantiate())
		require.NoError(t, x.Launch(made))
		require.NoError(t, s.CopyOut(ctx, got, b))
		require.EqualValues(t, 5, got[0])

		require.NoError(t, s.Close())
		require.NoError(t, made.Memset(must[Buffer](t)(other.Alloc(0, 64)), 1), "letting go destroyed it")
		require.NoError(t, x.Close())
		require.NoError(t, graph.Close())
		require.NoError(t, b.Free())
		require.NoError(t, made.Sync(ctx))
		_ = other.Close() // frees what is left of it
	})
}
