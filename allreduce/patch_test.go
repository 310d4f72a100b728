package allreduce

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
)

// A patch sees the PTX of each device's kernel, what it returns is what runs, and its error is NewGroup's.
func TestPatch(t *testing.T) {
	rt := openEmu(t, "", 2)
	for _, alg := range everyAlgorithm {
		var files []string
		g := newGroup(t, rt, Config{Ranks: 4, Algorithm: alg, Patch: func(file string, ptx []byte) ([]byte, error) {
			files = append(files, file)
			add := []byte("add.f32")
			require.True(t, bytes.Contains(ptx, add))
			return bytes.ReplaceAll(ptx, add, []byte("sub.f32")), nil
		}})
		want := sources[alg].file + ".sm_90.ptx"
		require.Equal(t, []string{want, want}, files)
		r := newRig(t, g, 64)
		in, out, _, _ := r.views(trial{count: 1, dt: F32})
		ctx, cancel := r.ctx()
		defer cancel()
		one := make([]byte, 4)
		F32.Store(one, 1)
		for p := range in {
			require.NoError(t, g.Rank(p).Stream().CopyIn(ctx, in[p], one))
		}
		require.NoError(t, g.AllReduce(in, out, 1, F32))
		require.NoError(t, g.Sync(ctx))
		require.NoError(t, g.Rank(0).Stream().CopyOut(ctx, one, out[0]))
		require.EqualValues(t, -2, F32.Load(one), "1-1-1-1")
		require.NoError(t, g.Close()) // which makes room for the next
	}
	refusal := errors.New("not this one")
	_, err := NewGroup(rt, Config{Patch: func(string, []byte) ([]byte, error) { return nil, refusal }})
	require.ErrorIs(t, err, refusal)
	require.ErrorContains(t, err, "oneshot_pull.sm_90.ptx for device 0")
	_, err = NewGroup(rt, Config{Patch: func(string, []byte) ([]byte, error) { return []byte("nonsense"), nil }})
	require.ErrorIs(t, err, launcher.ErrInvalidPTX)
}
