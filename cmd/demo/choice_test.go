package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

// Whatever is wrong with a machine's peer access, the run takes a way that works, says why, and is right.
func TestFaultyMachines(t *testing.T) {
	const through = "so direct kernels cannot run and copies would pass through host memory anyway"
	for machine, c := range map[string]struct {
		algorithm allreduce.Algorithm
		reasons   []string
		probed    topo.Tri // what reads of 0→1 were found to do
	}{
		"nvlink":       {allreduce.OneshotPush, []string{"all 4 devices reach each other directly"}, topo.Unknown},
		"pcie":         {allreduce.OneshotPush, []string{"as probing found"}, topo.Yes},
		"one-way":      {allreduce.Copy, []string{"1→0: device 1 cannot read the memory of device 0, and direct kernels need both directions"}, topo.Yes},
		"no-p2p":       {allreduce.Host, []string{"devices 0 and 1 have no peer access in either direction", through}, topo.Unknown},
		"mig":          {allreduce.Host, []string{"devices 0 and 1 have no peer access in either direction (MIG)", through}, topo.Unknown},
		"write-only":   {allreduce.OneshotPush, []string{"device 0 cannot read the memory of device 1 (timed out after 500ms), so peers are only written to"}, topo.No},
		"read-garbage": {allreduce.OneshotPush, []string{"expected 0x", "got 0xffffffffffffffff at offset 0", "so peers are only written to"}, topo.No},
		"lying":        {allreduce.Host, []string{"expected 0x", "got 0x0 at offset 0", through}, topo.No},
	} {
		t.Run(machine, func(t *testing.T) {
			t.Parallel()
			code, r := jsonRun(t, "--machine", machine, "--sizes", "1KB,5", "--dtype", "bf16", "--iters", "1")
			require.Equal(t, exitGood, code, r.Error)
			require.Len(t, r.Results, 2)
			for _, res := range r.Results {
				require.True(t, res.right(), res.First)
				require.Equal(t, c.algorithm, res.Plan.Algorithm)
				for _, want := range c.reasons {
					require.Contains(t, res.Plan.Reason, want)
				}
			}
			if c.probed == topo.Unknown {
				require.Nil(t, r.Measurement, "no claim to doubt")
				return
			}
			require.Equal(t, c.probed, r.Measurement.Pairs[0][1].Read.Answer)
			code, stdout, stderr := demo(t, "topo", "--machine", machine, "--plan", "--ranks", "0,1")
			require.Equal(t, exitGood, code, stderr)
			require.Contains(t, stdout, c.algorithm.String()+": ", "demo topo foretells it")
		})
	}
}

// What probing found is printed, and --probe decides about it.
func TestProbing(t *testing.T) {
	run := func(args string) string {
		code, stdout, stderr := demo(t, strings.Fields("--sizes 5 --dtype f32 --iters 1 --ranks 2 "+args)...)
		require.Equal(t, exitGood, code, stderr)
		return stdout
	}
	require.Contains(t, run("--machine pcie"), "Probed 2 ordered pair(s): all that is claimed works.")
	require.Contains(t, run("--machine lying"), "Probed 2 ordered pair(s), with 4 fault(s): 0→1 is claimed and does not work: read: expected")
	require.Contains(t, run("--machine nvlink --probe always"), "Probed 2 ordered pair(s): all")
	for _, args := range []string{"--machine nvlink", "--machine pcie --probe never", "--machine lying --algo host", "--machine no-p2p --probe always"} {
		require.NotContains(t, run(args), "Probed", args)
	}

	code, _, stderr := demo(t, strings.Fields("--machine read-garbage --sizes 5 --algo oneshot-pull")...)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "got 0xffffffffffffffff", "asking does not make it work")
	code, _, stderr = demo(t, "--probe", "maybe")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "use auto, always or never")
}

// A run obeys the operator's knobs, and refuses those it does not know.
func TestRunKnobs(t *testing.T) {
	args := strings.Fields("--machine pcie --sizes 64KB --dtype f32 --iters 1 --ranks 2")
	t.Setenv("FENCELINE_P2P_DISABLE", "1")
	t.Setenv("FENCELINE_MAX_BYTES", "16K")
	_, r := jsonRun(t, args...)
	require.True(t, r.OK)
	require.Nil(t, r.Measurement, "what is not used needs no probe")
	require.Equal(t, allreduce.Host, r.Results[0].Plan.Algorithm)
	require.Contains(t, r.Results[0].Plan.Reason, "FENCELINE_P2P_DISABLE")
	require.Equal(t, uint64(4), r.Results[0].Plan.Pieces)
	require.True(t, r.Knobs.P2PDisable)

	t.Setenv("FENCELINE_P2P_DISABLE", "yes")
	code, stdout, stderr := demo(t, args...)
	require.Equal(t, exitUsage, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, `FENCELINE_P2P_DISABLE="yes"`)
}

// The group's own deadline is the knob's exactly, unless a flag says otherwise.
func TestTimeoutKnob(t *testing.T) {
	for _, knob := range []string{"90ms", "3s", "1m"} {
		t.Setenv("FENCELINE_TIMEOUT", knob)
		want, err := time.ParseDuration(knob)
		require.NoError(t, err)
		o := options{backend: "emu", sizes: []string{"5"}, dtypes: []string{"f32"}, algo: "auto", timeout: 8 * time.Second, probing: probeAuto}
		s, err := o.checkRun(func(string) bool { return false })
		require.NoError(t, err)
		require.Equal(t, want, s.groupConfig(&runReport{}, 64).Timeout)
		s, err = o.checkRun(func(flag string) bool { return flag == "timeout" })
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, s.groupConfig(&runReport{}, 64).Timeout)
	}
}

// A remedy names what was set: the variable, where no flag was given.
func TestKnobRemedies(t *testing.T) {
	t.Setenv("FENCELINE_TIMEOUT", "1ms")
	code, _, stderr := demo(t, "run", "--machine", "nvlink", "--sizes", "1MB")
	require.Equal(t, exitFault, code)
	require.Contains(t, stderr, "FENCELINE_TIMEOUT")
	require.NotContains(t, stderr, "--timeout")
	require.Equal(t, "--timeout", (&settings{}).timeoutName())

	// Wherever the wait was that ran out, making the group included, and not where the user ended it.
	late := fmt.Errorf("new group: rank 2: %w", &launcher.TimeoutError{What: "stream of device 2", Cause: context.DeadlineExceeded})
	for knob, name := range map[bool]string{true: "FENCELINE_TIMEOUT", false: "--timeout"} {
		err := (&settings{timeoutKnob: knob}).remedyLate(t.Context(), late)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "raise "+name+", or use smaller sizes")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	require.Equal(t, late, (&settings{}).remedyLate(ended, late))
	require.Equal(t, io.EOF, (&settings{}).remedyLate(t.Context(), io.EOF))
	require.NoError(t, (&settings{}).remedyLate(t.Context(), nil))

	t.Setenv("FENCELINE_TIMEOUT", "10s")
	t.Setenv("FENCELINE_MAX_BYTES", "1G")
	code, _, stderr = demo(t, "run", "--machine", "nvlink", "--sizes", "1KB")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "out of memory")
	require.Contains(t, stderr, "FENCELINE_MAX_BYTES asks for staging of 1073741824 bytes on each rank: make it smaller, or unset it")
}
