package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/topo"
	"github.com/fenceline/fenceline/topo/probe"
)

// The test binary is the program that children of probes run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == childCommand || os.Args[1] == ncclChildCommand) {
		main()
	}
	os.Exit(m.Run())
}

// probed runs `demo probe --json`.
func probed(t *testing.T, args ...string) (int, *probeReport) {
	t.Helper()
	code, stdout, stderr := demo(t, append([]string{"probe", "--json"}, args...)...)
	var r probeReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &r), "stdout %q, stderr %q", stdout, stderr)
	require.Empty(t, stderr)
	require.Equal(t, r.OK, code == exitGood)
	return code, &r
}

func TestProbe(t *testing.T) {
	for _, c := range []struct {
		args        string
		code        int
		read, write topo.Tri // of 1→0
		fault       string
	}{
		{"--machine nvlink", exitGood, topo.Yes, topo.Yes, ""},
		{"--machine one-way", exitGood, topo.Unknown, topo.Unknown, ""},
		{"--machine mig", exitGood, topo.Unknown, topo.Unknown, ""},
		{"--machine read-garbage", exitFault, topo.No, topo.Yes, "got 0xffffffffffffffff at offset 0"},
		{"--machine lying", exitFault, topo.No, topo.No, "got 0x0 at offset 0"},
		{"--machine write-only --timeout 200ms", exitFault, topo.No, topo.Yes, "timed out after 200ms"},
		{"--machine write-only --timeout 500ms --child --numbers=false", exitFault, topo.No, topo.Yes, "timed out after 500ms"},
		{"--machine nvlink --child", exitGood, topo.Yes, topo.Yes, ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			code, r := probed(t, append(strings.Fields(c.args), "--devices", "2")...)
			require.Equal(t, c.code, code)
			got := r.Measurement.Pairs[1][0]
			require.Equal(t, []topo.Tri{c.read, c.write}, []topo.Tri{got.Read.Answer, got.Write.Answer}, "%+v", got)
			require.Equal(t, c.fault != "", slices.ContainsFunc(r.Faults, func(f string) bool {
				return strings.HasPrefix(f, "1→0 ") && strings.Contains(f, c.fault)
			}), r.Faults)
			if c.read == topo.Yes {
				require.Positive(t, got.FlagLatency)
				require.Positive(t, got.KernelRate)
			}
			if strings.Contains(c.args, "--numbers=false") {
				require.Zero(t, got.CopyNoP2P)
			}
		})
	}
}

func TestProbeText(t *testing.T) {
	code, stdout, stderr := demo(t, "probe", "--backend", "emu", "--devices", "1")
	require.Equal(t, exitGood, code, stderr)
	for _, want := range []string{"EMULATED", "pair  read  write", "0→0   ok    ok     ok     ok", "P2P Connectivity Matrix", "Unidirectional", "Latency", "PASS: "} {
		require.Contains(t, stdout, want)
	}
	code, stdout, _ = demo(t, "probe", "--machine", "lying", "--devices", "2")
	require.Equal(t, exitFault, code)
	require.Contains(t, stdout, "FAULT: 4 check(s) are not as claimed")
	require.Equal(t, 1, strings.Count(stdout, "0→1 read: expected 0x"), "once is enough")
	require.NotContains(t, stdout, "PASS")

	_, stdout, _ = demo(t, "probe", "--machine", "no-p2p")
	require.Equal(t, 1, strings.Count(stdout, "the driver gives no peer access"), stdout)
}

func TestProbeUsage(t *testing.T) {
	for _, args := range []string{"--timeout 0", "--timeout 2h", "--machine mars", "--backend cuda --devices 2", "extra"} {
		code, stdout, stderr := demo(t, append([]string{"probe"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, code, stderr)
		require.Empty(t, stdout)
	}
}

// A machine on which nothing reads takes as long as a few pairs, not all.
func TestProbeSoon(t *testing.T) {
	start := time.Now()
	code, r := probed(t, "--machine", "write-only", "--devices", "4", "--numbers=false")
	require.Equal(t, exitFault, code)
	require.Len(t, r.Faults, 12)
	require.Contains(t, r.Faults[0], "timed out after 500ms")
	require.Less(t, time.Since(start), 12*time.Second, "one after the other with 2s each it is 31s")
}

// A variable that is misspelt is refused by every command but the doctor, who reports it.
func TestMisspeltKnob(t *testing.T) {
	t.Setenv("FENCELINE_ALG", "copy")
	for _, args := range []string{"", "run", "devices", "topo", "topo --from ../../topo/testdata/dgx1-v100.txt", "probe", "version"} {
		code, stdout, stderr := demo(t, strings.Fields(args)...)
		require.Equal(t, exitUsage, code, args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, `there is no variable "FENCELINE_ALG": use one of FENCELINE_ALGO`)
	}
	code, _, _ := demo(t, "--help")
	require.Equal(t, exitGood, code)
}

// Claims are doubted except over NVLink, and each pair of devices once, however many ranks share them.
func TestDoubtful(t *testing.T) {
	yes, no, nv := topo.Pair{Access: topo.Yes, Link: "PHB"}, topo.Pair{Access: topo.No, Link: "PHB"}, topo.Pair{Access: topo.Yes, Link: "NV2"}
	m := &topo.Machine{Devices: make([]topo.Device, 3), Pairs: [][]topo.Pair{{{}, yes, nv}, {no, {}, {}}, {nv, yes, {}}}}
	require.Equal(t, []probe.Pair{{From: 0, To: 1}, {From: 1, To: 2}, {From: 2, To: 1}}, doubtful(m, []int{0, 1, 2, 0}, false))
	require.Empty(t, doubtful(m, []int{2, 0, 2}, false))
	require.Len(t, doubtful(m, []int{2, 0, 2}, true), 2)
	m.Pairs[0][1].Read = topo.No // so stated: of no use, whether it writes or not
	require.Equal(t, []probe.Pair{{From: 1, To: 2}, {From: 2, To: 1}}, doubtful(m, []int{0, 1, 2}, false))
}
