package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/internal/nccl"
	"github.com/fenceline/fenceline/internal/nccl/nccltest"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

// standInNCCL makes --algo nccl run on emulated devices. off is added to the first element of each sum.
func standInNCCL(t *testing.T, off float32) *nccltest.Fake {
	t.Helper()
	f := &nccltest.Fake{Sum: func(dt nccl.DType, out []byte, in ...[]byte) error {
		require.Equal(t, "0", os.Getenv("NCCL_NVLS_ENABLE"))
		ours := map[nccl.DType]allreduce.DType{nccl.F32: allreduce.F32, nccl.F16: allreduce.F16, nccl.BF16: allreduce.BF16}[dt]
		if err := allreduce.Reference(ours, out, in...); err != nil || len(out) == 0 || off == 0 {
			return err
		}
		ours.Store(out, ours.Load(out)+off)
		return nil
	}}
	opened = func(rt *launcher.Runtime) { f.Driver = rt.Driver() }
	ncclOnEmulator = true
	restore := nccl.StandIn(f.Load)
	t.Cleanup(func() { restore(); opened, ncclOnEmulator = nil, false })
	return f
}

// NCCL's rows are held to the reference's bits like all others, with payloads whose sums are exact in any order.
func TestRunNCCL(t *testing.T) {
	t.Setenv("NCCL_NVLS_ENABLE", "1")
	f := standInNCCL(t, 0)
	run := strings.Fields("--backend emu --algo nccl --ranks 3 --sizes 5,1000 --iters 1")
	code, stdout, stderr := demo(t, run...)
	require.Equal(t, exitGood, code, stderr+stdout)
	require.Contains(t, stdout, "Plan: nccl: asked for; NCCL does not sum in rank order, so bits can differ from the reference\n"+wholeHelp)
	require.Equal(t, 1, strings.Count(stdout, wholeHelp))
	require.Regexp(t, `(?m)^ +4000 +1000 +f32 +sum +nccl +- +[\d.]+ +[\d.]+ +[\d.]+ +0$`, stdout)
	require.Contains(t, stdout, "PASS: 6 results")
	require.Equal(t, "1", os.Getenv("NCCL_NVLS_ENABLE"), "it is as it was")
	counts := f.Counts()
	require.Equal(t, [2]int{1, 0}, [2]int{counts.Closes, counts.Aborts})

	standInNCCL(t, 1)
	code, r := jsonRun(t, run[2:]...)
	require.Equal(t, exitFault, code)
	for _, res := range r.Results {
		require.Equal(t, allreduce.NCCL, res.Plan.Algorithm)
		require.Equal(t, [2]uint64{3, 3}, [2]uint64{res.Wrong, res.WrongInPlace}, "one element on each rank")
		require.True(t, res.RanksEqual)
	}
}

// A rank that never comes is named with NCCL too, and a new group works.
func TestRunNCCLAbsent(t *testing.T) {
	standInNCCL(t, 0)
	code, r := jsonRun(t, strings.Fields("--algo nccl --ranks 3 --sizes 5 --dtype f32 --absent 2 --timeout 1s")...)
	require.Equal(t, exitFault, code)
	require.Empty(t, r.Error)
	require.True(t, r.Absent.shown(), "%+v", r.Absent)
}

func TestBenchNCCL(t *testing.T) {
	standInNCCL(t, 0)
	code, r := benchJSON(t, strings.Fields("--algo nccl,oneshot-push --ranks 2 -b 1K -e 2K --floor=false")...)
	require.Equal(t, exitGood, code, r.Error)
	require.Len(t, r.Results, 4)
	for i, res := range r.Results {
		require.Equal(t, []string{"oneshot-push", "nccl"}[i%2], res.Name)
		require.True(t, res.right(), res.Out.First)
		require.Equal(t, res.Name, res.Plan.Algorithm.String())
	}
	_, stdout, _ := demo(t, strings.Fields("bench --backend emu --algo all --ranks 2 -b 1K -e 1K --floor=false")...)
	require.Regexp(t, `(?m) nccl +- \|`, stdout)
	require.Contains(t, stdout, wholeHelp)

	standInNCCL(t, 1)
	code, r = benchJSON(t, strings.Fields("--algo nccl --ranks 2 -b 1K -e 1K --floor=false")...)
	require.Equal(t, exitFault, code)
	require.Equal(t, [2]uint64{2, 2}, [2]uint64{r.Results[0].Out.Wrong, r.Results[0].In.Wrong})
}

// A table's rule for NCCL holds where the operator allows it, and in that row alone payloads are whole numbers.
func TestTableNCCL(t *testing.T) {
	f := standInNCCL(t, 0)
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu, Devices: 2})
	require.NoError(t, err)
	m, err := topo.FromDriver(rt.Driver())
	require.NoError(t, err)
	require.NoError(t, rt.Close())
	table, err := allreduce.NewTunedTable(m, allreduce.Table{{From: 2048, Algorithm: allreduce.NCCL}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "tuned.json")
	require.NoError(t, table.Save(path))
	args := []string{"--devices", "2", "--sizes", "1KB,2KB", "--dtype", "f32", "--iters", "1", "--table", path}
	code, r := jsonRun(t, args...)
	require.Equal(t, exitGood, code, r.Error)
	require.Equal(t, allreduce.OneshotPush, r.Results[1].Plan.Algorithm)
	require.Contains(t, r.Results[1].Plan.Reason, "a rule for nccl is passed over")
	require.Zero(t, f.Counts().Joins)
	t.Setenv("FENCELINE_NCCL", "1")
	code, r = jsonRun(t, args...)
	require.Equal(t, exitGood, code, r.Error)
	require.Equal(t, allreduce.OneshotPush, r.Results[0].Plan.Algorithm)
	require.Equal(t, allreduce.NCCL, r.Results[1].Plan.Algorithm)
	require.Equal(t, 1, f.Counts().Joins)
	require.True(t, r.Knobs.NCCL)
}

// Where NCCL cannot be used it is refused with the remedy, before anything runs.
func TestNCCLRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--algo nccl":                               "demo: --algo: algorithm nccl: the devices are emulated, and NCCL needs GPUs: run on GPUs, or use auto, copy or host",
		"--algo nccl --devices 1":                   "demo: --algo: algorithm nccl: ranks 0 and 1 share device 0, and NCCL refuses two ranks on one device: use as many ranks as devices",
		"bench --algo nccl --ranks 2":               "demo: --algo: algorithm nccl: the devices are emulated",
		"bench --algo nccl --compare nccl":          "--algo nccl measures the same library: leave one of them out",
		"tune --algo nccl --out tuned.json":         "it has no grid to tune",
		"run --algo nccl --nccl /nowhere --ranks 2": "the devices are emulated",
	} {
		code, stdout, stderr := demo(t, append(strings.Fields(args), "--backend", "emu")...)
		require.Equal(t, exitUsage, code, stderr)
		require.Contains(t, stderr, want)
		require.Empty(t, stdout)
	}
	t.Setenv("FENCELINE_ALGO", "nccl")
	for args, want := range map[string]string{
		"run":         "run on GPUs; FENCELINE_ALGO asks for it: set it to auto, copy or host, or unset it",
		"topo --plan": "algorithm nccl: the devices are emulated",
		"stress":      "its bits are not the reference's",
	} {
		code, _, stderr := demo(t, append(strings.Fields(args), "--backend", "emu")...)
		require.Equal(t, exitUsage, code, stderr)
		require.Contains(t, stderr, want)
	}
	file := "../../topo/testdata/hgx-h100-nv18-nics.txt"
	code, stdout, _ := demo(t, "topo", "--plan", "--from", file)
	require.Equal(t, exitGood, code)
	require.Contains(t, stdout, "Plan for 8 rank(s) on device(s) 0,1,2,3,4,5,6,7: nccl: asked for by FENCELINE_ALGO; NCCL does not sum in rank order, so bits can differ from the reference\n")
	require.Contains(t, stdout, "by NCCL's own kernels, in 1 piece(s)")
	code, stdout, _ = demo(t, "topo", "--plan", "--from", file, "--json")
	require.Equal(t, exitGood, code)
	var rep topoReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &rep))
	require.Equal(t, allreduce.NCCL, rep.Plan.Algorithm)
}
