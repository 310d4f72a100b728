//go:build cgo && linux && !nonvml

package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/topo"
)

// These tests go through go-nvml itself to real shared libraries, each in a process of its own: a call to a
// missing symbol would end the process, and a symbol once bound stays bound.

const childEnv = "FENCELINE_TEST_NVML_LIBRARY"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		os.Exit(child(path))
	}
	os.Exit(m.Run())
}

// child augments a machine of the fake library's two GPUs and one it does not have, twice, and prints the result.
func child(path string) int {
	for range 2 {
		m := &topo.Machine{Version: topo.FormatVersion, Pairs: make([][]topo.Pair, 3)}
		for i, c := range []string{"bbbbbbbb", "aaaaaaaa", "cccccccc"} {
			m.Devices = append(m.Devices, topo.Device{Ordinal: i, UUID: "GPU-" + c + "-0000-0000-0000-000000000000"})
			m.Pairs[i] = make([]topo.Pair, 3)
		}
		err := augmentFrom(path, m)
		fmt.Printf("%q %q %q notes=%d: %v\n", m.Pairs[0][1].ReadCode, m.Pairs[1][0].ReadCode, m.Pairs[1][0].WriteCode, len(m.Notes), err)
	}
	return 0
}

func runChild(t *testing.T, library string) string {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	// Under the race detector a process otherwise sleeps a second before it exits.
	cmd.Env = append(os.Environ(), childEnv+"="+library, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "the process must survive; it said: %s", out)
	return string(out)
}

func buildFake(t *testing.T, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to build the fake library with")
	}
	lib := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	out, err := exec.Command(cc, append(flags, "-shared", "-fPIC", "-o", lib, filepath.Join("testdata", "fake.c"))...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return lib
}

const noMatch = "nvmlDeviceGetHandleByUUID: device is not known to NVML (fake error, 6): device 2, GPU-cccccccc-0000-0000-0000-000000000000 ()\n"

func TestLibraryFull(t *testing.T) {
	line := `"OK" "GNS" "OK" notes=`
	out := runChild(t, buildFake(t, "-DFULL"))
	require.Contains(t, out, line)
	require.Contains(t, out, noMatch)
	require.NotContains(t, out, ErrUnavailable.Error())
}

func TestLibraryLacksOptionalSymbols(t *testing.T) {
	line := `"" "" "" notes=6: ` + noMatch
	require.Equal(t, line+line, runChild(t, buildFake(t)))
}

func TestLibraryLacksRequiredSymbols(t *testing.T) {
	out := runChild(t, buildFake(t, "-DEMPTY"))
	require.Contains(t, out, ErrUnavailable.Error())
	require.Contains(t, out, "the library lacks nvmlInit_v2")
}

func TestLibraryAbsent(t *testing.T) {
	out := runChild(t, filepath.Join(t.TempDir(), libraryName))
	require.Contains(t, out, ErrUnavailable.Error())
	require.Contains(t, out, "install the NVIDIA driver")
}

func TestLibraryIsNoLibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), libraryName)
	require.NoError(t, os.WriteFile(path, []byte("not ELF"), 0o600))
	require.Contains(t, runChild(t, path), ErrUnavailable.Error())
}

// TestSystemLibrary is Augment on whatever this machine has.
func TestSystemLibrary(t *testing.T) {
	unknown := &topo.Machine{
		Version: topo.FormatVersion,
		Devices: []topo.Device{{UUID: "GPU-00000000-0000-0000-0000-000000000000"}},
		Pairs:   [][]topo.Pair{{{}}},
	}
	err := Augment(unknown)
	if check(libraryName) != nil {
		require.ErrorIs(t, err, ErrUnavailable)
		return
	}
	require.Error(t, err, "no GPU has this UUID")
}
