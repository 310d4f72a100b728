//go:build linux && cgo

package nccl

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/fakenccl.c
var fakeSource []byte

// fake builds a libnccl that sums host memory.
func fake(t *testing.T, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc, which builds the fake libnccl")
	}
	dir := t.TempDir()
	source, lib := filepath.Join(dir, "fakenccl.c"), filepath.Join(dir, "libnccl.so.2")
	require.NoError(t, os.WriteFile(source, fakeSource, 0o600))
	out, err := exec.Command(cc, append([]string{"-O1", "-shared", "-fPIC", "-o", lib, source}, flags...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return lib
}

func at(v []float32) uintptr { return uintptr(unsafe.Pointer(&v[0])) }

// Every argument arrives where NCCL takes it: the fake sums what it is pointed to, for the ranks in their order.
func TestAllReduce(t *testing.T) {
	lib, err := Open(fake(t))
	require.NoError(t, err)
	require.Equal(t, 22803, lib.Version())
	c, err := lib.InitAll([]int{2, 0, 1})
	require.NoError(t, err)
	var in, out [3][]float32
	var calls []Call
	var pin runtime.Pinner
	defer pin.Unpin()
	for r := range in {
		in[r], out[r] = []float32{float32(r), 10, -1}, []float32{-7, -7, -7}
		pin.Pin(&in[r][0])
		pin.Pin(&out[r][0])
		calls = append(calls, Call{Send: at(in[r]), Recv: at(out[r]), Stream: uintptr(r + 1)})
	}
	require.NoError(t, c.AllReduce(calls, 2, F32, 0))
	for r := range out {
		require.Equal(t, []float32{3, 30, -7}, out[r])
	}
	require.NoError(t, c.Err())

	require.ErrorIs(t, c.AllReduce(calls[:2], 2, F32, 0), ErrArgument)
	require.ErrorIs(t, c.AllReduce(calls, 2, DType(8), 0), ErrArgument)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.AllReduce(calls, 2, F32, 0), ErrClosed)
}

// The identifier goes by value, 128 bytes of it: the fake looks at each.
func TestInitRank(t *testing.T) {
	lib, err := Open(fake(t, "-DRUN=2"))
	require.NoError(t, err)
	id, err := lib.UniqueID()
	require.NoError(t, err)
	require.Len(t, id, IDBytes)
	c, err := lib.InitRank(4, id, 3)
	require.NoError(t, err)
	v := []float32{5}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&v[0])
	require.NoError(t, c.AllReduce([]Call{{Send: at(v), Recv: at(v)}}, 1, F32, 0))
	require.NoError(t, c.AllReduce([]Call{{Send: at(v), Recv: at(v)}}, 13, BF16, 0))
	err = c.Err()
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "some error: last words, 3")
	require.NoError(t, c.Abort())

	id[77]++
	_, err = lib.InitRank(4, id, 3)
	require.ErrorIs(t, err, ErrFailed)
	_, err = lib.InitRank(4, id[1:], 3)
	require.ErrorIs(t, err, ErrArgument)
	_, err = lib.InitRank(4, id, 4)
	require.ErrorIs(t, err, ErrArgument)
}

func TestOpenFails(t *testing.T) {
	_, err := Open("/nowhere/libnccl.so.2")
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "install NCCL 2, or name its library")
	_, err = Open(fake(t, "-DBAD_SYMBOL"))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "lacks ncclGetUniqueId")
	_, err = Open("a\x00b")
	require.ErrorIs(t, err, ErrUnavailable)

	lib, err := Open(fake(t, "-DFAIL"))
	require.NoError(t, err)
	_, err = lib.InitAll([]int{0, 1})
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "ncclCommInitAll: NCCL reported an error (invalid usage: last words, 5): set NCCL_DEBUG=INFO")
	_, err = lib.InitAll([]int{0, 0})
	require.ErrorContains(t, err, "needs a device of its own")
	_, err = lib.InitAll(nil)
	require.ErrorIs(t, err, ErrArgument)
}
