package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
)

// besideFile writes a file as scripts/symm_mem_bench.py does, measured on the emulator's devices, which it never was.
func besideFile(t *testing.T, lines ...string) string {
	t.Helper()
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu})
	require.NoError(t, err)
	device := rt.Devices()[0].Name
	require.NoError(t, rt.Close())
	head := fmt.Sprintf(`{"kind": "fenceline-beside", "version": 1, "library": "PyTorch 9.9", "devices": [%q], "driver": "1", "clock": "c", "iters": 200, "warmup": 1, "replays": 4, "rounds": 2}`, device)
	path := filepath.Join(t.TempDir(), "torch.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(append([]string{head}, lines...), "\n")+"\n"), 0o600))
	return path
}

const (
	besideHalf   = `{"calls": 200, "samples": 8, "time_us": 6.5, "p10_us": 6.25, "p50_us": 6.5, "p90_us": 7, "p99_us": 7.5, "algbw": 0.16, "busbw": 0.17, "wrong": 0, "stray_bytes": 0, "ranks_equal": true}`
	besideAbsent = `{"calls": 0, "samples": 0, "time_us": 0.0, "p10_us": 0.0, "p50_us": 0.0, "p90_us": 0.0, "p99_us": 0.0, "algbw": 0.0, "busbw": 0.0, "wrong": 0, "stray_bytes": 0, "ranks_equal": true}`
)

func besideRow(name string, ranks, bytes int, out, in string) string {
	return fmt.Sprintf(`{"ranks": %d, "name": %q, "bytes": %d, "count": %d, "dtype": "bf16", "redop": "sum", "out_of_place": %s, "in_place": %s}`,
		ranks, name, bytes, bytes/2, out, in)
}

// Rows of another program stand below ours of the same size and number of ranks, with our floor, in table, JSON and plot.
func TestBenchBeside(t *testing.T) {
	file := besideFile(t, `{"note": "2 replay(s) thrown away"}`,
		besideRow("torch-oneshot", 2, 1024, besideHalf, besideAbsent), besideRow("torch-twoshot", 2, 1024, besideHalf, besideHalf),
		besideRow("torch-oneshot", 2, 4096, besideHalf, besideAbsent), besideRow("torch-oneshot", 4, 1024, besideHalf, besideAbsent),
		`{"skipped": "8 ranks: more than the 4 GPUs here"}`)
	plot := filepath.Join(t.TempDir(), "p.svg")
	args := []string{"--ranks", "2", "-b", "1K", "-e", "2K", "--beside", file, "--plot", plot}
	code, r := benchJSON(t, args...)
	require.Equal(t, exitGood, code, r.Error)
	require.Equal(t, "PyTorch 9.9", r.Beside.Library)
	require.Equal(t, 200, r.Beside.Iters)
	require.Len(t, r.Results, 4, "of sizes and ranks that are measured here, and no others")
	for i, want := range []string{"auto", "torch-oneshot", "torch-twoshot", "auto"} {
		require.Equal(t, want, r.Results[i].Name)
	}
	res := r.Results[1]
	require.Nil(t, res.Plan)
	require.InDelta(t, 6.5, res.Out.TimeUS, 0)
	require.Equal(t, r.Results[0].FloorUS, res.FloorUS)
	require.InEpsilon(t, 6.5/res.FloorUS, res.Ratio, 1e-9)
	text, err := os.ReadFile(plot)
	require.NoError(t, err)
	require.Contains(t, string(text), ">torch-oneshot<")

	code, stdout, _ := demo(t, append([]string{"bench", "--backend", "emu", "-n", "1"}, args...)...)
	require.Equal(t, exitGood, code)
	require.Equal(t, 1, strings.Count(stdout, "Note: PyTorch 9.9 stands beside it as it was measured apart, in processes of its own ("+file+")"))
	require.Contains(t, stdout, "Note: "+file+": skipped: 8 ranks: more than the 4 GPUs here")
	require.Regexp(t, `(?m)^ +1024 +512 +bf16 +sum +torch-oneshot +- \| +6\.50 +0\.16 +0\.17 +0 \| +- +- +- +- \| +6\.25 +7\.00 +7\.50 \| +[\d.]+ +[\d.]+$`, stdout)

	code, r = benchJSON(t, "--ranks", "2", "--devices", "1", "-b", "1K", "-e", "1K", "--beside", file, "--floor=false")
	require.Equal(t, exitGood, code, r.Error)
	require.Len(t, r.Results, 1, "several ranks on one device are nothing to compare with")
}

// A wrong result is one whoever made it.
func TestBenchBesideWrong(t *testing.T) {
	file := besideFile(t, besideRow("torch-twoshot", 2, 1024, besideHalf, strings.Replace(besideHalf, `"wrong": 0`, `"first": "rank 1: element 3", "wrong": 2`, 1)))
	code, stdout, _ := demo(t, "bench", "--backend", "emu", "-n", "1", "--ranks", "2", "-b", "1K", "-e", "1K", "--floor=false", "--beside", file)
	require.Equal(t, exitFault, code)
	require.Contains(t, stdout, "1024 bytes of bf16 on 2 ranks by torch-twoshot: rank 1: element 3")
}

func TestBenchBesideUsage(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "x.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	row := besideRow("torch-oneshot", 2, 1024, besideHalf, besideAbsent)
	for name, c := range map[string]struct{ file, want string }{
		"absent":     {"/nowhere/x.jsonl", "there is no such file: name one that"},
		"empty":      {write(""), "line 1: EOF"},
		"no head":    {write(row), `line 1: kind "", version 0 is not "fenceline-beside", version 1`},
		"version":    {write(`{"kind": "fenceline-beside", "version": 2}`), "version 2"},
		"failed":     {write(`{"error": "no PyTorch here"}`), "what wrote it failed: no PyTorch here: leave --beside out"},
		"field":      {besideFile(t, `{"rank": 2}`), `line 2: json: unknown field "rank"`},
		"ours":       {besideFile(t, strings.Replace(row, "torch-oneshot", "auto", 1)), `line 2: a row of "auto", not of one of torch-oneshot, `},
		"size":       {besideFile(t, strings.Replace(row, `"count": 512`, `"count": 511`, 1)), "1024 bytes, 511 elements"},
		"no samples": {besideFile(t, besideRow("torch-oneshot", 2, 1024, besideAbsent, besideAbsent)), "0 and 0 samples"},
		"elsewhere":  {write(`{"kind": "fenceline-beside", "version": 1, "devices": ["NVIDIA Other"]}` + "\n" + row), "it was measured on NVIDIA Other, and this machine has "},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := demo(t, "bench", "--backend", "emu", "--beside", c.file)
			require.Equal(t, exitUsage, code, stderr)
			require.Contains(t, stderr, c.want)
			require.Empty(t, stdout)
		})
	}
}

// The program that writes such files refuses what it cannot do before it begins.
func TestSymmMemBenchUsage(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	for args, want := range map[string]string{
		"--timeout nan": "--timeout nan: use seconds", "--timeout inf": "--timeout inf: use seconds", "--timeout 0": "--timeout 0: use seconds",
		"--ranks 1": "use numbers from 2 to 16", "-b 2K -e 1K": "--minbytes is above --maxbytes", "-f 1": "a factor is 2 or more",
		"--out /nowhere/rows": "--out /nowhere/rows: No such file or directory: name a file that can be written",
	} {
		out, err := exec.CommandContext(t.Context(), python, append([]string{"../../scripts/symm_mem_bench.py"}, strings.Fields(args)...)...).CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, args)
		require.Equal(t, 2, exit.ExitCode(), "%s: %s", args, out)
		require.Contains(t, string(out), want)
	}
}
