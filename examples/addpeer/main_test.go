package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
)

func TestAddPeer(t *testing.T) {
	tests := []struct {
		name string
		cfg  launcher.Config
		line string
	}{
		{"two devices", launcher.Config{Backend: launcher.Emu, Devices: 2}, "device 0 reads device 1"},
		{"one device", launcher.Config{Backend: launcher.Emu, Devices: 1}, "device 0 reads device 0"},
		{"no peer access", launcher.Config{Backend: launcher.Emu, Machine: "no-p2p"}, "device 0 reads device 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			run(&out, tt.cfg)
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			require.Len(t, lines, 2)
			require.Contains(t, lines[0], "backend emu (emulator asked for)")
			require.Contains(t, lines[0], tt.line)
			require.Equal(t, "ok", lines[1])
		})
	}
}

// The same on this machine's GPUs. Without one the test is skipped, and fails where REQUIRE_GPU=1 says that there must be one.
func TestAddPeerOnGPU(t *testing.T) {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.CUDA})
	if errors.Is(err, launcher.ErrNoDriver) || errors.Is(err, launcher.ErrNotSupported) {
		if os.Getenv("REQUIRE_GPU") == "1" {
			t.Fatal(err)
		}
		t.Skipf("no GPU here: %v", err)
	}
	require.NoError(t, err)
	require.NoError(t, rt.Close())
	var out bytes.Buffer
	run(&out, launcher.Config{}) // as main does
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "backend cuda (CUDA driver and devices found): device 0 reads device")
	require.Equal(t, "ok", lines[1])
}

// TestPTXIsCurrent rebuilds the committed PTX, where the compiler that made it is installed.
func TestPTXIsCurrent(t *testing.T) {
	clang, err := exec.LookPath("clang-19")
	if err != nil {
		t.Skip("clang-19 is not installed; the committed PTX is used as it is")
	}
	if _, err := os.Stat("addpeer.cu"); err != nil {
		t.Skip("the source is not here: running outside the source tree")
	}
	fresh := filepath.Join(t.TempDir(), "addpeer.ptx")
	out, err := exec.Command(clang, "-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_70", "-nocudainc", "-nocudalib",
		"-Xclang", "-target-feature", "-Xclang", "+ptx70", "-O3", "-S", "addpeer.cu", "-o", fresh).CombinedOutput()
	require.NoError(t, err, "%s", out)
	want, err := os.ReadFile(fresh)
	require.NoError(t, err)
	require.Equal(t, string(want), string(ptx), "addpeer.ptx is stale: rebuild it with the command in addpeer.cu")
}
