package kernels

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "note the sources that testdata was just built from")

var comment = regexp.MustCompile(`(?m)\s*//.*$`)

// codeHash is SourceHash without comments, which no compiler sees.
func codeHash(t *testing.T, source string) string {
	hash, err := SourceHash(source+".cu", func(name string) ([]byte, error) {
		text, err := Source(name)
		return comment.ReplaceAll(text, nil), err
	})
	require.NoError(t, err)
	return hash
}

// nvcc's PTX that the interpreter's tests run is that of the present kernels.
func TestNVCCData(t *testing.T) {
	const noted = "../internal/ptx/testdata/nvcc/sources.txt"
	var want strings.Builder
	for _, source := range []string{"oneshot_pull", "reduce_local"} {
		fmt.Fprintln(&want, source, codeHash(t, source))
	}
	if *update {
		require.NoError(t, os.WriteFile(noted, []byte(want.String()), 0o644))
	}
	got, err := os.ReadFile(noted)
	require.NoError(t, err)
	require.Equal(t, want.String(), string(got), "the kernels have changed since nvcc built internal/ptx/testdata/nvcc: run scripts/nvcc-ptx.sh")
}
