//go:build linux

package doctor

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pipe in a copied tree is no reason to hang.
func TestPipeIsNotRead(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc"), 0o755))
	require.NoError(t, syscall.Mkfifo(filepath.Join(root, "proc/cmdline"), 0o644))
	tr := openTree(root)
	defer tr.close()
	_, err := tr.text("proc/cmdline")
	require.ErrorContains(t, err, "not a plain file")
}
