package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
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

// A file that cannot be written is refused before anything is opened, and is left as it is.
func TestOutputFilesAreWritable(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name+".svg") }
	require.NoError(t, syscall.Mkfifo(in("pipe"), 0o600))
	require.NoError(t, syscall.Mknod(in("socket"), syscall.S_IFSOCK|0o600, 0))
	require.NoError(t, os.Mkdir(in("folder"), 0o700))
	require.NoError(t, os.WriteFile(in("file"), nil, 0o600))
	for link, to := range map[string]string{"to-pipe": "pipe.svg", "to-device": "/dev/full", "to-folder": "folder.svg", "round": "round.svg", "into-nowhere": "nowhere/x.svg"} {
		require.NoError(t, os.Symlink(to, in(link)))
	}
	printed, err := os.Create(in("printed"))
	require.NoError(t, err)
	defer printed.Close()
	require.NoError(t, os.Symlink(fmt.Sprintf("/proc/self/fd/%d", printed.Fd()), in("to-stdout")))
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	os.Stdout = printed
	before, err := os.ReadDir(dir)
	require.NoError(t, err)
	opened = func(*launcher.Runtime) { t.Error("a machine was opened") }
	defer func() { opened = nil }()
	const special, folder = "this is a device, pipe or socket: name a plain file\n", "this is a folder: name a file in it\n"
	for path, says := range map[string]string{
		in("pipe"): special, in("socket"): special, in("to-pipe"): special, in("to-device"): special, in("folder"): folder, in("to-folder"): folder,
		in("round"):            "its symbolic links lead in a circle: name a plain file\n",
		in("into-nowhere"):     "there is no folder " + filepath.Join(dir, "nowhere") + ": make its folder first\n",
		in("nowhere/x"):        "there is no folder " + filepath.Join(dir, "nowhere") + ": make its folder first\n",
		in("file.svg/x"):       "not a directory: name a file in a folder\n",
		in("printed"):          "what this program prints goes into it: name another file\n",
		in("to-stdout"):        "what this program prints goes into it: name another file\n",
		"/proc/self/fd/x.svg":  choice(os.Getuid() == 0, "no file can be made in its folder: name one in another folder\n", "a folder that may be written to\n"),
		in("long" + long(245)): "file name too long: give it a shorter name\n",
	} {
		for _, args := range []string{"tune --out", "bench --plot", "topo --svg", "topo --save"} {
			code, results, stderr := demo(t, append(strings.Fields(args), path)...)
			require.Equal(t, exitUsage, code, "%s %s: %s", args, path, stderr)
			require.Contains(t, stderr, args[5:])
			require.Contains(t, stderr, path)
			require.Contains(t, stderr, says, args)
			require.Empty(t, results)
		}
	}
	os.Stdout = stdout
	code, _, stderr := demo(t, "tune", "--out", "/dev/stdout") // whatever it is here
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "/dev/stdout")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	path := fmt.Sprintf("/proc/self/fd/%d", w.Fd())
	code, _, stderr = demo(t, "tune", "--out", path)
	require.Equal(t, exitUsage, code)
	require.Equal(t, "demo: --out: write "+path+": "+special, stderr)

	after, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, len(before), len(after), "%v", after)
}

func long(n int) string { return strings.Repeat("x", n) }
