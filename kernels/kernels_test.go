package kernels

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// The committed PTX belongs to the committed sources; no compiler is needed to see that it does not.
func TestManifest(t *testing.T) {
	m, err := Load()
	require.NoError(t, err)
	require.NotEmpty(t, m.Modules)
	listed := map[string]bool{"manifest.json": true}
	built := map[string]int{}
	for _, mod := range m.Modules {
		t.Run(mod.File, func(t *testing.T) {
			listed[mod.File] = true
			built[mod.Source+".cu"]++
			hash, err := SourceHash(mod.Source+".cu", Source)
			require.NoError(t, err)
			require.Equal(t, hash, mod.SourceSHA256, "%s.cu or a header has changed since the PTX was built: run `make ptx`", mod.Source)
			text, err := mod.Text()
			require.NoError(t, err)
			sum := sha256.Sum256(text)
			require.Equal(t, hex.EncodeToString(sum[:]), mod.PTXSHA256, "the PTX was changed by hand: run `make ptx`")

			info, err := ptx.Signatures(mod.File, text)
			require.NoError(t, err)
			require.Equal(t, mod.SM, info.SM)
			require.Equal(t, mod.PTX, info.Version)
			_, known := gpu.DriverForPTX(mod.PTX)
			require.True(t, known)
			require.Len(t, mod.Entries, len(info.Entries))
			for i, sig := range info.Entries {
				e := mod.Entries[i]
				require.Equal(t, sig.Name, e.Name)
				require.Equal(t, sig.ParamBytes, e.Bytes)
				require.Len(t, e.Params, len(sig.Params))
				for k, p := range sig.Params {
					require.Equal(t, Param{Type: p.Type, Offset: p.Offset, Size: p.Size}, e.Params[k])
				}
			}
		})
	}
	ptxFiles, err := fs.Glob(files, "ptx/*")
	require.NoError(t, err)
	for _, f := range ptxFiles {
		require.True(t, listed[path.Base(f)], "%s is not in the manifest: delete it, or run `make ptx`", f)
	}
	sources, err := fs.Glob(files, "*.cu")
	require.NoError(t, err)
	for _, f := range sources {
		require.NotZero(t, built[f], "%s has no PTX: run `make ptx`", f)
	}
}

// Every kernel states its purpose and how it synchronises.
func TestHeaders(t *testing.T) {
	sources, err := fs.Glob(files, "*.cu")
	require.NoError(t, err)
	for _, f := range sources {
		text, err := Source(f)
		require.NoError(t, err)
		for _, part := range []string{"// Purpose:", "// Algorithm", "// Synchronisation", "// Requirements:"} {
			require.Contains(t, string(text), part, f)
		}
	}
}

// Every build of a source has the same entries, so that any of them can stand in for another.
func TestSameEntries(t *testing.T) {
	m, err := Load()
	require.NoError(t, err)
	first := map[string][]Entry{}
	for _, mod := range m.Modules {
		want, ok := first[mod.Source]
		if !ok {
			first[mod.Source] = mod.Entries
			continue
		}
		require.Equal(t, want, mod.Entries, mod.File)
	}
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		sm, driver int
		file, err  string
	}{
		{70, 11000, "oneshot_pull.sm_70.ptx", ""},
		{75, 13000, "oneshot_pull.sm_70.ptx", ""},
		{80, 11000, "oneshot_pull.sm_80.ptx", ""},
		{90, 11070, "oneshot_pull.sm_80.ptx", ""}, // PTX 7.8 needs CUDA 11.8
		{90, 11080, "oneshot_pull.sm_90.ptx", ""},
		{120, 13000, "oneshot_pull.sm_90.ptx", ""},
		{61, 13000, "", "kernel oneshot_pull: no build for sm_61 with a CUDA 13.0 driver: needs sm_70 or newer"},
		{90, 10020, "", "no build for sm_90 with a CUDA 10.2 driver: needs sm_70 or newer and a CUDA 11.0 driver or newer"},
	} {
		mod, err := Find("oneshot_pull", c.sm, c.driver)
		if c.err != "" {
			require.ErrorIs(t, err, ErrUnavailable)
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.file, mod.File)
	}
	_, err := Find("nonesuch", 90, 13000)
	require.ErrorContains(t, err, "there is no such kernel")
}

func TestSourceHashFollowsIncludes(t *testing.T) {
	tree := map[string]string{"a.cu": "#include \"b.cuh\"\nx", "b.cuh": "#include \"a.cu\"\ny"}
	read := func(name string) ([]byte, error) {
		text, ok := tree[name]
		if !ok {
			return nil, errors.New("no " + name)
		}
		return []byte(text), nil
	}
	before, err := SourceHash("a.cu", read)
	require.NoError(t, err)
	tree["b.cuh"] = strings.ToUpper(tree["b.cuh"])
	_, err = SourceHash("b.cuh", read)
	require.NoError(t, err)
	tree["b.cuh"] = "#include \"a.cu\"\nz"
	after, err := SourceHash("a.cu", read)
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	delete(tree, "b.cuh")
	_, err = SourceHash("a.cu", read)
	require.ErrorContains(t, err, "no b.cuh")
}
