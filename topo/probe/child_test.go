//go:build unix

package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/cuda"
	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/topo"
)

// The test binary is its own child: these variables make it one.
const (
	envMachine = "PROBE_TEST_MACHINE" // an emulated machine, or "cuda"
	envMode    = "PROBE_TEST_MODE"    // what goes wrong after the first write check, once
	envMark    = "PROBE_TEST_MARK"    // a file that is there once it has
)

func TestMain(m *testing.M) {
	if machine := os.Getenv(envMachine); machine != "" {
		os.Exit(beChild(machine, os.Getenv(envMode)))
	}
	os.Exit(m.Run())
}

func beChild(machine, mode string) int {
	fmt.Println("a library says hello") // is not the parent's business
	var d gpu.Driver
	var err error
	if machine == "cuda" {
		d, err = cuda.Open()
	} else {
		d, err = emu.Open(emu.Config{Machine: machine, Devices: 2})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	v := &villain{Driver: d, out: os.Stdout, mode: mode}
	if err := Serve(context.Background(), v, os.Stdin, v); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0 // without a word to the driver, as programs should
}

// villain is a driver and an output that do something bad right after the first write check has been reported.
type villain struct {
	gpu.Driver
	out  io.Writer
	mode string
	bad  bool // the next launch gets a bad address
}

func (v *villain) Write(p []byte) (int, error) {
	if v.mode == "other" {
		p = bytes.ReplaceAll(p, []byte(`"step":"write"`), []byte(`"step":"read"`))
	}
	n, err := v.out.Write(p)
	if !bytes.Contains(p, []byte(`"step":"write"`)) || v.mode == "" {
		return n, err
	}
	if _, err := os.Stat(os.Getenv(envMark)); err == nil {
		return n, nil
	}
	if err := os.WriteFile(os.Getenv(envMark), nil, 0o600); err != nil {
		panic(err)
	}
	switch v.mode {
	case "hang":
		fmt.Fprintln(os.Stderr, "last words")
		time.Sleep(time.Minute)
	case "exit":
		fmt.Fprintln(os.Stderr, "out of\nluck")
		os.Exit(3)
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "fault":
		v.bad = true
	}
	return n, nil
}

func (v *villain) Launch(dev int, s gpu.Stream, f gpu.Function, cfg *gpu.LaunchConfig, args []byte) error {
	if v.bad {
		binary.LittleEndian.PutUint64(args[8:], 0x10) // dst
	}
	return v.Driver.Launch(dev, s, f, cfg, args)
}

// itself makes this binary the child, on a machine.
func itself(t *testing.T, machine, mode string) []string {
	exe, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(envMachine, machine)
	t.Setenv(envMode, mode)
	t.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // the race detector's second at each exit
	t.Setenv(envMark, filepath.Join(t.TempDir(), "mark"))
	return []string{exe}
}

// claims is the machine that a child will have.
func claims(t *testing.T, machine string) *topo.Machine {
	d, err := emu.Open(emu.Config{Machine: machine, Devices: 2})
	require.NoError(t, err)
	m, err := topo.FromDriver(d)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	return m
}

// TestChildSame: children find what a run in this process does.
func TestChildSame(t *testing.T) {
	for _, machine := range emu.Machines() {
		t.Run(machine, func(t *testing.T) {
			o := Options{Timeout: 300 * time.Millisecond, Bytes: 4096, Seed: 99}
			m := claims(t, machine)
			want, err := Run(context.Background(), open(t, emu.Config{Machine: machine, Devices: 2}), m, o)
			require.NoError(t, err)
			results := 0
			o.Report = func(Result) { results++ }
			got, err := RunChild(context.Background(), itself(t, machine, ""), m, o)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, 8, results)
		})
	}
}

func TestChildNumbers(t *testing.T) {
	got, err := RunChild(context.Background(), itself(t, "nvlink", ""), claims(t, "nvlink"), Options{Virtual: true, Numbers: true, EmulatedNumbers: true})
	require.NoError(t, err)
	for i := range 2 {
		for j := range 2 {
			requireNumbers(t, got.Pairs[i][j])
		}
	}
}

// TestChildFails: whatever becomes of a child costs it the probe that it was at, and no other. A death is no answer.
func TestChildFails(t *testing.T) {
	for mode, want := range map[string]struct{ says, answers, atomics string }{
		"hang":  {"was killed: last words", "nyy-", "not probed: reads do not work"},
		"exit":  {"not settled: child process died: exit status 3: out of luck", "-yy-", "not probed: it is not known whether reads work"},
		"kill":  {"not settled: child process died: signal: killed", "-yy-", "not probed: it is not known whether reads work"},
		"fault": {"illegal address", "nyy-", "not probed: reads do not work"},
	} {
		t.Run(mode, func(t *testing.T) {
			lost := 0
			start := time.Now()
			got, err := RunChild(context.Background(), itself(t, "nvlink", mode), claims(t, "nvlink"),
				Options{Timeout: 200 * time.Millisecond, Report: func(r Result) {
					if r.Lost {
						lost++
					}
				}})
			require.NoError(t, err)
			require.Less(t, time.Since(start), 30*time.Second)
			require.Equal(t, []string{want.answers, "yyyy"}, []string{answers(got.Pairs[0][1]), answers(got.Pairs[1][0])})
			require.Contains(t, got.Pairs[0][1].Read.Detail, want.says)
			require.Equal(t, want.atomics, got.Pairs[0][1].Atomics.Detail)
			require.Equal(t, 1, lost)
		})
	}
}

// TestChildUseless: children that never probe are an error, and soon.
func TestChildUseless(t *testing.T) {
	m := claims(t, "nvlink")
	for name, c := range map[string]struct {
		command []string
		says    string
	}{
		"none":       {nil, "no command"},
		"absent":     {[]string{"/nonexistent/demo"}, "no such file"},
		"complains":  {[]string{"sh", "-c", "echo no GPU here >&2; exit 3"}, "died: exit status 3: no GPU here before it was ready"},
		"silent":     {[]string{"true"}, "died: exit status 0 before it was ready"},
		"hangs":      {[]string{"sleep", "60"}, "timed out after 300ms and was killed before it was ready"},
		"grandchild": {[]string{"sh", "-c", "sleep 60 & exit 0"}, "timed out after 300ms and was killed"},
		"chatters":   {[]string{"sh", "-c", "while :; do echo x; done"}, "timed out after 300ms and was killed"},
		"long line":  {[]string{"sh", "-c", "head -c 3000000 /dev/zero; exit 4"}, "exit status 4"},
		"says why":   {[]string{"echo", `{"fenceline_probe":"failed","error":"the moon"}`}, "the moon"},
		"half":       {[]string{"echo", `{"fenceline_probe":"res`}, "died: exit status 0"},
		"no result":  {[]string{"echo", `{"fenceline_probe":"result"}`}, "died: exit status 0"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			got, err := RunChild(context.Background(), c.command, m, Options{Start: 300 * time.Millisecond})
			require.ErrorContains(t, err, c.says)
			require.Less(t, time.Since(start), 5*time.Second)
			if c.command != nil {
				require.ErrorIs(t, err, ErrChild)
				require.ErrorContains(t, err, "probe 0→1, write: ")
				require.Equal(t, "----", answers(got.Pairs[0][1]))
			}
		})
	}
	_, err := RunChild(context.Background(), itself(t, "nvlink", "other"), m, Options{})
	require.ErrorIs(t, err, ErrChild)
	require.ErrorContains(t, err, "reported 0→1 read where 0→1 write was due: is it another version?")

	_, err = RunChild(context.Background(), itself(t, "pcie", ""), m, Options{})
	require.ErrorIs(t, err, ErrChild)
	require.ErrorContains(t, err, "is not among those of the driver: check CUDA_VISIBLE_DEVICES", "a child on another machine")

	_, err = RunChild(context.Background(), []string{"true"}, m, Options{Bytes: 1})
	require.ErrorIs(t, err, ErrOptions)
}

// TestChildStopped: a cancelled context takes the child with it.
func TestChildStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	file := filepath.Join(t.TempDir(), "pid")
	time.AfterFunc(300*time.Millisecond, cancel)
	start := time.Now()
	_, err := RunChild(ctx, []string{"sh", "-c", "echo $$ >" + file + "; sleep 60"}, claims(t, "nvlink"), Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(start), 10*time.Second)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscan(string(text), &pid)
	require.NoError(t, err)
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}

// TestServeParentGone: a child whose parent died does not stay.
func TestServeParentGone(t *testing.T) {
	d := open(t, emu.Config{Machine: "write-only", Devices: 2})
	m, err := topo.FromDriver(d)
	require.NoError(t, err)
	o, err := Options{Timeout: time.Minute}.validate(m)
	require.NoError(t, err)
	in, parent := io.Pipe()
	go func() {
		_ = writeRequest(parent, m, o, []item{{Pair{0, 1}, "read"}})
		time.Sleep(200 * time.Millisecond) // the read hangs by now
		_ = parent.Close()
	}()
	var out bytes.Buffer
	start := time.Now()
	require.ErrorIs(t, Serve(context.Background(), d, in, &out), errParentGone)
	require.Less(t, time.Since(start), 10*time.Second)
	require.Contains(t, out.String(), `"ready"`)
}

func writeRequest(w io.Writer, m *topo.Machine, o Options, list []item) error {
	b, err := marshalRequest(m, empty(m, &o).Pairs, list, &o)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// TestServeRefuses: requests that make no sense are refused, and the parent is told.
func TestServeRefuses(t *testing.T) {
	d := open(t, emu.Config{Devices: 2})
	m, err := topo.FromDriver(d)
	require.NoError(t, err)
	o, err := Options{}.validate(m)
	require.NoError(t, err)
	good := empty(m, &o).Pairs
	text := func(m *topo.Machine, pairs [][]topo.Measured, o Options, list ...item) string {
		b, err := marshalRequest(m, pairs, list, &o)
		require.NoError(t, err)
		return string(b)
	}
	short := *m
	short.Pairs = short.Pairs[:1]
	for name, c := range map[string]struct{ in, says string }{
		"nothing":      {"", "EOF"},
		"foreign":      {"hello", "invalid character"},
		"cut off":      {text(m, good, o)[:50], "unexpected EOF"},
		"no machine":   {"{}", "no machine"},
		"short matrix": {text(&short, good, o), "matrices of 1 and 2 rows for 2 devices"},
		"short row":    {text(m, [][]topo.Measured{good[0], good[1][:1]}, o), "row 1"},
		"no such step": {text(m, good, o, item{Pair{0, 1}, "dance"}), `no probe "dance"`},
		"no such pair": {text(m, good, o, item{Pair{0, 7}, "read"}), "pair 0→7"},
		"bad options":  {text(m, good, Options{Bytes: 3}), "Bytes is 3"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := Serve(context.Background(), d, strings.NewReader(c.in), &out)
			require.ErrorContains(t, err, c.says)
			require.Contains(t, out.String(), `{"fenceline_probe":"failed"`)
		})
	}
}
