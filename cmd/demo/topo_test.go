package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/topo"
)

func TestTopo(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"", []string{"EMULATED: ", "GPU0\t X \tNV18", "GPU0\t X \tOK\tOK\tOK"}},
		{"--machine dgx1-v100 --plan", []string{"GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\n",
			"Plan for 8 rank(s) on device(s) 0,1,2,3,4,5,6,7: host: devices 0 and 5 have no peer access in either direction"}},
		{"--machine dgx1-v100 --plan --ranks 0,1,2,3", []string{"Plan for 4 rank(s) on device(s) 0,1,2,3: oneshot-pull: all 4 devices reach each other"}},
		{"--machine one-way --plan --ranks 1,0", []string{"Plan for 2 rank(s) on device(s) 1,0: copy: "}},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, stdout, stderr := demo(t, append([]string{"topo", "--backend", "emu"}, strings.Fields(c.args)...)...)
			require.Equal(t, exitGood, code, stderr)
			require.Empty(t, stderr)
			for _, want := range c.want {
				require.Contains(t, stdout, want)
			}
			require.Equal(t, strings.Contains(c.args, "--plan"), strings.Contains(stdout, "Plan"))
		})
	}
}

// The machine in --json is a record that --from and --machine file: read.
func TestTopoFrom(t *testing.T) {
	code, stdout, stderr := demo(t, "topo", "--machine", "pcie-2socket", "--json", "--plan", "--ranks", "0,7")
	require.Equal(t, exitGood, code, stderr)
	var rep struct {
		Version int
		Machine json.RawMessage
		Plan    planReport
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &rep))
	require.Equal(t, reportVersion, rep.Version)
	require.Equal(t, allreduce.Host, rep.Plan.Algorithm)
	require.Equal(t, []int{0, 7}, rep.Plan.Devices)
	path := filepath.Join(t.TempDir(), "machine.json")
	require.NoError(t, os.WriteFile(path, rep.Machine, 0o600))

	_, here, _ := demo(t, "topo", "--machine", "pcie-2socket", "--plan", "--ranks", "0,7")
	code, from, stderr := demo(t, "topo", "--from", path, "--plan", "--ranks", "0,7")
	require.Equal(t, exitGood, code, stderr)
	require.Equal(t, here, from)
	code, stdout, stderr = demo(t, "devices", "--machine", "file:"+path)
	require.Equal(t, exitGood, code, stderr)
	require.Contains(t, stdout, "GPU0\t X \tPIX\tPXB\tPXB\tSYS")

	require.NoError(t, os.WriteFile(path, rep.Machine[:len(rep.Machine)/2], 0o600))
	code, stdout, stderr = demo(t, "topo", "--from", path)
	require.Equal(t, exitFault, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, path)
	require.Contains(t, stderr, topo.ErrFormat.Error())
}

func TestTopoUsage(t *testing.T) {
	for _, c := range []struct{ args, env, want string }{
		{"topo --ranks 0,1", "", `--ranks "0,1": says for which ranks to plan: add --plan`},
		{"topo --plan --ranks 0,9", "", `--ranks "0,9": `},
		{"topo --plan --ranks x", "", "invalid argument"},
		{"topo --plan --ranks=", "", "--ranks"},
		{"topo --from x --machine pcie", "", "leave one of them out"},
		{"topo --from /nowhere/at/all", "", "no such file"},
		{"topo --plan", "ring", `FENCELINE_ALGO="ring": want auto, oneshot-pull, copy, host`},
	} {
		t.Run(c.args, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("FENCELINE_ALGO", c.env)
			}
			code, stdout, stderr := demo(t, strings.Fields(c.args)...)
			require.Equal(t, exitUsage, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.want)
		})
	}
}

// Knobs change the plan.
func TestTopoKnobs(t *testing.T) {
	t.Setenv("FENCELINE_P2P_LEVEL", "PIX")
	code, stdout, stderr := demo(t, "topo", "--machine", "pcie", "--plan")
	require.Equal(t, exitGood, code, stderr)
	require.Contains(t, stdout, "host: the path between devices 0 and 2 is PXB, farther than FENCELINE_P2P_LEVEL=PIX allows")
	_, stdout, _ = demo(t, "topo", "--machine", "pcie", "--plan", "--ranks", "0,1")
	require.Contains(t, stdout, "oneshot-pull: ")
}

// --svg draws what is open, with what probing found, or what a file describes.
func TestTopoSVG(t *testing.T) {
	path := filepath.Join(t.TempDir(), "machine.svg")
	for _, args := range []string{"--machine dgx1-v100", "--machine lying", "--from ../../topo/testdata/dgx1-v100.txt"} {
		code, stdout, stderr := demo(t, append([]string{"topo", "--svg", path}, strings.Fields(args)...)...)
		require.Equal(t, exitGood, code, stderr)
		require.Contains(t, stdout, "Drawn in "+path)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, xml.Unmarshal(text, new(struct{ XMLName xml.Name })), "%s", args)
		require.Contains(t, string(text), "GPU1")
	}
	code, _, stderr := demo(t, "topo", "--svg", filepath.Join(path, "inside"), "--backend", "emu")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--svg")
}
