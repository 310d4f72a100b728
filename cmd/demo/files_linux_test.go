package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is no plain file is not opened, whichever flag names it: a pipe would wait for ever, and /dev/zero never ends.
func TestInputFilesArePlain(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Symlink(pipe, link))
	ptx, spec := checkExamples+"correct.ptx", checkExamples+"correct.spec"
	for _, args := range []string{
		"bench --beside", "bench --table", "run --table", "stress --litmus-files", "check --litmus", "check --spec " + spec + " --ptx", "check --ptx " + ptx + " --spec",
		"topo --from", "topo --check", "run --machine file:", "devices --machine file:", "stress --machine file:",
	} {
		for path, says := range map[string]string{
			pipe: "this is a pipe: save what comes through it in a file, and name that\n", link: "this is a pipe: ", "/dev/zero": "this is a device: name a plain file\n",
		} {
			line := strings.Fields(args + " " + path)
			if strings.HasSuffix(args, ":") {
				line = strings.Fields(args + path)
			}
			code, stdout, stderr := demo(t, line...)
			require.Equal(t, exitUsage, code, "%s: %s", line, stderr)
			require.Contains(t, stderr, "read "+path+": "+says, line)
			require.Empty(t, stdout)
		}
	}
}

// A file without an end is read up to a limit.
func TestInputFilesEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "long")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, mostText+1))
	for _, args := range []string{"bench --beside", "stress --litmus-files", "check --litmus"} {
		code, _, stderr := demo(t, append(strings.Fields(args), path)...)
		require.Equal(t, exitUsage, code, stderr)
		require.Contains(t, stderr, "it is longer than 64 MiB, the most that is read: name another file\n")
	}
}
