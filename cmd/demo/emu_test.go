package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

// jsonRun runs the emulator with --json and decodes the one document on stdout.
func jsonRun(t *testing.T, args ...string) (int, *runReport) {
	t.Helper()
	code, stdout, stderr := demo(t, append([]string{"--backend", "emu", "--json"}, args...)...)
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	var r runReport
	require.NoError(t, dec.Decode(&r), "stdout %q, stderr %q", stdout, stderr)
	require.False(t, dec.More(), "one document and nothing else")
	require.Equal(t, code == exitGood, r.OK)
	return code, &r
}

func TestQuickRun(t *testing.T) {
	code, stdout, stderr := demo(t, "--backend", "emu", "--sizes", "1KB", "--iters", "1")
	require.Equal(t, exitGood, code, stdout+stderr)
	require.Empty(t, stderr, "no progress where there is no terminal")
	for _, want := range []string{
		"EMULATED: no GPU executed anything; times are of the emulator and mean nothing for hardware",
		"Ranks: 4 (the default on the emulator)", "Plan: oneshot-push: ",
		"GPU3", "#wrong", "PASS: 3 results",
	} {
		require.Contains(t, stdout, want)
	}
	for _, dt := range []string{"f32", "f16", "bf16"} {
		require.Regexp(t, `(?m)^ +1024 +\d+ +`+dt+` +sum +oneshot-push +\d+x\d+ +[\d.]+ +[\d.]+ +[\d.]+ +0$`, stdout)
	}
}

func TestRunJSON(t *testing.T) {
	for _, c := range []struct {
		args      string
		algorithm allreduce.Algorithm
		ranks     int
		counts    []uint64
	}{
		{"--sizes 1KB --dtype f32", allreduce.OneshotPush, 4, []uint64{256}},
		{"--machine nvlink --sizes 1KB --dtype f16", allreduce.OneshotPush, 4, []uint64{512}},
		{"--machine pcie --sizes 2 --dtype f16,f32", allreduce.OneshotPush, 4, []uint64{2, 2}},
		{"--machine no-p2p --sizes 1KB,5 --dtype bf16", allreduce.Host, 4, []uint64{512, 5}},
		{"--machine one-way --sizes 1KB,5 --dtype bf16", allreduce.Copy, 4, []uint64{512, 5}},
		{"--ranks 3 --sizes 1,7,4097 --dtype bf16", allreduce.OneshotPush, 3, []uint64{1, 7, 4097}},
		{"--algo oneshot-pull --ranks 2 --sizes 33 --dtype f32", allreduce.OneshotPull, 2, []uint64{33}},
		{"--machine write-only --ranks 2 --sizes 33,1MB --dtype f32", allreduce.OneshotPush, 2, []uint64{33, 1 << 18}},
		{"run --algo copy --ranks 2 --sizes 33 --dtype f32", allreduce.Copy, 2, []uint64{33}},
		{"--algo host --ranks 2 --sizes 33 --dtype f32", allreduce.Host, 2, []uint64{33}},
		{"--devices 1 --sizes 100 --dtype f32", allreduce.OneshotPush, 4, []uint64{100}},
		{"--devices 2 --ranks 5 --share --sizes 100 --dtype f32", allreduce.OneshotPush, 5, []uint64{100}},
		{"--ranks 1 --sizes 100 --dtype f16", allreduce.OneshotPull, 1, []uint64{100}},
		{"--seed 77 --sizes 1:64 --dtype f16 --ranks 2", allreduce.OneshotPush, 2, []uint64{1, 2, 4, 8, 16, 32, 64}},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, r := jsonRun(t, append(strings.Fields(c.args), "--iters", "1")...)
			require.Equal(t, exitGood, code, r.Error)
			require.Empty(t, r.Error)
			require.True(t, r.Backend.Emulated)
			require.Equal(t, reportVersion, r.Version)
			require.Equal(t, c.ranks, r.World.Ranks)
			require.Len(t, r.P2P, len(r.Devices))
			require.Len(t, r.Results, len(c.counts))
			for i, res := range r.Results {
				require.Equal(t, c.counts[i], res.Count)
				require.Equal(t, c.counts[i]*res.DType.Size(), res.Bytes)
				require.Equal(t, c.algorithm, res.Plan.Algorithm)
				require.NotEmpty(t, res.Plan.Reason)
				require.True(t, res.right(), res.First)
				require.Equal(t, 1, res.Iters)
				require.Positive(t, res.TimeUS)
			}
		})
	}
}

// What can only be refused once the machine is known is refused with code 2 as well, before any work.
func TestUsageOfMachine(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--machine mars", "mars"},
		{"devices --machine mars", "mars"},
		{"--devices 100000", "--devices"},
		{"--ranks 5", `--ranks "5": more than the 4 device(s) of this machine: add --share`},
		{"--machine no-p2p --algo oneshot-pull", "algorithm oneshot-pull: "},
		{"--absent 4", "use at most 3"},
		{"--absent 0 --ranks 1", "use --ranks 2 or more"},
		{"--sizes 1GB --ranks 16 --share --dtype f32", "use smaller sizes or fewer ranks"},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, stdout, stderr := demo(t, append(strings.Fields(c.args), "--backend", "emu")...)
			require.Equal(t, exitUsage, code, stderr)
			require.Contains(t, stderr, c.want)
			require.Empty(t, stdout)
		})
	}
}

func TestAbsent(t *testing.T) {
	for _, c := range []struct {
		machine string
		rank    int
	}{{"nvlink", 2}, {"nvlink", 0}, {"one-way", 3}, {"no-p2p", 1}} {
		t.Run(fmt.Sprintf("%s rank %d", c.machine, c.rank), func(t *testing.T) {
			code, r := jsonRun(t, "--machine", c.machine, "--absent", fmt.Sprint(c.rank), "--timeout", "2s", "--sizes", "1KB", "--dtype", "bf16")
			require.Equal(t, exitFault, code)
			require.Empty(t, r.Error)
			require.NotNil(t, r.Absent)
			require.Equal(t, c.rank, r.Absent.Rank)
			require.Len(t, r.Absent.Others, 3)
			for _, w := range r.Absent.Others {
				require.NotEqual(t, c.rank, w.Rank)
				require.True(t, w.Names, "rank %d: %s", w.Rank, w.Error)
				require.Contains(t, w.Error, fmt.Sprint(c.rank))
				require.True(t, w.InTime, "rank %d took %.0f ms", w.Rank, w.AfterMS)
			}
			require.True(t, r.Absent.Refused, r.Absent.Refusal)
			require.True(t, r.Absent.Rebuilt)
			require.True(t, r.Absent.shown())
			require.Len(t, r.Results, 1)
		})
	}
}

func TestAbsentText(t *testing.T) {
	code, stdout, stderr := demo(t, "--backend", "emu", "--absent", "1", "--ranks", "2", "--timeout", "1s", "--sizes", "16", "--dtype", "f32")
	require.Equal(t, exitFault, code)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "Rank 1 stays away from a call of 16 elements of f32. The group gives it up after 750ms, so that the others know\nwithin --timeout 1s.")
	require.Regexp(t, `rank 0 after \d+ ms: rank 0 block 0 timed out waiting for rank 1`, stdout)
	require.Contains(t, stdout, "FAULT, as demonstrated: rank 1 never arrived.")
}

func TestDevices(t *testing.T) {
	code, stdout, stderr := demo(t, "devices", "--machine", "one-way")
	require.Equal(t, exitGood, code, stderr)
	require.Contains(t, stdout, "EMULATED")
	require.Contains(t, stdout, "GPU0\t X \tOK\tOK\tOK")
	require.Contains(t, stdout, "GPU3\tNS\tNS\tNS\t X ")
	require.NotContains(t, stdout, "#wrong")

	code, stdout, stderr = demo(t, "devices", "--json", "--machine", "no-p2p", "--devices", "2")
	require.Equal(t, exitGood, code, stderr)
	var r machineReport
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	require.Len(t, r.Devices, 2)
	require.Equal(t, topo.No, r.P2P[0][1].Access)
}

// Without a GPU, asking for one is a fault that says what to do instead.
func TestNoGPU(t *testing.T) {
	if rt, err := launcher.Open(launcher.Config{Backend: launcher.CUDA}); err == nil {
		require.NoError(t, rt.Close())
		t.Skip("there is a GPU")
	}
	code, stdout, stderr := demo(t, "--backend", "cuda")
	require.Equal(t, exitFault, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "use --backend emu")
}

// An interrupted run stops soon, closes everything and says so; --json still gives a whole document.
func TestInterrupt(t *testing.T) {
	for _, args := range [][]string{{}, {"--json"}, {"--absent", "1", "--timeout", "1s"}} {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(100*time.Millisecond, cancel)
		var out, diag bytes.Buffer
		start := time.Now()
		code := execute(ctx, append(args, "--backend", "emu", "--sizes", "4KB", "--iters", "10000"), &out, &diag)
		require.Equal(t, exitInterrupted, code, diag.String())
		require.Equal(t, "demo: interrupted; everything was closed\n", diag.String())
		require.Less(t, time.Since(start), 30*time.Second)
		if len(args) == 1 {
			var r runReport
			require.NoError(t, json.Unmarshal(out.Bytes(), &r))
			require.False(t, r.OK)
			require.NotEmpty(t, r.Error)
		} else {
			require.Contains(t, out.String(), "FAIL: ")
		}
	}
}

// withBench gives f a row's memory on an emulated machine.
func withBench(t *testing.T, ranks int, w row, f func(rt *launcher.Runtime, b *bench)) {
	t.Helper()
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu})
	require.NoError(t, err)
	defer func() { require.NoError(t, rt.Close(), "nothing is leaked") }()
	g, err := allreduce.NewGroup(rt, allreduce.Config{Ranks: ranks})
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	b, err := newBench(rt, g, w, 10*time.Second)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.free()) }()
	f(rt, b)
}

// The check itself must notice results that are not there and bytes that were changed.
func TestCompare(t *testing.T) {
	w := row{allreduce.BF16, 100}
	ctx := context.Background()
	for _, c := range []struct {
		name         string
		buffer       func(b *bench) launcher.Buffer
		at           uint64
		wrong, stray uint64
		first        string
	}{
		{"guard before", func(b *bench) launcher.Buffer { return b.out[1] }, guardBytes - 1, 0, 1, "rank 1: byte -1 relative to the output"},
		{"guard after", func(b *bench) launcher.Buffer { return b.out[0] }, guardBytes + 200, 0, 1, "rank 0: byte 200 relative to the output"},
		{"last byte", func(b *bench) launcher.Buffer { return b.out[0] }, 2*guardBytes + 201, 0, 1, "rank 0: byte 457 relative to the output"},
		{"output", func(b *bench) launcher.Buffer { return b.out[1] }, guardBytes + 199, 1, 0, "rank 1: element 99 is 0x"},
		{"input", func(b *bench) launcher.Buffer { return b.in[1] }, guardBytes, 0, 1, "rank 1: byte 0 of the input was overwritten"},
		{"guard of the input", func(b *bench) launcher.Buffer { return b.in[0] }, 0, 0, 1, "rank 0: byte -256 relative to the input"},
	} {
		t.Run(c.name, func(t *testing.T) {
			withBench(t, 2, w, func(_ *launcher.Runtime, b *bench) {
				fill(w.dtype, rand.New(rand.NewPCG(1, 1)), b.payload)
				require.NoError(t, allreduce.Reference(w.dtype, b.want, b.payload...))
				require.NoError(t, b.upload(ctx, b.in, 0, 42, false))
				in, out, err := b.bodies()
				require.NoError(t, err)
				require.NoError(t, b.call(ctx, in, out))
				hit, err := c.buffer(b).Slice(c.at, 1)
				require.NoError(t, err)
				stream, old := b.g.Rank(hit.Device()).Stream(), make([]byte, 1)
				require.NoError(t, stream.CopyOut(ctx, old, hit))
				require.NoError(t, stream.CopyIn(ctx, hit, []byte{^old[0]}))

				v := verdict{equal: true}
				for r := range 2 {
					require.NoError(t, b.compare(ctx, &v, r, "output", b.out[r], 0, 42, b.want))
					require.NoError(t, b.compare(ctx, &v, r, "input", b.in[r], 0, 42, b.payload[r]))
				}
				require.Equal(t, c.wrong, v.wrong)
				require.Equal(t, c.stray, v.stray)
				require.Equal(t, c.wrong == 0, v.equal)
				require.Contains(t, v.first, c.first)
			})
		})
	}
}

// A call that does nothing leaves the pattern, which no result may equal by chance.
func TestCompareNoCall(t *testing.T) {
	w := row{allreduce.F32, 1000}
	withBench(t, 2, w, func(_ *launcher.Runtime, b *bench) {
		fill(w.dtype, rand.New(rand.NewPCG(1, 1)), b.payload)
		require.NoError(t, allreduce.Reference(w.dtype, b.want, b.payload...))
		require.NoError(t, b.upload(context.Background(), b.in, 0, 42, false))
		v := verdict{equal: true}
		for r := range 2 {
			require.NoError(t, b.compare(context.Background(), &v, r, "output", b.out[r], 0, 42, b.want))
		}
		require.Equal(t, uint64(2000), v.wrong)
		require.Zero(t, v.stray)
	})
}

// The GPU's way of taking times, and the emulator's, both on the emulator.
func TestTimers(t *testing.T) {
	w := row{allreduce.F16, 300}
	for name, take := range map[string]timer{"host": timeOnHost, "device": timeOnDevice} {
		t.Run(name, func(t *testing.T) {
			withBench(t, 3, w, func(rt *launcher.Runtime, b *bench) {
				got, err := take(context.Background(), rt, b, 7)
				require.NoError(t, err)
				require.Equal(t, 7, got.calls)
				require.Positive(t, got.call)
				v, err := b.verify(context.Background(), rand.New(rand.NewPCG(3, 3)), true)
				require.NoError(t, err)
				require.Equal(t, verdict{equal: true}, v, "the group works on after it")
			})
		})
	}
	withBench(t, 2, w, func(rt *launcher.Runtime, b *bench) {
		got, err := timeOnHost(context.Background(), rt, b, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, got.calls, emulatedIters)
		require.Positive(t, got.calls)
	})
}

// A call that outlasts the timeout ends the run: code 1, the error in the document, and no leak reported.
func TestTooSlow(t *testing.T) {
	size, count := "4MB", "1048576"
	if testing.Short() { // under the race detector, where as much would outlast what closing waits for
		size, count = "512KB", "131072"
	}
	args := []string{"--sizes", size, "--dtype", "f32", "--timeout", "60ms", "--algo", "oneshot-pull"} // which polls least
	code, r := jsonRun(t, args...)
	require.Equal(t, exitFault, code)
	require.Empty(t, r.Results)
	require.Contains(t, r.Error, count+" elements of f32 by oneshot-pull: ")
	require.NotContains(t, r.Error, "live objects")

	code, stdout, stderr := demo(t, append(args, "--backend", "emu")...)
	require.Equal(t, exitFault, code)
	require.Contains(t, stdout, "FAIL: stopped after 0 result(s)")
	require.Contains(t, stderr, "demo: "+count+" elements")
	require.NotContains(t, stderr, "live objects")
}

// The same command on a GPU: times by graphs and events, ranks sharing the device where there is only one.
func TestGPU(t *testing.T) {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.CUDA})
	if err != nil {
		if os.Getenv("REQUIRE_GPU") == "1" {
			require.NoError(t, err, "REQUIRE_GPU=1")
		}
		t.Skip("no GPU: ", err)
	}
	require.NoError(t, rt.Close())
	code, stdout, stderr := demo(t, "--backend", "cuda", "--sizes", "1KB:64KB,4097", "--iters", "20", "--json")
	require.Equal(t, exitGood, code, stdout+stderr)
	var r runReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	require.True(t, r.OK)
	require.False(t, r.Backend.Emulated)
	require.Equal(t, deviceClock, r.Clock)
	for _, res := range r.Results {
		require.Equal(t, 20, res.Iters)
		require.Positive(t, res.TimeUS)
	}

	code, stdout, stderr = demo(t, "--backend", "cuda", "--ranks", "4", "--share", "--sizes", "1KB", "--absent", "2", "--timeout", "2s")
	require.Equal(t, exitFault, code)
	require.Contains(t, stdout, "FAULT, as demonstrated: rank 2 never arrived.", stderr)
}
