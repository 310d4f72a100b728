package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/topo"
	"github.com/fenceline/fenceline/topo/probe"
)

func TestBaseline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baseline.json")
	code, stdout, stderr := demo(t, "topo", "--machine", "pcie", "--save", path)
	require.Equal(t, exitGood, code, stderr)
	require.Contains(t, stdout, "Saved to "+path)
	code, stdout, stderr = demo(t, "topo", "--machine", "pcie", "--check", path)
	require.Equal(t, exitGood, code, stdout+stderr)
	require.True(t, strings.HasPrefix(stdout, "As the baseline has it.\n"), stdout)

	code, stdout, stderr = demo(t, "topo", "--machine", "no-p2p", "--check", path, "--json")
	require.Equal(t, exitFault, code)
	require.Empty(t, stderr)
	var rep topoReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &rep))
	require.False(t, *rep.Match)
	require.NotEmpty(t, rep.Differences)

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text[:len(text)/2], 0o600))
	code, stdout, stderr = demo(t, "topo", "--machine", "pcie", "--check", path)
	require.Equal(t, exitFault, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, topo.ErrTruncated.Error())
}

// A machine whose claims are as before and whose data is not does not match.
func TestBaselineProbes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baseline.json")
	machine := []string{"topo", "--machine", "read-garbage", "--devices", "2"}
	code, _, stderr := demo(t, append(machine, "--save", path)...)
	require.Equal(t, exitGood, code, stderr)
	code, stdout, _ := demo(t, append(machine, "--check", path)...)
	require.Equal(t, exitGood, code, stdout)

	b, err := topo.ReadBaseline(path)
	require.NoError(t, err)
	require.Equal(t, topo.No, b.Measurement.Pairs[0][1].Read.Answer)
	b.Measurement.Pairs[0][1].Read = topo.Check{Answer: topo.Yes} // as if it had worked then
	require.NoError(t, b.Save(path))
	code, stdout, _ = demo(t, append(machine, "--check", path)...)
	require.Equal(t, exitFault, code)
	require.Regexp(t, `(?m)^GPU0 to GPU1: read +ok +expected 0x\w+, got 0xffffffffffffffff at offset 0`, stdout)
}

func TestBaselineUsage(t *testing.T) {
	for _, args := range []string{"--save=", "--check=", "--save x --check y", "--check /nowhere/at/all"} {
		code, stdout, stderr := demo(t, append([]string{"topo", "--backend", "emu"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, code, stderr)
		require.Empty(t, stdout)
	}
}

// What is cached is used for the same state only, completed where it lacks a pair, and keeps failures as failures.
func TestRemembered(t *testing.T) {
	ctx, cache := context.Background(), topo.Cache{Dir: t.TempDir()}
	key := topo.Key{UUIDs: []string{"GPU-a", "GPU-b"}, Driver: "1", Kernel: "k", BootID: "b"}
	there, back := probe.Pair{From: 0, To: 1}, probe.Pair{From: 1, To: 0}
	var asked []probe.Pair
	measure := func(_ context.Context, pairs []probe.Pair) (*topo.Measurement, error) {
		asked = pairs
		m := &topo.Measurement{Version: topo.FormatVersion, Pairs: [][]topo.Measured{make([]topo.Measured, 2), make([]topo.Measured, 2)}}
		for _, p := range pairs {
			m.Pairs[p.From][p.To] = topo.Measured{Read: topo.Check{Answer: topo.No, Got: 1}, Write: topo.Check{Answer: topo.Yes}}
		}
		return m, nil
	}
	get := func(key topo.Key, pairs ...probe.Pair) []probe.Pair {
		asked = nil
		found, err := remembered(ctx, cache, key, pairs, measure)
		require.NoError(t, err)
		require.Equal(t, key, found.Key)
		for _, p := range pairs {
			require.Equal(t, topo.No, found.Pairs[p.From][p.To].Read.Answer, "a failure is never taken for good")
		}
		return asked
	}
	require.Equal(t, []probe.Pair{there}, get(key, there))
	require.Empty(t, get(key, there), "known")
	require.Equal(t, []probe.Pair{back}, get(key, there, back), "only what is missing")
	require.Empty(t, get(key, back, there))
	rebooted := key
	rebooted.BootID = "c"
	require.Equal(t, []probe.Pair{there, back}, get(rebooted, there, back))
	require.NoError(t, os.WriteFile(cache.Path(key), []byte("{"), 0o600))
	require.Equal(t, []probe.Pair{there}, get(key, there), "a damaged file is no answer")

	_, err := remembered(ctx, topo.Cache{Dir: t.TempDir()}, key, []probe.Pair{there},
		func(context.Context, []probe.Pair) (*topo.Measurement, error) { return nil, errors.New("no child") })
	require.EqualError(t, err, "no child")
}
