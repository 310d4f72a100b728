//go:build linux && cgo

package nccl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// journal is what the fake notes from here on.
func journal(t *testing.T) (read func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	t.Setenv("FAKE_NCCL_LOG", path)
	return func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		require.NoError(t, os.Remove(path))
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if first := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "abort") }); first >= 0 {
			slices.Sort(lines[first:]) // the last to come, in any order
		}
		return strings.Join(lines, "\n")
	}
}

// join opens a fake, which is its own libcuda, and joins ranks on streams 10, 11, …
func join(t *testing.T, ranks int, limit time.Duration, flags ...string) (Ranks, error) {
	t.Helper()
	path := fake(t, append([]string{"-DINERT"}, flags...)...)
	lib, err := Open(path)
	require.NoError(t, err)
	lib.driver = path
	var members []Member
	for r := range ranks {
		members = append(members, Member{Device: r, Stream: uintptr(10 + r)})
	}
	return lib.Join(members, limit)
}

const plenty = time.Minute

// Ranks join as one group, each in the context of its stream; a whole-group call is one group of NCCL's, a rank's call none; and
// communicators that do not block are flushed before they go.
func TestJoin(t *testing.T) {
	log := journal(t)
	c, err := join(t, 2, plenty)
	require.NoError(t, err)
	require.Equal(t, "init 0 of 2, context 0x10a, group 1\ninit 1 of 2, context 0x10b, group 1", log())
	require.NoError(t, c.AllReduce([]Call{{1, 2, 10}, {3, 4, 11}}, 5, BF16, plenty))
	require.Equal(t, "all-reduce 5 of 9 on 0, stream 10, context 0x10a, group 1\nall-reduce 5 of 9 on 1, stream 11, context 0x10a, group 1", log())
	require.NoError(t, c.AllReduceRank(1, Call{1, 2, 77}, 6, F16, plenty))
	require.Equal(t, "all-reduce 6 of 6 on 1, stream 77, context 0x10b, group 0", log())
	require.NoError(t, c.RankErr(0))

	require.ErrorIs(t, c.AllReduceRank(2, Call{}, 1, F32, plenty), ErrArgument)
	require.ErrorIs(t, c.AllReduceRank(0, Call{}, 1, DType(1), plenty), ErrArgument)
	require.ErrorIs(t, c.RankErr(-1), ErrArgument)
	err = c.AllReduceRank(0, Call{}, 99, F32, plenty)
	require.ErrorIs(t, err, ErrFailed)
	require.EqualError(t, err, "ncclAllReduce: NCCL reported an error (some error: last words, 1): set NCCL_DEBUG=INFO to see what it did")
	require.Empty(t, log())

	require.NoError(t, c.Close())
	require.Equal(t, "finalize 0, group 1\nfinalize 1, group 1\ndestroy 0\ndestroy 1", log())
	require.NoError(t, c.Close())
	require.NoError(t, c.Abort())
	require.NoError(t, c.RankErr(0))
	require.ErrorIs(t, c.AllReduceRank(0, Call{}, 1, F32, plenty), ErrClosed)
	require.Empty(t, log())
}

// Failed work is told for the rank that asks, and ends with an abort.
func TestAsyncError(t *testing.T) {
	log := journal(t)
	c, err := join(t, 2, plenty)
	require.NoError(t, err)
	log()
	require.NoError(t, c.AllReduceRank(0, Call{}, 13, F32, plenty))
	err = c.RankErr(0)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "work of ncclAllReduce: NCCL reported an error (some error: last words, 3)")
	log()
	require.NoError(t, c.Abort())
	require.Equal(t, "abort 0\nabort 1", log())
	require.NoError(t, c.Close())
	require.Empty(t, log())
}

// A library from before 2.14 has no communicators that do not block.
func TestJoinOld(t *testing.T) {
	log := journal(t)
	c, err := join(t, 2, plenty, "-DOLD")
	require.NoError(t, err)
	log()
	require.NoError(t, c.Close())
	require.Equal(t, "destroy 0\ndestroy 1", log(), "nothing to flush")
}

// However the start goes wrong, it ends in time, and what was made of it is aborted.
func TestJoinFails(t *testing.T) {
	const short = 50 * time.Millisecond
	for name, c := range map[string]struct {
		flags []string
		limit time.Duration
		kind  error
		want  string
		log   string // its end
	}{
		"stuck":      {[]string{"-DSTUCK"}, short, ErrTimeout, "ncclCommInitRankConfig: NCCL did not come back in time (", "abort 0\nabort 1"},
		"broken":     {[]string{"-DBROKEN"}, plenty, ErrFailed, "ncclCommInitRankConfig: NCCL reported an error (some error: last words, 3)", "abort 0\nabort 1"},
		"refused":    {[]string{"-DFAIL"}, plenty, ErrFailed, "(invalid usage: last words, 5)", "init 0 of 2, context 0x10a, group 1"},
		"hangs":      {[]string{"-DHANGS=1"}, short, ErrTimeout, "ncclCommInitRankConfig: NCCL did not come back in time (50ms)", "abort 0\nabort 1"},
		"old, hangs": {[]string{"-DHANGS=1", "-DOLD"}, short, ErrTimeout, "NCCL did not come back in time (50ms)", "abort 0\nabort 1"},
	} {
		t.Run(name, func(t *testing.T) {
			log := journal(t)
			start := time.Now()
			_, err := join(t, 2, c.limit, c.flags...)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.want)
			require.Less(t, time.Since(start), 20*time.Second)
			if strings.HasSuffix(name, "hangs") {
				time.Sleep(max(0, 4*time.Second-time.Since(start))) // a call that hung comes back one day, and then its communicators go
			}
			text := log()
			require.True(t, strings.HasSuffix(text, c.log), text)
		})
	}
}

func TestJoinRefused(t *testing.T) {
	path := fake(t)
	lib, err := Open(path)
	require.NoError(t, err)
	_, err = lib.Join(nil, plenty)
	require.ErrorIs(t, err, ErrArgument)
	_, err = lib.Join([]Member{{0, 1}, {0, 2}}, plenty)
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, "each rank of one process needs a device of its own")
	lib.driver = "libcuda.so.nowhere"
	_, err = lib.Join([]Member{{0, 1}}, plenty)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "find libcuda.so.nowhere: NCCL is unavailable: this process has not loaded it")
	lib.driver = path
	_, err = lib.Join([]Member{{0, 666}}, plenty)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorContains(t, err, "cuStreamGetCtx: NCCL reported an error (CUDA error, 709)")
}

// A call that NCCL has not done with when it returns is waited for, until its time is up or somebody aborts.
func TestLazyCalls(t *testing.T) {
	c, err := join(t, 2, plenty, "-DLAZY")
	require.NoError(t, err)
	require.NoError(t, c.AllReduce([]Call{{}, {}}, 5, F32, plenty))
	require.NoError(t, c.AllReduceRank(1, Call{}, 5, F32, plenty))
	require.NoError(t, c.Close())

	c, err = join(t, 2, plenty, "-DUNENDING")
	require.NoError(t, err)
	require.ErrorIs(t, c.AllReduceRank(0, Call{}, 5, F32, 10*time.Millisecond), ErrTimeout)
	var wg sync.WaitGroup
	wg.Add(1)
	started := make(chan struct{})
	var ended error
	go func() {
		defer wg.Done()
		close(started)
		ended = c.AllReduceRank(1, Call{}, 5, F32, plenty)
	}()
	<-started
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, c.Abort())
	wg.Wait()
	require.ErrorIs(t, ended, ErrClosed)
}

// What Load has loaded it keeps; what stands in comes first.
func TestLoad(t *testing.T) {
	path := fake(t)
	a, err := Load(path)
	require.NoError(t, err)
	require.Equal(t, 22803, a.Version())
	b, err := Load(path)
	require.NoError(t, err)
	require.Same(t, a, b)
	_, err = Load("/nowhere/libnccl.so.2")
	require.ErrorIs(t, err, ErrUnavailable)
	require.False(t, StoodIn())
	restore := StandIn(func(string) (Loaded, error) { return nil, ErrClosed })
	require.True(t, StoodIn())
	_, err = Load(path)
	require.Equal(t, ErrClosed, err)
	restore()
	require.False(t, StoodIn())
}

// A call on the way to the GPU allocates nothing.
func TestCallAllocates(t *testing.T) {
	c, err := join(t, 2, plenty)
	require.NoError(t, err)
	calls := []Call{{1, 2, 10}, {3, 4, 11}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_ = c.AllReduceRank(0, calls[0], 5, F32, plenty)
		_ = c.AllReduce(calls, 5, F32, plenty)
		_ = c.RankErr(1)
	}))
	require.NoError(t, c.Close())
}

// The real library that NCCL_LIBRARY names has all that is called, and fails as it should where there is no GPU.
func TestRealLibrary(t *testing.T) {
	path := os.Getenv("NCCL_LIBRARY")
	if path == "" {
		t.Skip("NCCL_LIBRARY names no library")
	}
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("there is a GPU: TestNCCLOnGPUs of allreduce is for that")
	}
	t.Setenv("NCCL_NVLS_ENABLE", "0")
	lib, err := Open(path)
	require.NoError(t, err)
	require.Greater(t, lib.Version(), 20000)
	t.Logf("NCCL %d", lib.Version())
	_, err = lib.Join([]Member{{0, 10}, {1, 11}}, plenty)
	require.ErrorIs(t, err, ErrUnavailable, "libcuda is not loaded")
	lib.driver = fake(t)
	require.NotNil(t, must(Open(lib.driver)))
	_, err = lib.Join([]Member{{0, 10}, {1, 11}}, plenty)
	require.ErrorIs(t, err, ErrFailed)
	require.NotContains(t, err.Error(), "invalid argument", "the configuration is one that it knows")
	t.Log(err)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
