//go:build unix

package plainfile

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(in("file"), []byte("12345678"), 0o600))
	require.NoError(t, os.Symlink("file", in("link")))
	for _, name := range []string{"file", "link"} {
		text, err := Read(in(name), 8)
		require.NoError(t, err)
		require.Equal(t, "12345678", string(text))
	}
	_, err := Read(in("file"), 7)
	require.ErrorIs(t, err, ErrTooLong)
	require.EqualError(t, err, "read "+in("file")+": it is longer than 7 bytes, the most that is read: name another file")
	require.Equal(t, "8 MiB", size(8<<20))
	_, err = Read(in("none"), 8)
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, syscall.Mkfifo(in("pipe"), 0o600))
	require.NoError(t, os.Symlink("pipe", in("to-pipe")))
	require.NoError(t, os.Symlink("round", in("round")))
	t.Chdir(dir) // the path of a socket is short
	socket, err := net.Listen("unix", "socket")
	require.NoError(t, err)
	defer socket.Close()
	for path, says := range map[string]string{
		dir: "this is a folder: name a file in it", os.DevNull: "this is a device: name a plain file", "socket": "this is a socket: name a plain file",
		in("pipe"):    "this is a pipe: save what comes through it in a file, and name that",
		in("to-pipe"): "this is a pipe: save what comes through it in a file, and name that",
	} {
		_, err := Read(path, 8)
		require.ErrorIs(t, err, ErrNotPlain)
		require.EqualError(t, err, "read "+path+": "+says)
	}
	_, err = Read(in("round"), 8)
	require.ErrorIs(t, err, syscall.ELOOP)
}
