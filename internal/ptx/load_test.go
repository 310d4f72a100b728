package ptx

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// ptxFiles are the shipped kernels and what nvcc makes of them.
func ptxFiles(t testing.TB) []string {
	var files []string
	for _, dir := range []string{"../../kernels/ptx", "testdata/nvcc"} {
		list, err := filepath.Glob(filepath.Join(dir, "*.ptx"))
		require.NoError(t, err)
		require.NotEmpty(t, list, dir)
		files = append(files, list...)
	}
	return files
}

func TestParseShippedKernels(t *testing.T) {
	for _, name := range ptxFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			src, err := os.ReadFile(name)
			require.NoError(t, err)
			m, err := Parse(name, src)
			require.NoError(t, err)
			info, err := Signatures(name, src)
			require.NoError(t, err)
			require.Equal(t, m.Info, *info)
			for _, e := range m.Info.Entries {
				k, ok := m.Kernel(e.Name)
				require.True(t, ok, e.Name)
				t.Logf("%s: %d operations, %d registers, %d constants", e.Name, len(k.ops), k.Registers, len(k.consts[k32])+len(k.consts[k64]))
			}
		})
	}
}

// Signature.Waits: in the body, or in a function that it calls, over others too; comments and other operations do not count, and
// neither does a function that only others call.
func TestWaits(t *testing.T) {
	src := ".version 7.8\n.target sm_90\n.address_size 64\n" +
		".func (.reg .b32 x) h();\n.func f() { griddepcontrol.wait; ret; }\n.func g(.reg .b32 f) { ret; }\n.func (.reg .b32 x) h() { call f; ret; }\n" +
		".entry waits() { { griddepcontrol.wait; } ret; }\n" +
		".entry never() { griddepcontrol.launch_dependents; /* griddepcontrol.wait; */ ret; } // griddepcontrol.wait;\n" +
		".entry calls() { call f; ret; }\n.entry after() { ret; }\n" +
		".entry other() { .reg .b32 f; mov.b32 f, 0; call g, (f); ret; }\n.entry deep() { .reg .b32 x; call (x), h; ret; }\n"
	m, err := Parse("k.ptx", []byte(src))
	require.NoError(t, err)
	info, err := Signatures("k.ptx", []byte(src))
	require.NoError(t, err)
	require.Equal(t, m.Info, *info)
	got := map[string]bool{}
	for _, e := range info.Entries {
		got[e.Name] = e.Waits
	}
	require.Equal(t, map[string]bool{"waits": true, "never": false, "calls": true, "after": false, "other": false, "deep": true}, got)
}
