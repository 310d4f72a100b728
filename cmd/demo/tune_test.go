package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
)

func TestTuneUsage(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, c := range []struct{ args, want string }{
		{"", "name the file for the table, such as --out tuned.json"},
		{"--out nowhere/at/all.json", "there is no folder nowhere/at"},
		{"--out " + dir, "this is a folder"},
		{"--out x.json --algo copy", "it has no grid to tune: use some of oneshot-pull"},
		{"--out x.json --algo ring", `unknown algorithm "ring"`},
		{"--out x.json --blocks 0", "use numbers from 1 to 64"},
		{"--out x.json --blocks 65", "use numbers from 1 to 64"},
		{"--out x.json --threads 100", "use multiples of 32 from 32 to 512"},
		{"--out x.json --threads 1024", "use multiples of 32 from 32 to 512"},
		{"--out x.json --ranks 99", "use numbers from 1 to 16"},
		{"--out x.json --machine no-p2p --algo oneshot-pull", "algorithm oneshot-pull: "},
		{"--out x.json --table y.json", "unknown flag: --table"},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, stdout, stderr := demo(t, append(strings.Fields("tune --backend emu"), strings.Fields(c.args)...)...)
			require.Equal(t, exitUsage, code, stderr)
			require.Contains(t, stderr, c.want)
			require.Empty(t, stdout)
		})
	}
	t.Setenv("FENCELINE_ALGO", "copy")
	code, _, stderr := demo(t, "tune", "--out", "x.json")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "it forces one algorithm")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// What tune writes is what run and bench go by; on another machine they refuse it.
func TestTune(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tuned.json")
	require.NoError(t, os.WriteFile(path, []byte("older"), 0o600))
	code, stdout, stderr := demo(t, strings.Fields("tune --backend emu --json --ranks 2 -b 64 -e 4K -f 64 --algo twoshot-pull,oneshot-pull --blocks 3 --threads 96 --out "+path)...)
	require.Equal(t, exitGood, code, stderr)
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	var r tuneReport
	require.NoError(t, dec.Decode(&r))
	require.True(t, r.OK)
	require.Equal(t, path, r.Written)
	require.Len(t, r.Choices, 2)
	for _, c := range r.Choices {
		require.GreaterOrEqual(t, c.Tried, 3, "the shipped choice, and each algorithm")
		require.Equal(t, allreduce.OneshotPush, c.ShippedPlan.Algorithm)
		require.Positive(t, c.TimeUS)
		require.GreaterOrEqual(t, c.To, c.Bytes)
	}
	require.Less(t, r.Choices[0].To, uint64(4096))
	table, err := allreduce.ReadTunedTable(path)
	require.NoError(t, err)
	require.Equal(t, r.Rules, table.Rules)
	require.True(t, table.Machine.Emulated)
	require.Equal(t, uint64(4096), table.Rules[len(table.Rules)-1].To)

	// Made to differ from the shipped choice, so that what is taken shows where it comes from.
	table.Rules = allreduce.Table{{World: 2, To: 4096, Algorithm: allreduce.TwoshotPull, Blocks: 3, Threads: 96}}
	require.NoError(t, table.Save(path))
	code, rep := jsonRun(t, "--table", path, "--ranks", "2", "--sizes", "4KB,8KB", "--dtype", "f32", "--iters", "1")
	require.Equal(t, exitGood, code, rep.Error)
	require.Equal(t, allreduce.TwoshotPull, rep.Results[0].Plan.Algorithm)
	require.Equal(t, [2]int{3, 96}, [2]int{rep.Results[0].Plan.Blocks, rep.Results[0].Plan.Threads})
	require.Contains(t, rep.Results[0].Plan.Reason, "the tuning table prefers it")
	require.Equal(t, allreduce.OneshotPush, rep.Results[1].Plan.Algorithm, "beyond the table")

	code, bench := benchJSON(t, "--table", path, "--algo", "auto,oneshot-push", "--ranks", "2", "-b", "4K", "-e", "4K", "--floor=false")
	require.Equal(t, exitGood, code, bench.Error)
	require.Equal(t, allreduce.TwoshotPull, bench.Results[0].Plan.Algorithm)
	require.Equal(t, 3, bench.Results[0].Plan.Blocks)
	require.Equal(t, allreduce.OneshotPush, bench.Results[1].Plan.Algorithm)
	require.Equal(t, table.Rules, bench.Table)

	for _, command := range []string{"run", "bench"} {
		code, stdout, stderr = demo(t, command, "--machine", "pcie", "--table", path)
		require.Equal(t, exitUsage, code)
		require.Contains(t, stderr, "run demo tune on this machine")
		require.Contains(t, stderr, path)
		require.Empty(t, stdout)
	}
	t.Setenv("FENCELINE_ALGO", "copy")
	code, _, stderr = demo(t, "run", "--backend", "emu", "--table", path)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "FENCELINE_ALGO forces copy")
}

// A run that is interrupted, or finds nothing to tune, leaves the file as it was.
func TestTuneKeepsFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tuned.json")
	require.NoError(t, os.WriteFile(path, []byte("older"), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(400*time.Millisecond, cancel)
	var out, diag bytes.Buffer
	code := execute(ctx, strings.Fields("tune --backend emu -n 1000 --out "+path), &out, &diag)
	require.Equal(t, exitInterrupted, code, diag.String())
	require.Equal(t, "demo: interrupted; everything was closed\n", diag.String())
	require.Contains(t, out.String(), "FAIL: no table was written: interrupted")

	code, _, stderr := demo(t, "tune", "--machine", "no-p2p", "--out", path)
	require.Equal(t, exitFault, code)
	require.Contains(t, stderr, "there is nothing to tune")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "older", string(text))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func timed(by allreduce.Table, times ...time.Duration) candidate {
	return candidate{by: by, times: times}
}

func TestTunePick(t *testing.T) {
	x, y := allreduce.Table{{Algorithm: allreduce.OneshotPull}}, allreduce.Table{{Algorithm: allreduce.TwoshotPull}}
	best, shipped := pick([]candidate{timed(nil, 1000), timed(x, 990), timed(y, 985)})
	require.True(t, best.shipped(), "nothing is much faster")
	require.True(t, shipped.shipped())
	best, _ = pick([]candidate{timed(nil, 1000), timed(x, 900, 5000, 900), timed(y, 950)})
	require.Equal(t, x, best.by, "by the median")
	require.Len(t, fastest([]candidate{timed(nil, 9), timed(x, 1), timed(y, 2), timed(x, 3)}, 2), 3, "two, and the shipped one")
	require.Len(t, fastest([]candidate{timed(nil, 9), timed(x, 1)}, 6), 2)
}

func TestTuneRules(t *testing.T) {
	choice := func(ranks int, bytes uint64, dt allreduce.DType, a allreduce.Algorithm, blocks int) tuneChoice {
		return tuneChoice{Ranks: ranks, Bytes: bytes, To: bytes, DType: dt, grid: allreduce.Rule{Algorithm: a, Blocks: blocks}}
	}
	list := []tuneChoice{choice(2, 1024, allreduce.F32, allreduce.OneshotPush, 4), choice(2, 2048, allreduce.F32, allreduce.OneshotPush, 4),
		choice(2, 4096, allreduce.F32, allreduce.OneshotPush, 8), choice(2, 1024, allreduce.BF16, allreduce.OneshotPush, 8), choice(4, 1024, allreduce.BF16, allreduce.TwoshotPull, 0)}
	f32, bf16 := []allreduce.DType{allreduce.F32}, []allreduce.DType{allreduce.BF16}
	require.Equal(t, allreduce.Table{
		{World: 2, DTypes: f32, To: 2048, Algorithm: allreduce.OneshotPush, Blocks: 4},
		{World: 2, DTypes: f32, From: 2049, To: 4096, Algorithm: allreduce.OneshotPush, Blocks: 8},
		{World: 2, DTypes: bf16, To: 1024, Algorithm: allreduce.OneshotPush, Blocks: 8},
		{World: 4, DTypes: bf16, To: 1024, Algorithm: allreduce.TwoshotPull},
	}, rulesOf(list, true))
	list[0].To, list[1].To = 1500, 3072
	rules := rulesOf(list, true)
	require.Equal(t, [2]uint64{0, 3072}, [2]uint64{rules[0].From, rules[0].To}, "the same choice goes on")
	require.Equal(t, [2]uint64{3073, 4096}, [2]uint64{rules[1].From, rules[1].To})
	require.Nil(t, rulesOf(list, false)[0].DTypes)
}
