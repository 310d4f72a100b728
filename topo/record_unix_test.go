//go:build unix

package topo

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Links are followed and stay, modes are kept, and what is no plain file is left alone.
func TestSaveTargets(t *testing.T) {
	b := NewBaseline(Key{}, machine2(Pair{}, Pair{}), nil)
	for name, save := range map[string]func(string) error{
		"baseline": b.Save, "drawing": func(path string) error { return b.Machine.SaveSVG(path, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			in := func(name string) string { return filepath.Join(dir, name) }
			require.NoError(t, os.Mkdir(in("other"), 0o755))
			require.NoError(t, os.WriteFile(in("other/file"), []byte("old"), 0o600))
			require.NoError(t, os.Symlink("other/file", in("link")))
			require.NoError(t, os.Symlink("link", in("link2")))
			require.NoError(t, save(in("link2")))
			st, err := os.Lstat(in("other/file"))
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o600), st.Mode(), "the mode that it had")
			text, err := os.ReadFile(in("other/file"))
			require.NoError(t, err)
			require.NotEqual(t, "old", string(text))
			for _, link := range []string{"link", "link2"} {
				st, err := os.Lstat(in(link))
				require.NoError(t, err)
				require.NotZero(t, st.Mode()&fs.ModeSymlink)
			}
			require.NoError(t, os.Symlink("other/new", in("ahead"))) // of a file that is not there yet
			require.NoError(t, save(in("ahead")))
			st, err = os.Lstat(in("other/new"))
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o644), st.Mode())

			require.NoError(t, CheckTarget(in("other/newer")))
			require.NoFileExists(t, in("other/newer"))

			require.NoError(t, syscall.Mkfifo(in("pipe"), 0o600))
			require.NoError(t, os.Symlink("pipe", in("to-pipe")))
			require.NoError(t, os.Symlink("round", in("round")))
			for path, says := range map[string]string{"pipe": errSpecial.Error(), "to-pipe": errSpecial.Error(), "round": errLoop.Error(), "other": errFolder.Error()} {
				require.EqualError(t, save(in(path)), "save "+name+": write "+in(path)+": "+says)
				require.EqualError(t, CheckTarget(in(path)), "write "+in(path)+": "+says)
			}
			st, err = os.Lstat(in("pipe"))
			require.NoError(t, err)
			require.NotZero(t, st.Mode()&fs.ModeNamedPipe)
			for _, d := range []string{dir, in("other")} {
				files, err := filepath.Glob(filepath.Join(d, ".*"))
				require.NoError(t, err)
				require.Empty(t, files)
			}
		})
	}
}
