package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// demo runs the command line as main does.
func demo(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, diag bytes.Buffer
	code = doMain(args, &out, &diag)
	return code, out.String(), diag.String()
}

// Wrong usage is refused with code 2 and a remedy, prints no results, and opens nothing.
func TestUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"nope", `unknown command "nope", there are run, devices, topo, probe, doctor, check, stress, bench, tune and version: see demo --help`},
		{"run nope", `demo run takes no argument "nope": see demo --help`},
		{"devices nope", `demo devices takes no argument`},
		{"--nope", "unknown flag: --nope: see demo --help"},
		{"devices --iters 3", "unknown flag: --iters: see demo --help"},
		{"--ranks", "flag needs an argument: --ranks: see demo --help"},
		{"--ranks x", `invalid argument "x" for "--ranks" flag`},
		{"--seed -1", `invalid argument "-1" for "--seed" flag`},
		{"--timeout soon", `invalid argument "soon" for "--timeout" flag`},
		{"--timeout 0", "use 1ms or more"},
		{"--timeout -1s", "use 1ms or more"},
		{"--timeout 24h0m1s", `--timeout "24h0m1s": longer than ranks may wait for each other: use 24h or less`},
		{"run --timeout 25h", `--timeout "25h0m0s": longer than ranks may wait for each other: use 24h or less`},
		{"bench --timeout 25h", `--timeout "25h0m0s": longer than ranks may wait for each other: use 24h or less`},
		{"tune --out x.json --timeout 25h", `--timeout "25h0m0s": longer than ranks may wait for each other: use 24h or less`},
		{"stress --timeout 25h", `--timeout "25h0m0s": longer than ranks may wait for each other: use 24h or less`},
		{"--timeout 10", "invalid argument"},
		{"--devices 0", "a machine needs at least one device"},
		{"--devices -1", "a machine needs at least one device"},
		{"devices --devices 0", "a machine needs at least one device"},
		{"--ranks 0", "use 1 to 16"},
		{"--ranks 17", "use 1 to 16"},
		{"--iters 0", "use 1 to 10000"},
		{"--iters 10001", "use 1 to 10000"},
		{"--absent -1", "ranks count from 0"},
		{"--backend rocm", "use auto, cuda or emu"},
		{"--backend=", "use auto, cuda or emu"},
		{"--machine=", "use nvlink, pcie, one-way or no-p2p"},
		{"--backend cuda --machine nvlink", "use --backend emu"},
		{"--backend cuda --devices 2", "use --backend emu"},
		{"--dtype f64", `unknown dtype "f64": use one of f32, f16, bf16`},
		{"--dtype=", "the list is empty"},
		{"--dtype f32,", `unknown dtype "": use one of`},
		{"--algo ring", `unknown algorithm "ring": use one of auto, oneshot-pull, oneshot-push, twoshot-pull, twoshot-push, oneshot-wide, twoshot-wide, copy, host, nccl`},
		{"--sizes=", "the list is empty"},
		{"--sizes 1,x", "not a size"},
		{"--sizes 0", "use 1 element or more"},
		{"--sizes 6B", "6 bytes are no whole number of f32 elements"},
		{"--sizes 18446744073709551615", "at most 1073741824 bytes"},
		{"--sizes 4611686018427387905 --dtype f32", "at most 1073741824 bytes"}, // × 4 is 4 in 64 bits
	} {
		t.Run(c.args, func(t *testing.T) {
			code, stdout, stderr := demo(t, strings.Fields(c.args)...)
			require.Equal(t, exitUsage, code, stderr)
			require.Contains(t, stderr, c.want)
			require.True(t, strings.HasPrefix(stderr, "demo: "), stderr)
			require.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %q", stderr)
			require.Empty(t, stdout)
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}, {"run", "--help"}} {
		code, stdout, stderr := demo(t, args...)
		require.Equal(t, exitGood, code)
		require.Empty(t, stderr)
		for _, want := range []string{"Examples:", "demo --machine no-p2p", "--backend", "--devices", "--ranks", "--share", "--sizes",
			"--dtype", "--iters", "--algo", "--seed", "--machine", "--timeout", "--json", "--absent"} {
			require.Contains(t, stdout, want, args)
		}
	}
	code, stdout, _ := demo(t, "devices", "--help")
	require.Equal(t, exitGood, code)
	require.NotContains(t, stdout, "--iters", "devices has no flags of runs")
}

func TestVersion(t *testing.T) {
	code, stdout, stderr := demo(t, "version")
	require.Equal(t, exitGood, code)
	require.Empty(t, stderr)
	require.Regexp(t, `^fenceline demo \S+\n`, stdout)
	require.Contains(t, stdout, "PTX by ")
}

func TestExitCode(t *testing.T) {
	live, cancelled := context.Background(), func() context.Context {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx
	}()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		ran    bool
		err    error
		code   int
		stderr string
	}{
		{"good", live, true, nil, exitGood, ""},
		{"good, and a signal at the very end", cancelled, true, nil, exitGood, ""},
		{"interrupted", cancelled, true, errInterrupted, exitInterrupted, "demo: interrupted; everything was closed\n"},
		{"interrupted, and a failing close", cancelled, true, errors.Join(errInterrupted, errors.New("y")), exitInterrupted, "demo: interrupted: interrupted\ny\n"},
		{"reported", live, true, errReported, exitFault, ""},
		{"fault", live, true, errors.New("x"), exitFault, "demo: x\n"},
		{"flags of a command", live, true, usagef("--x", "1", "use 2"), exitUsage, "demo: --x \"1\": use 2\n"},
		{"usage and a failing close", live, true, errors.Join(usagef("--x", "1", "use 2"), errors.New("y")), exitUsage, "demo: --x \"1\": use 2\ny\n"},
		{"cobra's", live, false, errors.New("unknown flag"), exitUsage, "demo: unknown flag: see demo --help\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var diag bytes.Buffer
			a := &app{stderr: &diag, ran: c.ran}
			require.Equal(t, c.code, a.exitCode(c.ctx, c.err))
			require.Equal(t, c.stderr, diag.String())
		})
	}
}

type full struct{ room int }

var errFull = errors.New("no space left")

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.room {
		return 0, errFull
	}
	f.room -= len(p)
	return len(p), nil
}

// Results that cannot be written are a failure, not success.
func TestFullDisk(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"version", "--json"}} {
		var diag bytes.Buffer
		require.Equal(t, exitFault, doMain(args, &full{room: 10}, &diag))
		require.Contains(t, diag.String(), "no space left")
	}
}
