package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/topo/doctor"
)

// examine runs the doctor with --json.
func examine(t *testing.T, args ...string) (int, *doctor.Report) {
	t.Helper()
	code, stdout, stderr := demo(t, append([]string{"doctor", "--json"}, args...)...)
	var r doctor.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r), "stdout %q, stderr %q", stdout, stderr)
	require.Empty(t, stderr)
	require.Equal(t, r.Status == doctor.Fail, code == exitFault)
	return code, &r
}

// A knob that does not exist, or has a bad value, is the blocker, and the exit code says so.
func TestDoctorKnobs(t *testing.T) {
	t.Setenv("FENCELINE_ALG", "copy")
	_, r := examine(t, "--backend", "emu")
	f := r.Finding("env-fenceline")
	require.Equal(t, doctor.Fail, f.Status)
	require.Contains(t, f.Remedy[0], "FENCELINE_ALGO may be meant")

	require.NoError(t, os.Unsetenv("FENCELINE_ALG"))
	t.Setenv("FENCELINE_ALGO", "ring")
	_, r = examine(t, "--backend", "emu")
	require.Equal(t, doctor.Fail, r.Finding("env-fenceline").Status)

	t.Setenv("FENCELINE_ALGO", "copy")
	_, r = examine(t, "--backend", "emu")
	require.Equal(t, doctor.OK, r.Finding("env-fenceline").Status, "copy is allowed")
}

// Copied files are another host: neither this one's environment nor its driver counts.
func TestDoctorSysroot(t *testing.T) {
	t.Setenv("FENCELINE_ALG", "copy")
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("sys/bus/pci/devices/0000:1b:00.0/vendor", "0x10de\n")
	write("sys/bus/pci/devices/0000:1b:00.0/class", "0x030200\n")
	_, r := examine(t, "--sysroot", root)
	require.NotEqual(t, doctor.Fail, r.Finding("env-fenceline").Status)
	require.Contains(t, r.Finding("gpus").Result, "1")
	require.NotEqual(t, doctor.Fail, r.Finding("driver").Status, "none was tried")

	code, stdout, _ := demo(t, "doctor", "--sysroot", root)
	require.Equal(t, r.Status == doctor.Fail, code == exitFault)
	require.Contains(t, stdout, "checks: ")
}

// With no GPU the missing driver is a finding, not an error of the command.
func TestDoctorNoGPU(t *testing.T) {
	code, r := examine(t)
	if r.Finding("driver").Status == doctor.OK {
		t.Skip("there is a GPU")
	}
	require.Equal(t, exitFault, code)
	require.NotEmpty(t, r.Finding("driver").Evidence)
}

// Peer access that lies is found out.
func TestDoctorProbes(t *testing.T) {
	for machine, want := range map[string]doctor.Status{"pcie": doctor.OK, "read-garbage": doctor.Warn, "lying": doctor.Fail} {
		_, r := examine(t, "--machine", machine, "--devices", "2")
		require.Equal(t, want, r.Finding("p2p").Status, "%+v", r.Finding("p2p"))
		require.NotContains(t, r.Finding("p2p").Result, "not probed")
	}
}

func TestDoctorUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--sysroot", "/nowhere/at/all"}, "no such file"},
		{[]string{"--sysroot", file}, "this is no folder"},
		{[]string{"--sysroot", "/", "--backend", "emu"}, "leave one of them out"},
		{[]string{"--machine", "mars"}, "mars"},
	} {
		code, stdout, stderr := demo(t, append([]string{"doctor"}, c.args...)...)
		require.Equal(t, exitUsage, code, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, c.want)
	}
}

// A doctor who was interrupted has no verdict.
func TestDoctorInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"--machine", "lying"}, {"--sysroot", t.TempDir()}} {
		var out, diag bytes.Buffer
		code := execute(ctx, append([]string{"doctor"}, args...), &out, &diag)
		require.Equal(t, exitInterrupted, code)
		require.Equal(t, "demo: interrupted; everything was closed\n", diag.String())
		require.True(t, strings.HasPrefix(out.String(), "Interrupted: not all was looked at, so this is no verdict."), out.String())
		require.NotContains(t, out.String(), "locker")
	}
}
