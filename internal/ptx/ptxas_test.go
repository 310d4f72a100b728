package ptx

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ptxas is NVIDIA's assembler, from $PTXAS or the path.
func ptxas(t *testing.T) string {
	path := os.Getenv("PTXAS")
	if path == "" {
		path, _ = exec.LookPath("ptxas")
	}
	if path == "" {
		t.Skip("no ptxas: set PTXAS to check these tests' PTX against NVIDIA's assembler")
	}
	return path
}

// assemble runs ptxas on one source.
func assemble(t *testing.T, path, src string) (string, error) {
	file := filepath.Join(t.TempDir(), "k.ptx")
	require.NoError(t, os.WriteFile(file, []byte(src), 0o600))
	out, err := exec.Command(path, "-arch=sm_90", "-O0", "-o", os.DevNull, file).CombinedOutput()
	return string(out), err
}

// What the instruction tables hold is PTX to NVIDIA's assembler too.
func TestTablesAgainstPtxas(t *testing.T) {
	path := ptxas(t)
	var b strings.Builder
	for i, tt := range append(append([]instTest{}, instTests...), floatTests...) {
		src := strings.TrimPrefix(instKernel(tt.text, ""), header)
		b.WriteString(strings.Replace(src, "entry k(", fmt.Sprintf("entry k%d(", i), 1))
	}
	out, err := assemble(t, path, header+b.String())
	lines := strings.Split(header+b.String(), "\n")
	for _, msg := range strings.Split(out, "\n") {
		var n int
		if _, rest, ok := strings.Cut(msg, ", line "); ok {
			if _, err := fmt.Sscanf(rest, "%d", &n); err == nil {
				t.Logf("%s   <- %s", strings.TrimSpace(lines[n-1]), rest)
			}
		}
	}
	require.NoError(t, err)
}
