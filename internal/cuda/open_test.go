//go:build linux && cgo

package cuda

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

func TestOpenFailures(t *testing.T) {
	dir := t.TempDir()
	notELF := filepath.Join(dir, "libcuda.so.1")
	require.NoError(t, os.WriteFile(notELF, []byte("not a library"), 0o600))
	absentLib := filepath.Join(dir, "none", "libcuda.so.1")
	for _, tt := range []struct {
		name  string
		path  string
		flags []string
		kind  error
		code  int
		says  []string
	}{
		{name: "no library", path: absentLib, kind: gpu.ErrNoDriver, says: []string{absentLib, "No such file"}},
		{name: "no library on the search path", path: "libno-such-cuda.so.1", kind: gpu.ErrNoDriver, says: []string{"libno-such-cuda.so.1"}},
		{name: "not a library", path: notELF, kind: gpu.ErrUnknown, says: []string{notELF, "does not load"}},
		{name: "empty path", path: "\x00", kind: gpu.ErrInvalidValue},
		{name: "no device", flags: []string{"-DFAKE_INIT=100"}, kind: gpu.ErrNoDriver, code: 100, says: []string{"CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES"}},
		{name: "zero devices", flags: []string{"-DFAKE_COUNT=0"}, kind: gpu.ErrNoDriver, says: []string{"zero devices"}},
		{name: "mismatch", flags: []string{"-DFAKE_INIT=803"}, kind: gpu.ErrUnknown, code: 803, says: []string{"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot"}},
		{name: "not ready", flags: []string{"-DFAKE_INIT=802"}, kind: gpu.ErrUnknown, code: 802, says: []string{"fabricmanager"}},
		{name: "stub", flags: []string{"-DFAKE_INIT=34"}, kind: gpu.ErrUnknown, code: 34, says: []string{"LD_LIBRARY_PATH"}},
		{name: "unknown", flags: []string{"-DFAKE_INIT=999"}, kind: gpu.ErrUnknown, code: 999, says: []string{"CUDA_ERROR_UNKNOWN"}},
		{name: "code of a newer driver", flags: []string{"-DFAKE_INIT=918"}, kind: gpu.ErrUnknown, code: 918, says: []string{"CUDA_ERROR_FAKE"}},
		{name: "code without a name", flags: []string{"-DFAKE_INIT=4711"}, kind: gpu.ErrUnknown, code: 4711, says: []string{"4711"}},
		{name: "old", flags: []string{"-DFAKE_VERSION=10020"}, kind: gpu.ErrDriverTooOld, says: []string{"CUDA 10.2", "CUDA 11.4"}},
		{name: "old and incomplete is old", flags: []string{"-DFAKE_VERSION=10020", "-DcuMemAlloc_v2=hidden"}, kind: gpu.ErrDriverTooOld},
		{name: "no version", flags: []string{"-DcuDriverGetVersion=hidden"}, kind: gpu.ErrMissingSymbol, says: []string{"cuDriverGetVersion"}},
		{name: "missing symbol", flags: []string{"-DcuMemAlloc_v2=hidden"}, kind: gpu.ErrMissingSymbol, says: []string{"lacks cuMemAlloc_v2:", "reinstall or update"}},
		{name: "missing symbols", flags: []string{"-DcuInit=hidden1", "-DcuLaunchKernel=hidden2"}, kind: gpu.ErrMissingSymbol, says: []string{"cuInit, cuLaunchKernel"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := tt.path
			if path == "" {
				path = buildFake(t, tt.flags...)
			}
			d, err := OpenLibrary(path)
			require.Nil(t, d)
			require.ErrorIs(t, err, tt.kind)
			var e *gpu.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, tt.code, e.Code)
			require.Equal(t, -1, e.Device)
			for _, s := range tt.says {
				require.ErrorContains(t, err, s)
			}
			for _, other := range []error{gpu.ErrNoDriver, gpu.ErrNotSupported} { // what auto falls back on
				if tt.kind != other {
					require.NotErrorIs(t, err, other)
				}
			}
		})
	}
}

func TestAbsent(t *testing.T) {
	const p = "libcuda.so.1"
	for why, want := range map[string]bool{
		"libcuda.so.1: cannot open shared object file: No such file or directory":                  true,
		"Error loading shared library libcuda.so.1: No such file or directory":                     true,
		"libnvidia-gpucomp.so: cannot open shared object file: No such file or directory":          false,
		"Error loading shared library libx.so: No such file or directory (needed by libcuda.so.1)": false,
		"libcuda.so.1: cannot open shared object file: Permission denied":                          false,
		"libcuda.so.1: file too short":                                              false,
		"libcuda.so.1: wrong ELF class: ELFCLASS32":                                 false,
		"/lib/x/libcuda.so.1: undefined symbol: foo":                                false,
		"libcuda.so.1.x: cannot open shared object file: No such file or directory": false,
	} {
		require.Equal(t, want, absent(p, why), why)
	}
}

func TestMissingOptional(t *testing.T) {
	t.Run("peer access", func(t *testing.T) {
		d := openFake(t, "-DcuCtxEnablePeerAccess=hidden")
		err := d.EnablePeerAccess(0, 1)
		require.ErrorIs(t, err, gpu.ErrNotSupported)
		require.ErrorContains(t, err, "lacks cuCtxEnablePeerAccess")
	})
	t.Run("graphs", func(t *testing.T) {
		d := openFake(t, "-DcuGraphDestroy=hidden", "-DcuFuncSetAttribute=hidden2", "-DcuFuncGetParamInfo=hidden3", "-DcuFuncLoad=hidden4")
		r := newRig(t, d, 0)
		err := d.BeginCapture(0, r.s)
		r.ErrorIs(err, gpu.ErrNotSupported)
		r.ErrorContains(err, "lacks cuGraphDestroy")
		cfg := one
		cfg.Shared = 100_000
		err = d.Launch(0, r.s, r.fn["bare"], &cfg, nil)
		r.ErrorIs(err, gpu.ErrNotSupported)
		r.ErrorContains(err, "lacks cuFuncSetAttribute")
		r.NoError(r.launch("noop", make([]byte, 24))) // without parameter sizes the driver is left to check
	})
	t.Run("programmatic launch runs in order", func(t *testing.T) {
		d := openFake(t, "-DcuLaunchKernelEx=hidden")
		r := newRig(t, d, 0)
		cfg := one
		cfg.Dependent = true
		r.NoError(d.Launch(0, r.s, r.fn["bare"], &cfg, nil))
	})
}

func TestDevices(t *testing.T) {
	d := openFake(t)
	require.Equal(t, 2, d.DeviceCount())
	info := d.Info()
	require.Equal(t, "cuda", info.Name)
	require.False(t, info.Emulated)
	require.Equal(t, 12080, info.Version)
	require.Contains(t, info.Detail, filepath.Base(d.path))
	require.Contains(t, info.Detail, "CUDA 12.8")
	v, err := d.DeviceInfo(1)
	require.NoError(t, err)
	require.Equal(t, gpu.DeviceInfo{Ordinal: 1, Name: "Fake GPU 1", PCI: "0000:18:00.0", Major: 9, SMs: 132, MaxThreadsPerSM: 2048,
		MaxThreadsPerBlock: 1024, SharedPerBlock: 232448, TotalMem: 1 << 30, CanMapHost: true,
		UUID: [16]byte{16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}}, v)
	p, err := d.P2P(0, 1)
	require.NoError(t, err)
	require.Equal(t, gpu.P2PInfo{Access: true, NativeAtomics: true, PerfRank: 3}, p)
}

// TestModuleLoading sees that kernels are loaded eagerly unless the user says otherwise: the fake's cuInit
// refuses without it.
func TestModuleLoading(t *testing.T) {
	lib := buildFake(t)
	t.Setenv("CUDA_MODULE_LOADING", "LAZY")
	_, err := OpenLibrary(lib)
	require.ErrorIs(t, err, gpu.ErrUnknown, "the user's choice was overwritten")
	os.Unsetenv("CUDA_MODULE_LOADING")
	d, err := OpenLibrary(lib)
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

func TestSignalHandlers(t *testing.T) {
	require.Zero(t, handlersWithoutAltStack())
	d := openFake(t, "-DFAKE_SIGNAL")
	require.Zero(t, handlersWithoutAltStack(), "cuInit's handler still runs on the thread's own stack")
	require.Contains(t, d.Info().Detail, "1 signal handler")
}

// TestForeignContext has every thread start with a context of somebody else, as a C caller's thread does.
func TestForeignContext(t *testing.T) {
	d := openFake(t, "-DFAKE_FOREIGN")
	r := newRig(t, d, 0)
	before := r.stats()
	for range 10 {
		r.NoError(r.launch("bare", nil))
	}
	after := r.stats()
	set, back := after[statSet]-before[statSet], after[statSetForeign]-before[statSetForeign]
	r.GreaterOrEqual(set, uint64(10))
	r.Equal(set, back, "each of %d borrowed threads must get its context back", set)
}
