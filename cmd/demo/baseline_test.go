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
	require.Equal(t, exitUsage, code)
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

func TestSettled(t *testing.T) {
	yes, no, open := topo.Check{Answer: topo.Yes}, topo.Check{Answer: topo.No}, topo.Check{Detail: "not settled: child process died: signal: killed"}
	for _, c := range []struct {
		m    topo.Measured
		want bool
	}{
		{topo.Measured{}, false},
		{topo.Measured{Read: yes, Write: yes, Flags: yes}, true},
		{topo.Measured{Read: no, Write: no}, true},
		{topo.Measured{Read: no, Write: yes, Flags: yes}, true},
		{topo.Measured{Read: open, Write: yes, Flags: yes}, false},
		{topo.Measured{Read: yes, Write: open}, false},
		{topo.Measured{Read: yes, Write: yes, Flags: open}, false},
	} {
		require.Equal(t, c.want, settled(c.m), "%+v", c.m)
	}
	checks := []topo.Check{yes, no, open, {}}
	for _, r := range checks {
		for _, w := range checks {
			for _, f := range checks {
				known := func(c topo.Check) bool { return c.Answer != topo.Unknown }
				want := known(r) && known(w) && (known(f) || w == no)
				require.Equal(t, want, settled(topo.Measured{Read: r, Write: w, Flags: f}), "%v %v %v", r, w, f)
			}
		}
	}
	m := &topo.Measurement{Pairs: [][]topo.Measured{{{}, {Read: open, Write: yes}}, {{}, {}}}}
	require.Equal(t, []string{"0→1 is claimed, and read is not settled: child process died: signal: killed"}, faults(nil, m))
}

func TestBaselineUsage(t *testing.T) {
	for _, args := range []string{"--save " + os.TempDir(), "--save /nowhere/at/all", "--check " + os.TempDir(), "--save=", "--check=", "--save x --check y", "--check /nowhere/at/all"} {
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
	flags := topo.Check{Answer: topo.Yes}
	measure := func(_ context.Context, pairs []probe.Pair) (*topo.Measurement, error) {
		asked = pairs
		m := &topo.Measurement{Version: topo.FormatVersion, Pairs: [][]topo.Measured{make([]topo.Measured, 2), make([]topo.Measured, 2)}}
		for _, p := range pairs {
			m.Pairs[p.From][p.To] = topo.Measured{Read: topo.Check{Answer: topo.No, Got: 1}, Write: topo.Check{Answer: topo.Yes}, Flags: flags}
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

	// A child that was killed settled nothing, so the pair is probed again, until it is.
	cache, flags = topo.Cache{Dir: t.TempDir()}, topo.Check{Detail: "not settled: child process died: signal: killed"}
	require.Equal(t, []probe.Pair{there}, get(key, there))
	flags = topo.Check{Answer: topo.Yes}
	require.Equal(t, []probe.Pair{there}, get(key, there))
	require.Empty(t, get(key, there))

	_, err := remembered(ctx, topo.Cache{Dir: t.TempDir()}, key, []probe.Pair{there},
		func(context.Context, []probe.Pair) (*topo.Measurement, error) { return nil, errors.New("no child") })
	require.EqualError(t, err, "no child")

	// Probing that broke off found something, which stands for nothing.
	cache = topo.Cache{Dir: t.TempDir()}
	found, err := remembered(ctx, cache, key, []probe.Pair{there}, func(ctx context.Context, pairs []probe.Pair) (*topo.Measurement, error) {
		m, _ := measure(ctx, pairs)
		return m, context.Canceled
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, found)
	_, err = cache.Load(key)
	require.ErrorIs(t, err, topo.ErrNotCached)
}

// What the saved file does not know is named, for nothing is said of it.
func TestBaselineNotCompared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.json")
	args := []string{"topo", "--from", "../../topo/testdata/dgx1-v100.txt"}
	code, _, stderr := demo(t, append(args, "--save", path)...)
	require.Equal(t, exitGood, code, stderr)
	code, stdout, _ := demo(t, append(args, "--check", path)...)
	require.Equal(t, exitGood, code)
	require.Contains(t, stdout, "As the baseline has it.\nNot compared, for the baseline does not know it: probes; "+
		"peer access of GPU0 to GPU1, GPU0 to GPU2, GPU0 to GPU3, GPU0 to GPU4 and 52 more\n")
	_, stdout, _ = demo(t, append(args, "--check", path, "--json")...)
	require.Contains(t, stdout, `"not_compared": [`)
}
