package doctor

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/kernels"
	"github.com/fenceline/fenceline/topo"
)

var update = flag.Bool("update", false, "rewrite the golden reports")

func TestHosts(t *testing.T) {
	for _, c := range hosts {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Sysroot: layOut(t, c.host+".host")}
			if c.set != nil {
				c.set(&o)
			}
			r := Run(t.Context(), o)
			require.Len(t, r.Findings, len(checks))
			var out bytes.Buffer
			require.NoError(t, r.Write(&out))
			require.NotContains(t, out.String(), o.Sysroot, "a report must not name the folder that it was made from")
			got := anyKernel(out.String())
			golden := filepath.Join("testdata", c.name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
			require.Equal(t, c.first, r.First, "what to mend first")
			require.Equal(t, c.status, r.Status)
			for _, f := range r.Findings {
				require.NotEmpty(t, f.Result, f.ID)
				if f.Status >= Warn {
					require.NotEmpty(t, f.Remedy, f.ID)
				}
			}
		})
	}
}

var (
	kernelTotal = regexp.MustCompile(`(- kernels): .*`)
	kernelLine  = regexp.MustCompile(`(?m)^ +- device \d+: kernel .*\n`)
)

// anyKernel takes out of a report what changes whenever a kernel is added; TestPTX looks at that.
func anyKernel(report string) string {
	return kernelLine.ReplaceAllString(kernelTotal.ReplaceAllString(report, "$1: …"), "")
}

func TestPTX(t *testing.T) {
	m, err := kernels.Load()
	require.NoError(t, err)
	sources := map[string]bool{}
	for _, mod := range m.Modules {
		sources[mod.Source] = true
	}
	run := func(version, major, minor int) Finding {
		d := driverOf(version, 1).(fakeDriver)
		d.devices[0].Major, d.devices[0].Minor = major, minor
		return *Run(t.Context(), Options{Sysroot: t.TempDir(), Driver: d}).Finding("ptx")
	}
	f := run(13000, 9, 0)
	require.Equal(t, OK, f.Status)
	require.Equal(t, "a CUDA 13.0 driver reads PTX 9.0 and all kernels load", f.Result)
	require.Contains(t, f.Evidence[0].Said, plural(len(sources), "source")+": need a driver for CUDA 11.0")

	f = run(12030, 9, 0)
	require.Equal(t, OK, f.Status)
	require.Equal(t, "a CUDA 12.3 driver reads PTX 8.3 and all kernels load but oneshot_wide and twoshot_wide, which a driver for CUDA 12.4 would add", f.Result)

	f = run(11040, 9, 0)
	require.Equal(t, Warn, f.Status)
	require.Contains(t, f.Evidence, Evidence{"device 0", "oneshot_pull.sm_80.ptx is used; oneshot_pull.sm_90.ptx needs a driver for CUDA 11.8"})
	require.Contains(t, f.Remedy, "update the driver to one for CUDA 11.8")

	f = run(10020, 7, 0)
	require.Equal(t, Fail, f.Status)
	require.Equal(t, []string{"update the driver"}, f.Remedy)
	require.Contains(t, f.Evidence[1].Said, "a CUDA 11.0 driver or newer")

	f = run(13000, 6, 1)
	require.Equal(t, Fail, f.Status)
	require.Equal(t, []string{"leave this device out with CUDA_VISIBLE_DEVICES: it is too old"}, f.Remedy)
}

// The emulator is a driver like any other: what it claims is judged, what it lacks is skipped.
func TestEmulator(t *testing.T) {
	root := layOut(t, "laptop.host")
	for machine, want := range map[string]struct {
		status Status
		result string
	}{
		"nvlink":  {Unknown, "12 pairs: claimed, not probed"},
		"one-way": {Warn, "6 pairs: reached in the other direction only; 6 pairs: claimed, not probed"},
		"no-p2p":  {Warn, "12 pairs: no peer access"},
		"mig":     {Warn, "12 pairs: MIG instances, which have no peer access"},
	} {
		d, err := emu.Open(emu.Config{Machine: machine, Devices: 4})
		require.NoError(t, err)
		m, err := topo.FromDriver(d)
		require.NoError(t, err)
		r := Run(t.Context(), Options{Sysroot: root, Driver: d, Machine: m})
		require.Equal(t, want.status, r.Finding("p2p").Status, machine)
		require.Equal(t, want.result, r.Finding("p2p").Result, machine)
		if machine == "mig" {
			require.Equal(t, []string{whole}, r.Finding("p2p").Remedy)
		}
		require.Equal(t, want.status, r.Status, machine)
		require.Equal(t, Skipped, r.Finding("driver").Status)
		require.Contains(t, r.Finding("driver").Result, "no GPU executes anything")
		require.Equal(t, Skipped, r.Finding("iommu").Status)
		require.Equal(t, OK, r.Finding("ptx").Status)
		require.Zero(t, d.Live())
		require.NoError(t, d.Close())
	}
}

func TestJudgePair(t *testing.T) {
	yes, bad := topo.Check{Answer: topo.Yes}, no("timed out", 0, 0, 0)
	var unasked topo.Check
	denied := topo.Pair{Access: topo.No}
	for _, c := range []struct {
		claim, back        topo.Pair
		read, write, flags topo.Check
		kind               string
	}{
		{claimed, claimed, yes, yes, yes, kindGood},
		{claimed, claimed, yes, yes, unasked, kindUnasked},
		{claimed, claimed, bad, bad, bad, kindLies},
		{claimed, claimed, bad, unasked, unasked, kindLies},
		{claimed, claimed, bad, yes, bad, kindLies},
		{claimed, claimed, bad, yes, yes, kindNoReads},
		{claimed, claimed, yes, bad, yes, kindNoWrites},
		{claimed, claimed, yes, yes, bad, kindFlags},
		{claimed, claimed, unasked, unasked, unasked, kindUnasked},
		{topo.Pair{Access: topo.Yes, Read: topo.No, ReadCode: topo.CodeCNS}, claimed, unasked, yes, yes, kindWrites},
		{denied, claimed, unasked, unasked, unasked, kindOneWay},
		{denied, denied, unasked, unasked, unasked, kindNone},
		{topo.Pair{}, topo.Pair{}, unasked, unasked, unasked, kindUnknown},
		{topo.Pair{}, topo.Pair{}, yes, yes, yes, kindGood},
	} {
		kind, example, remedy := judgePair(c.claim, c.back, topo.Measured{Read: c.read, Write: c.write, Flags: c.flags})
		require.Equal(t, c.kind, kind)
		require.NotEmpty(t, example)
		require.Equal(t, kind == kindGood, remedy == "")
	}
}

// A machine or measurement of the wrong shape is left out, not indexed.
func TestRaggedInput(t *testing.T) {
	for _, m := range []*topo.Measurement{{}, {Pairs: [][]topo.Measured{{}, {}}}, {Pairs: [][]topo.Measured{{{}}}}} {
		o := Options{Sysroot: t.TempDir(), Machine: machineOf(claimed), Measurement: m}
		require.Equal(t, "not counted", Run(t.Context(), o).Finding("p2p").Evidence[0].Said[:11])
		o.Machine.Pairs = append(o.Machine.Pairs, []topo.Pair{{}, {}, {}, {}})
		Run(t.Context(), o)
	}
}

// Every golden report belongs to a host, and every canned host is used.
func TestNoStrayFiles(t *testing.T) {
	used := map[string]bool{"common.host": true}
	for _, c := range hosts {
		used[c.name+".golden"], used[c.host+".host"] = true, true
	}
	entries, err := os.ReadDir("testdata")
	require.NoError(t, err)
	for _, e := range entries {
		if !e.IsDir() {
			require.True(t, used[e.Name()], e.Name())
		}
	}
}

func TestJSON(t *testing.T) {
	o := Options{Sysroot: layOut(t, "acs.host")}
	both(nil)(&o)
	r := Run(t.Context(), o)
	var out bytes.Buffer
	require.NoError(t, r.WriteJSON(&out))
	var back Report
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&back))
	require.Equal(t, *r, back)
	require.Equal(t, "acs", back.Blocker().ID)
	require.Equal(t, back.Finding("acs"), back.Blocker())
	require.Nil(t, back.Finding("nonesuch"))

	var s Status
	require.ErrorContains(t, s.UnmarshalText([]byte("fine")), `status "fine" is none of ok, skipped, unknown, warn, fail`)
	require.Equal(t, "Status(9)", Status(9).String())
}

// On whatever host the tests run: no crash, all checks made, no sysroot needed.
func TestRunningHost(t *testing.T) {
	r := Run(t.Context(), Options{})
	require.Len(t, r.Findings, len(checks))
	require.NoError(t, r.Write(new(bytes.Buffer)))
	require.Equal(t, OK, r.Finding("signals").Status, "the Go runtime's own handlers run on the alternate stack: %+v", r.Finding("signals"))
	require.Contains(t, r.Finding("signals").Evidence[0].Said, "handlers, without SA_ONSTACK: none")
}

func TestSignals(t *testing.T) {
	run := func(all []handler, err error) Finding {
		h := newHost(Options{Sysroot: t.TempDir()})
		defer h.close()
		h.signals = func() ([]handler, error) { return all, err }
		var f Finding
		checkSignals(h, &f)
		return f
	}
	f := run([]handler{{2, true}, {11, false}, {34, false}}, nil)
	require.Equal(t, Fail, f.Status)
	require.Contains(t, f.Result, "without SA_ONSTACK for signals 11, 34")
	require.Equal(t, OK, run([]handler{{11, true}}, nil).Status)
	require.Equal(t, Unknown, run(nil, errors.ErrUnsupported).Status)
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := Run(ctx, Options{Sysroot: layOut(t, "acs.host")})
	require.Equal(t, Unknown, r.Status)
	for _, f := range r.Findings {
		require.Equal(t, Unknown, f.Status)
		require.Contains(t, f.Result, "context canceled")
	}
}

func TestNoSuchRoot(t *testing.T) {
	r := Run(t.Context(), Options{Sysroot: filepath.Join(t.TempDir(), "absent")})
	require.Equal(t, Unknown, r.Finding("place").Status)
	require.Equal(t, "the system root cannot be read", r.Finding("place").Result)
	require.Equal(t, Unknown, r.Status)
}

// A link cannot lead a canned tree's reader into the running host.
func TestLinksStayInside(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/sys/kernel"), 0o755))
	require.NoError(t, os.Symlink("/proc/sys/kernel/osrelease", filepath.Join(root, "proc/sys/kernel/osrelease")))
	require.NoError(t, os.Symlink("../../../../../../../../../proc/cmdline", filepath.Join(root, "proc/cmdline")))
	tr := openTree(root)
	defer tr.close()
	_, err := tr.text("proc/sys/kernel/osrelease")
	require.ErrorContains(t, err, "escapes")
	_, err = tr.text("proc/cmdline")
	require.ErrorContains(t, err, "escapes")
}

func TestConclude(t *testing.T) {
	var f Finding
	f.conclude(OK, "fine", "x")
	require.Equal(t, Finding{Status: OK, Result: "fine"}, f)
	f.conclude(Warn, "slow", "a")
	f.conclude(OK, "forgotten", "x")
	f.conclude(Warn, "slower", "b", "a", "")
	f.conclude(Warn, "slow", "a")
	require.Equal(t, Finding{Status: Warn, Result: "slow; slower", Remedy: []string{"a", "b"}}, f)
	f.conclude(Fail, "dead", "c", "b")
	f.conclude(Unknown, "who knows", "d")
	require.Equal(t, Finding{Status: Fail, Result: "dead; slow; slower; who knows", Remedy: []string{"c", "b", "a", "d"}}, f)
}

func TestReportFailsToWrite(t *testing.T) {
	r := Run(t.Context(), Options{Sysroot: t.TempDir()})
	require.ErrorContains(t, r.Write(fullDisk{}), "write doctor's report: disk full")
	require.ErrorContains(t, r.WriteJSON(fullDisk{}), "write doctor's report: disk full")
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestClean(t *testing.T) {
	require.Equal(t, "a b?[31m?c", clean("a\nb\x1b[31m\x00c"))
	require.Equal(t, "?", clean("\xff\xfe"))
	long := clean(strings.Repeat("é", 400))
	require.LessOrEqual(t, len(long), 303)
	require.True(t, strings.HasSuffix(long, "é…"))
}

// What cannot be looked at is neither there nor absent.
func TestUnseen(t *testing.T) {
	root := layOut(t, "pcie.host")
	for _, name := range []string{"dev/dxg", "run/.containerenv"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.Symlink(filepath.Base(name), filepath.Join(root, name))) // a circle
	}
	f := Run(t.Context(), Options{Sysroot: root}).Finding("place")
	require.Equal(t, Unknown, f.Status)
	require.Contains(t, f.Result, "whether this is a container or WSL cannot be told")
	require.Equal(t, []string{"run doctor as root, or run ls -l /dev/dxg /run/.containerenv"}, f.Remedy)
	for _, word := range []string{"Windows", "Podman"} {
		require.NotContains(t, f.Result, word)
	}
	tr := openTree(root)
	defer tr.close()
	require.Equal(t, []topo.Tri{topo.Unknown, topo.No, topo.No, topo.Yes},
		[]topo.Tri{tr.exists("dev/dxg"), tr.exists("dev/none"), tr.exists("proc/version/below"), tr.exists("dev")})
	nowhere := openTree(filepath.Join(root, "nowhere"))
	require.Equal(t, topo.Unknown, nowhere.exists("dev"))

	// A library behind such a link: whether it is there cannot be told.
	root = layOut(t, "pcie.host")
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), "libnvidia-ml.so") {
			return os.Remove(path)
		}
		return err
	}))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "lib64"), 0o755))
	require.NoError(t, os.Symlink("libnvidia-ml.so.1", filepath.Join(root, "lib64/libnvidia-ml.so.1")))
	f = Run(t.Context(), Options{Sysroot: root}).Finding("nvml")
	require.Equal(t, Unknown, f.Status)
	require.Equal(t, "whether libnvidia-ml.so.1 is there cannot be told", f.Result)
}

// Probes of some pairs say nothing of the others.
func TestPartlyProbed(t *testing.T) {
	h := &host{o: Options{Machine: machineOf(claimed), Measurement: measured(good, topo.Measured{})}}
	s, why := h.peerRisk()
	require.Equal(t, Warn, s)
	require.Equal(t, "peer traffic over PCIe has not been probed", why)
	h.o.Measurement = measured(good, good)
	s, _ = h.peerRisk()
	require.Equal(t, OK, s)
}

// A report that was interrupted has no verdict.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := Options{Sysroot: layOut(t, "acs.host")}
	both(nil)(&o)
	r := Run(ctx, o)
	require.True(t, r.Interrupted)
	require.Empty(t, r.First)
	var out bytes.Buffer
	require.NoError(t, r.Write(&out))
	require.True(t, strings.HasPrefix(out.String(), "Interrupted: "), out.String())
	require.NotContains(t, out.String(), "No blocker")
	require.False(t, Run(t.Context(), o).Interrupted)
}

// A library's header may ask for any amount of memory; it gets none.
func TestHugeLibrary(t *testing.T) {
	whole := sharedObject(machines[runtime.GOARCH], "cuLaunchKernelEx", "cuIpcGetMemHandle")
	lacks, err := inspect(bytes.NewReader(whole), cudaFeatures)
	require.NoError(t, err)
	require.Len(t, lacks, 2)
	shoff := binary.LittleEndian.Uint64(whole[40:])
	patch := func(at uint64, v uint64) *os.File {
		text := bytes.Clone(whole)
		binary.LittleEndian.PutUint64(text[at:], v)
		path := filepath.Join(t.TempDir(), "lib.so")
		require.NoError(t, os.WriteFile(path, text, 0o600))
		require.NoError(t, os.Truncate(path, 6<<30)) // sparse
		f, err := os.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	const flags, size, section = 8, 32, 64
	for name, f := range map[string]*os.File{
		"symbols":    patch(shoff+section+size, 6<<30),
		"names":      patch(shoff+2*section+size, 5<<30),
		"compressed": patch(shoff+2*section+flags, uint64(elf.SHF_COMPRESSED)),
		"sections":   patch(40, 1<<63),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := inspect(f, cudaFeatures)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, errUnreadable, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), name)
	}
}
