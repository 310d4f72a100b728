//go:build linux && cgo

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/internal/nccl"
	"github.com/fenceline/fenceline/launcher"
)

// fakeNCCL builds a libnccl that touches no memory, so that its sums are wrong, and lets it run on emulated devices.
func fakeNCCL(t *testing.T, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc, which builds the fake libnccl")
	}
	source := "../../internal/nccl/testdata/fakenccl.c"
	if _, err := os.Stat(source); err != nil {
		t.Skip("the fake's source is not here")
	}
	lib := filepath.Join(t.TempDir(), "libnccl.so.2")
	out, err := exec.Command(cc, append([]string{"-O1", "-shared", "-fPIC", "-DINERT", "-DNVLS_OFF", "-o", lib, source}, flags...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	ncclOnEmulator = true
	t.Cleanup(func() { ncclOnEmulator = false })
	return lib
}

func TestCompareUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--compare rccl", "there is nothing else to compare with: use nccl"},
		{"--compare nccl", "NCCL needs GPUs, and these devices are emulated: leave it out"},
	} {
		code, stdout, stderr := demo(t, append(strings.Fields("bench --backend emu"), strings.Fields(c.args)...)...)
		require.Equal(t, exitUsage, code)
		require.Contains(t, stderr, c.want)
		require.Empty(t, stdout)
	}
}

// Without the library, a comparison that was asked for is a fault, and nothing runs.
func TestCompareAbsent(t *testing.T) {
	ncclOnEmulator = true
	defer func() { ncclOnEmulator = false }()
	code, stdout, stderr := demo(t, "bench", "--backend", "emu", "--compare", "nccl", "--nccl", "/nowhere/libnccl.so.2")
	require.Equal(t, exitFault, code)
	require.Contains(t, stderr, "demo: --compare nccl: dlopen /nowhere/libnccl.so.2: NCCL is unavailable (")
	require.Contains(t, stderr, "install NCCL 2, or name its library (--nccl PATH), or leave --compare out")
	require.Empty(t, stdout)
}

// NCCL is a contender like the others: in this process where each rank has a device, in processes where they share one. What
// the fake leaves undone is found.
func TestCompareNCCL(t *testing.T) {
	lib := fakeNCCL(t)
	for args, want := range map[string]string{
		"--ranks 2 --devices 2":                    "2 ranks: NCCL 2.28.3 in one process; NCCL_NVLS_ENABLE=0",
		"--ranks 3 --devices 2 --share --rounds 2": "3 ranks: NCCL 2.28.3 in a process for each rank, each with its own NCCL_HOSTID",
	} {
		t.Run(args, func(t *testing.T) {
			code, r := benchJSON(t, append(strings.Fields(args), "-b", "1K", "-e", "2K", "--floor=false", "--compare", "nccl", "--nccl", lib)...)
			require.Equal(t, exitFault, code, "nothing was summed")
			require.Empty(t, r.Error)
			require.Equal(t, 22803, r.NCCL)
			require.Contains(t, strings.Join(r.Notes, "\n"), want)
			require.Len(t, r.Results, 4)
			for i, res := range r.Results {
				if i%2 == 0 {
					require.Equal(t, "auto", res.Name)
					require.True(t, res.right(), res.Out.First)
					continue
				}
				require.Equal(t, compareNCCL, res.Name)
				require.Nil(t, res.Plan)
				require.Positive(t, res.Out.Samples)
				require.Greater(t, res.Out.Wrong, res.Count*uint64(res.Ranks)/2)
				require.Contains(t, res.Out.First, "rank 0: element ")
			}
		})
	}
}

// On GPUs NCCL's calls are captured on the streams of a group of ours; the graph is empty here, and replays all the same.
func TestNCCLCaptured(t *testing.T) {
	t.Setenv("NCCL_NVLS_ENABLE", "0")
	lib, err := nccl.Open(fakeNCCL(t))
	require.NoError(t, err)
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu})
	require.NoError(t, err)
	defer func() { require.NoError(t, rt.Close()) }()
	g, err := allreduce.NewGroup(rt, allreduce.Config{Ranks: 2})
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	clock, err := newStopwatch(rt, g)
	require.NoError(t, err)
	defer func() { require.NoError(t, clock.close()) }()
	clique, err := lib.InitAll([]int{0, 1})
	require.NoError(t, err)
	c := &ncclContender{clique: clique}
	c.groupContender = groupContender{label: compareNCCL, rt: rt, g: g, timeout: 10 * time.Second, clock: clock, prepare: c.take,
		lengths: lengths{calls: 4, warmup: 1, replays: 3, callsGiven: true, replaysGiven: true}}
	require.NoError(t, c.open(t.Context(), row{allreduce.BF16, 13}, 1)) // of which the fake says afterwards that it failed
	times, calls, err := c.times(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, 4, calls)
	require.Len(t, times, 3)
	v, err := c.check(t.Context(), 2, false)
	require.ErrorIs(t, err, nccl.ErrFailed)
	require.Positive(t, v.wrong)
	require.NoError(t, c.close())
	require.NoError(t, c.end())
	require.ErrorIs(t, clique.AllReduce(nil, 1, nccl.F32, 0), nccl.ErrClosed, "it is aborted")
}

// A rank that dies or hangs ends the run within a bound, and leaves no process.
func TestCompareRankFails(t *testing.T) {
	defer func(was time.Duration) { ncclStart = was }(ncclStart)
	run := strings.Fields("bench --backend emu --ranks 3 --devices 1 -b 1K -e 1K --floor=false --compare nccl --nccl")
	code, _, stderr := demo(t, append(run, fakeNCCL(t, "-DDIES"))...)
	require.Equal(t, exitFault, code)
	require.Contains(t, stderr, "3 ranks of NCCL in processes of their own: rank 1: its process ended: exit status 7")

	ncclStart = 700 * time.Millisecond
	code, _, stderr = demo(t, append(run, fakeNCCL(t, "-DHANGS=1000"))...)
	require.Equal(t, exitFault, code)
	require.Contains(t, stderr, `"join" of rank 0 of NCCL did not return within 700ms`)
}

func TestBounded(t *testing.T) {
	broke := errors.New("it broke")
	require.Equal(t, broke, bounded(t.Context(), time.Minute, "x", func() error { return broke }))
	never := make(chan struct{})
	defer close(never)
	var late *overdueError
	require.ErrorAs(t, bounded(t.Context(), time.Millisecond, "x", func() error { <-never; return nil }), &late)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, bounded(ctx, time.Minute, "x", func() error { return nil }), "it ended all the same")
}

// Whole numbers add up to the same bits in any order, in every type.
func TestWholeNumbers(t *testing.T) {
	for _, dt := range allreduce.DTypes() {
		in := make([][]byte, 16)
		for r := range in {
			in[r] = make([]byte, 512*dt.Size())
		}
		wholeNumbers(dt, rand.New(rand.NewPCG(1, 2)), in)
		there, back := make([]byte, len(in[0])), make([]byte, len(in[0]))
		require.NoError(t, allreduce.Reference(dt, there, in...))
		for at := uint64(0); at < uint64(len(back)); at += dt.Size() {
			sum := make([]byte, dt.Size()) // rounded to the type after each step, the other way round
			for _, b := range slices.Backward(in) {
				dt.Store(sum, dt.Load(sum)+dt.Load(b[at:]))
			}
			copy(back[at:], sum)
		}
		wrong, first := wrongIn(dt, back, there)
		require.Zero(t, wrong, first)
		back[len(back)-1] ^= 1
		wrong, first = wrongIn(dt, back, there)
		require.Equal(t, uint64(1), wrong)
		require.Contains(t, first, "element 511 is ")
	}
	require.Equal(t, []nccl.DType{nccl.F32, nccl.F16, nccl.BF16}, []nccl.DType{ncclType(allreduce.F32), ncclType(allreduce.F16), ncclType(allreduce.BF16)})
}
