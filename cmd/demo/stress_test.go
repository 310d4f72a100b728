package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags/stress"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

func stressJSON(t *testing.T, args ...string) (int, *stressReport, string) {
	t.Helper()
	code, stdout, stderr := demo(t, append([]string{"stress", "--backend", "emu", "--json"}, args...)...)
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	var r stressReport
	require.NoError(t, dec.Decode(&r), "stdout %q, stderr %q", stdout, stderr)
	require.Equal(t, code == exitGood, r.OK)
	return code, &r, stderr
}

func TestStress(t *testing.T) {
	code, r, stderr := stressJSON(t, "--duration", "1500ms", "--litmus-time", "1s", "--control")
	require.Equal(t, exitGood, code, r.Error)
	require.Empty(t, stderr)
	require.NotZero(t, r.Total.Calls)
	require.NotZero(t, r.Times.Samples)
	require.LessOrEqual(t, r.Times.P50, r.Times.P99)
	require.LessOrEqual(t, r.Times.P99, r.Times.Max)
	paused := false
	for _, round := range r.Rounds {
		require.Zero(t, round.Wrong+round.Stray)
		paused = paused || round.DelayPlaces > 0
	}
	require.True(t, paused)
	require.Greater(t, len(r.Litmus), 300)
	require.Zero(t, r.forbidden())
	require.Len(t, r.Control, 3)
	for _, c := range r.Control {
		require.NotZero(t, c.Changed)
		switch c.Weakening {
		case stress.NoBarrier:
			require.True(t, c.BadCalls > 0 || c.Failures > 0, "%+v", c)
			require.Contains(t, c.Verdict, "(expected)")
		default:
			require.Contains(t, c.Verdict, "the emulator's memory is sequentially consistent and hides it")
		}
	}
}

func TestStressText(t *testing.T) {
	code, stdout, stderr := demo(t, "stress", "--backend", "emu", "--duration", "300ms", "--no-litmus", "--algo", "copy", "--delays", "off", "--load", "none", "--max-bytes", "1KB")
	require.Equal(t, exitGood, code, stdout+stderr)
	require.Empty(t, stderr)
	for _, want := range []string{"EMULATED", "Stress: 300ms, messages up to 1024 bytes, delays off, load none, seed 1", "#wrong 0 elements", "PASS: "} {
		require.Contains(t, stdout, want)
	}
	require.Regexp(t, `(?m)^ +copy +\d+x\d+ +\d+ +\d+ +- +\d+ +\d+ +0 +[\d.]+ +[\d.]+ +[\d.]+$`, stdout)
	require.NotContains(t, stdout, "litmus")
}

// A litmus test that forbids what the devices do fails the run, and is named.
func TestStressForbidden(t *testing.T) {
	file := filepath.Join(t.TempDir(), "wrong.litmus")
	require.NoError(t, os.WriteFile(file, []byte("test: stores store\nwhy: a test of this test\nx = 0\nd0.b0.t0\nst.weak.u32 [x], 1\nforbidden: [x] = 1\n"), 0o600))
	args := []string{"stress", "--backend", "emu", "--duration", "100ms", "--litmus-time", "100ms", "--litmus-files", file, "--load", "none"}
	code, stdout, _ := demo(t, args...)
	require.Equal(t, exitFault, code)
	require.Regexp(t, `FORBIDDEN (\d+) of \d+ times: stores store, devices 0: forbidden: \[x\] = 1\n`, stdout)
	require.Regexp(t, `FAIL: 0 of \d+ calls wrong, 0 bytes overwritten beside the outputs, \d+ forbidden litmus outcomes`, stdout)
}

// What a test permits is no fault where it is seen, and is not named as one.
func TestStressPermitted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "permitted.litmus")
	require.NoError(t, os.WriteFile(file, []byte("test: stores store\nwhy: a test of this test\nx = 0\nd0.b0.t0\nst.weak.u32 [x], 1\npermitted: [x] = 1\n"), 0o600))
	code, stdout, _ := demo(t, "stress", "--backend", "emu", "--duration", "100ms", "--litmus-time", "100ms", "--litmus-files", file, "--load", "none")
	require.Equal(t, exitGood, code, stdout)
	require.NotContains(t, stdout, "FORBIDDEN")
	require.Regexp(t, `(?m)^stores store +0 +\d+ +- +1/1 `, stdout)
}

// Without peer access the turns of copy and host are all there is.
func TestStressNoP2P(t *testing.T) {
	code, r, _ := stressJSON(t, "--machine", "no-p2p", "--duration", "2s", "--no-litmus", "--ranks", "2")
	require.Equal(t, exitGood, code, r.Error)
	for _, round := range r.Rounds {
		require.NotEqual(t, allreduce.OneshotPull, round.Algorithm)
	}
}

// What probing finds, and what a machine's file states, keeps kernels, copies of the load and litmus tests off reads that never end.
func TestStressProbes(t *testing.T) {
	_, stdout, _ := demo(t, "topo", "--backend", "emu", "--machine", "nvlink", "--json")
	var rep topoReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &rep))
	m := rep.Machine
	for i, row := range m.Pairs {
		for j := range row {
			if i != j {
				row[j].Read = topo.No
			}
		}
	}
	var text bytes.Buffer
	require.NoError(t, m.WriteJSON(&text))
	file := filepath.Join(t.TempDir(), "pushes.json")
	require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
	for machine, probed := range map[string]bool{"write-only": true, "lying": true, "file:" + file: false} {
		code, r, _ := stressJSON(t, "--machine", machine, "--duration", "700ms", "--litmus-time", "300ms", "--timeout", "3s")
		require.Equal(t, exitGood, code, "%s: %s", machine, r.Error)
		require.Equal(t, probed, r.Measurement != nil, machine)
		for _, round := range r.Rounds {
			require.NotContains(t, []allreduce.Algorithm{allreduce.OneshotPull, allreduce.TwoshotPull}, round.Algorithm, machine)
		}
		for i := range r.Litmus {
			for _, d := range r.Litmus[i].Devices {
				require.LessOrEqual(t, d, 0, "one device, or the host")
			}
		}
	}
	code, stdout, stderr := demo(t, "stress", "--machine", "write-only", "--algo", "oneshot-pull")
	require.Equal(t, exitUsage, code, stderr)
	require.Contains(t, stderr, "--algo: algorithm oneshot-pull: 0→1: probing found that device 0 cannot read the memory of device 1")
	require.Empty(t, stdout)
	code, stdout, stderr = demo(t, strings.Fields("stress --machine write-only --duration 100ms --no-litmus --load none")...)
	require.Equal(t, exitGood, code, stderr)
	require.Contains(t, stdout, "Peer access does not do all that it claims, and only what does work is used: see demo probe\n")
}

// Copies that never end are named, and what to do.
func TestStressLoadNamesDevices(t *testing.T) {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu, Machine: "write-only", WaitLimit: 300 * time.Millisecond})
	require.NoError(t, err)
	defer rt.Close()
	require.NoError(t, rt.EnablePeer(0, 1))
	rep := &stressReport{World: worldReport{Devices: []int{0}}}
	rep.machineReport, err = describe(rt)
	require.NoError(t, err)
	load, err := startLoad(rt, rep, &stressSettings{loadCopy: true})
	require.NoError(t, err)
	err = load.eg.Wait()
	require.ErrorContains(t, err, "copies between devices 0 and 1: waited ")
	require.ErrorContains(t, err, "see what demo probe says of them, or use --load sm")
	require.Error(t, load.close())
}

// A kernel that sums wrongly is found out, by the calls and by the exit code.
func TestStressFindsWrongSums(t *testing.T) {
	stressSabotage = func(_ string, ptx []byte) ([]byte, error) {
		return bytes.ReplaceAll(ptx, []byte("add.f32"), []byte("sub.f32")), nil
	}
	defer func() { stressSabotage = nil }()
	for _, algo := range []string{"oneshot-pull", "host"} {
		code, r, _ := stressJSON(t, "--duration", "200ms", "--no-litmus", "--algo", algo)
		require.Equal(t, exitFault, code)
		require.Empty(t, r.Error)
		require.NotZero(t, r.Total.Wrong)
		require.NotZero(t, r.Total.BadCalls)
		require.Regexp(t, `\d+ elements of \w+, .*: rank \d: element \d+ is 0x`, r.Total.First)
	}
	code, stdout, _ := demo(t, "stress", "--backend", "emu", "--duration", "200ms", "--no-litmus")
	require.Equal(t, exitFault, code)
	require.Regexp(t, `FAIL: \d+ of \d+ calls wrong`, stdout)
}

// Kernels without barriers go wrong or wait in vain; either way the run fails when it is no control.
func TestStressFindsMissingBarriers(t *testing.T) {
	stressSabotage = func(file string, ptx []byte) ([]byte, error) {
		out, _, err := stress.NoBarrier.Patch(file, ptx)
		return out, err
	}
	defer func() { stressSabotage = nil }()
	code, r, _ := stressJSON(t, "--duration", "1s", "--no-litmus", "--algo", "oneshot-pull", "--timeout", "500ms")
	require.Equal(t, exitFault, code)
	require.True(t, r.Error != "" || r.Total.Wrong > 0)
}

// Where calls time out, each rank says what it waited for.
func TestStressSaysWhoWaits(t *testing.T) {
	send := regexp.MustCompile(`st\.relaxed\.sys\.global\.v2\.b64 \[[^]]*\], \{([^,]*), [^}]*\};`)
	stressSabotage = func(_ string, ptx []byte) ([]byte, error) {
		require.Regexp(t, send, string(ptx))
		return send.ReplaceAll(ptx, []byte("mov.b64 $1, $1;")), nil
	}
	defer func() { stressSabotage = nil }()
	code, r, _ := stressJSON(t, "--duration", "1s", "--no-litmus", "--algo", "oneshot-push", "--ranks", "3", "--timeout", "300ms")
	require.Equal(t, exitFault, code)
	require.Regexp(t, `(?s)rank 0 block \d+ timed out waiting for rank 1 .*\nrank 1 block \d+ timed out waiting for rank 0 .*\nrank 2 block \d+ timed out waiting for rank 0 `, r.Error)
}

// An interrupted run says what it did, frees everything and exits with 130.
func TestStressInterrupted(t *testing.T) {
	for _, args := range [][]string{
		{"--duration", "1h"},
		{"--duration", "300ms", "--litmus-time", "1h"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		var out, diag bytes.Buffer
		code := execute(ctx, append([]string{"stress", "--backend", "emu"}, args...), &out, &diag)
		require.Equal(t, exitInterrupted, code, diag.String())
		require.Contains(t, diag.String(), "demo: interrupted; everything was closed")
		require.Regexp(t, `INTERRUPTED after [1-9]\d* calls, 0 of them wrong`, out.String())
	}
}

func TestStressUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--duration 0s", "use more than 0"},
		{"--litmus-time 0s", "use more than 0"},
		{"--delays maybe", "use on or off"},
		{"--load all", "use none, sm, copy or both"},
		{"--max-bytes 8", "use a number of bytes from 64"},
		{"--max-bytes 1GB", "use a number of bytes from 64"},
		{"--litmus-files nowhere/*.litmus", "there is no such file"},
		{"--litmus-files stress_test.go", "stress_test.go:1:"},
		{"--ranks 99", "use 1 to 16"},
		{"--iters 3", "unknown flag"},
		{"--algo nccl", "--algo: algorithm nccl: the devices are emulated, and NCCL needs GPUs: run on GPUs, or use auto, copy or host"},
		{"--algo oneshot-pull --machine no-p2p", "--algo: algorithm oneshot-pull: "},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, stdout, stderr := demo(t, append([]string{"stress", "--backend", "emu"}, strings.Fields(c.args)...)...)
			require.Equal(t, exitUsage, code, stderr)
			require.Contains(t, stderr, c.want)
			require.Empty(t, stdout)
		})
	}
}

func TestStressTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	var a, b stressTimes
	for i := range 10_000 {
		d := time.Duration(uint64(1)<<rng.IntN(40) + rng.Uint64N(1<<20))
		all = append(all, d)
		if i%2 == 0 {
			a.add(d)
		} else {
			b.add(d)
		}
	}
	require.Zero(t, (&stressTimes{}).quantile(0.5))
	a.merge(&b)
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.99, 1} {
		exact := all[int(q*float64(len(all)))-1]
		got := a.quantile(q)
		require.GreaterOrEqual(t, got, exact)
		require.InEpsilon(t, float64(exact), float64(got), 0.04, q)
	}
	require.Equal(t, all[len(all)-1], a.quantile(1))
	for c := range 58 * timeSteps {
		require.Equal(t, c, timeClass(classEnd(c)))
	}
}

func TestHeartbeat(t *testing.T) {
	var w bytes.Buffer
	h := newHeartbeat(&w, time.Minute)
	h.add(&stressTally{Calls: 5})
	require.Empty(t, w.String())
	h.last = h.last.Add(-beatEvery)
	one := &stressTally{Calls: 7, Wrong: 3}
	one.times.add(1500 * time.Nanosecond)
	h.add(one)
	require.Regexp(t, `^demo: stress \d+s: 12 calls, \d+ calls/s, 3 wrong; p50 1.5 p99 1.5 max 1.5 µs\n$`, w.String())
	(*heartbeat)(nil).add(one)
	h.close()
}

// A group takes what it is given of the shortest --timeout and of the longest.
func TestGroupTimeout(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{minTimeout: minTimeout, 2 * time.Millisecond: 1500 * time.Microsecond, 10 * time.Second: 9 * time.Second, maxTimeout: maxTimeout - time.Second} {
		require.Equal(t, want, groupTimeout(given))
	}
	_, _, stderr := demo(t, strings.Fields("--backend emu --sizes 4 --dtype f32 --timeout 1ms")...)
	require.NotContains(t, stderr, "configuration") // it may be late
}

// What FENCELINE_TIMEOUT may say at most, a group takes.
func TestStressLongestTimeout(t *testing.T) {
	t.Setenv("FENCELINE_TIMEOUT", "24h")
	code, r, _ := stressJSON(t, "--duration", "100ms", "--no-litmus", "--load", "none", "--algo", "oneshot-pull")
	require.Equal(t, exitGood, code, r.Error)
}

// Eight rounds have every algorithm but nccl.
func TestStressDrawsAll(t *testing.T) {
	r := &stresser{set: &stressSettings{settings: settings{algorithm: allreduce.Auto}, maxBytes: 4096}, rng: rand.New(rand.NewPCG(3, 4))}
	for range 3 {
		seen := map[allreduce.Algorithm]int{}
		for i := range 8 {
			seen[r.draw(i).Algorithm]++
		}
		for _, a := range allreduce.Algorithms() {
			if a != allreduce.Auto && a != allreduce.NCCL {
				require.Equal(t, 1, seen[a], "%v", a)
			}
		}
	}
}
