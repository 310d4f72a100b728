package stress

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags/check/litmus"
	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
)

func openEmu(t *testing.T, devices int) gpu.Driver {
	t.Helper()
	d, err := emu.Open(emu.Config{Devices: devices, Seed: 3})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Zero(t, d.Live())
		require.NoError(t, d.Close())
	})
	return d
}

func suite(t *testing.T) []*litmus.Test {
	t.Helper()
	files, err := filepath.Glob("../check/testdata/*.litmus")
	require.NoError(t, err)
	var all []*litmus.Test
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		tests, err := litmus.Parse(filepath.Base(f), text)
		require.NoError(t, err)
		all = append(all, tests...)
	}
	if len(all) == 0 {
		t.Skip("no litmus tests here")
	}
	return all
}

// All of the suite runs on emulated devices, on one and on several, and nothing that is forbidden comes out.
func TestSuiteOnDevices(t *testing.T) {
	tests := suite(t)
	for _, devices := range []int{1, 4} {
		d := openEmu(t, devices)
		results, err := RunLitmus(t.Context(), d, tests, LitmusOptions{Time: time.Millisecond})
		require.NoError(t, err)
		require.Len(t, results, len(tests))
		ran := 0
		for _, r := range results {
			if r.Skipped != "" {
				continue
			}
			ran++
			require.Zero(t, r.Forbidden(), "%s: %+v", r.Name, r)
			require.Zero(t, r.Stuck, r.Name)
			require.NotZero(t, r.Runs, r.Name)
		}
		require.Greater(t, ran, len(tests)*9/10)
		t.Logf("%d of %d ran", ran, len(tests))
	}
}

// NVIDIA's assembler takes what is made of every test.
func TestSuiteAssembles(t *testing.T) {
	var b strings.Builder
	tests := suite(t)
	b.WriteString(litmusHead(90, tests...))
	for i, x := range tests {
		if unfit(x) == "" {
			b.WriteString(entries(x, entryName(i), 2))
		}
	}
	assemble(t, "sm_90", []byte(b.String()))
}

func parse(t *testing.T, text string) []*litmus.Test {
	t.Helper()
	tests, err := litmus.Parse("x.litmus", []byte(text))
	require.NoError(t, err)
	return tests
}

const plain2 = `
test: values
why: to see what is counted
x = 5; y.u64 = 7 @1; a[2] = 1, 2
d0.b0.t0             | d1.b0.t0
ld.weak.u32 r0, [x]  | ld.weak.u64 rd0, [y]
st.weak.u32 [a+4], 9 | setp.eq.u64 p0, rd0, 7
forbidden: r0 = 5 & rd0 = 7 & p0 = 1 & [a] = 1 & [a+4] = 9
always: r0 = 4
allowed: r0 = 5
allowed: r0 = 6
`

// What is seen is counted, whatever the test expects.
func TestLitmusCounts(t *testing.T) {
	d := openEmu(t, 2)
	results, err := RunLitmus(t.Context(), d, parse(t, plain2), LitmusOptions{Time: time.Millisecond})
	require.NoError(t, err)
	r := results[0]
	require.Equal(t, []Outcome{{Values: []uint64{5, 7, 1, 1, 9}, Count: r.Runs}}, r.Outcomes)
	require.Equal(t, []string{"0:r0", "1:rd0", "1:p0", "[a]", "[a+4]"}, r.Observed)
	require.Equal(t, 2*r.Runs, r.Forbidden())
	seen, of := r.Weak()
	require.Equal(t, [2]int{1, 2}, [2]int{seen, of})
	require.Equal(t, []int{0, 1}, r.Devices)
}

// Loops that never end are given up, and counted apart.
func TestLitmusStuck(t *testing.T) {
	if testing.Short() {
		t.Skip("a million turns of a loop")
	}
	d := openEmu(t, 1)
	results, err := RunLitmus(t.Context(), d, parse(t, `
test: forever
why: nobody sets x
x = 0
d0.b0.t0
again: ld.relaxed.sys.u32 r0, [x]
setp.eq.u32 p0, r0, 0
@p0 bra again
allowed: r0 = 0
`), LitmusOptions{Time: time.Millisecond})
	require.NoError(t, err)
	require.Zero(t, results[0].Runs)
	require.NotZero(t, results[0].Stuck)
}

func TestUnfit(t *testing.T) {
	for code, want := range map[string]string{
		"bar.red.popc.u32 r0, 0, p0 | bar.red.popc.u32 r0, 0, p0": "counts threads",
		"bar.sync 0 | ld.weak.u32 r0, [x]":                        "unequally",
		"@p0 bar.sync 0 | @p0 bar.sync 0":                         "behind a condition",
		"bar.sync 1, 2 | bar.sync 1, 2":                           "part of a warp",
		"bar.sync 1, 64 | bar.arrive 1, 64":                       "",
	} {
		x := parse(t, "test: x\nwhy: y\nx = 0\nd0.b0.t0 | d0.b0.t1\n"+code+"\nallowed: [x] = 0\n")[0]
		if want == "" {
			require.Empty(t, unfit(x), code)
		} else {
			require.Contains(t, unfit(x), want, code)
		}
	}
}

// oldDriver says that it is of a version.
type oldDriver struct {
	gpu.Driver
	version int
}

func (d oldDriver) Info() gpu.DriverInfo {
	info := d.Driver.Info()
	info.Version = d.version
	return info
}

func (d oldDriver) ModuleLoad(dev int, name string, text []byte) (gpu.Module, error) {
	if head, _, _ := strings.Cut(string(text), "\n"); head > ".version "+gpu.PTXVersion(gpu.NewestPTX(d.version)) {
		return 0, fmt.Errorf("a driver of %d does not read %s", d.version, head)
	}
	return d.Driver.ModuleLoad(dev, name, text)
}

// Tests of .b128 run where the driver reads it; elsewhere they are left out, and the others run.
func TestLitmusWide(t *testing.T) {
	tests := parse(t, plain2+`
test: wide
why: to see its halves
a.u64[2] = 3, 4
d0.b0.t0                  | d1.b0.t0
ld.weak.b128 q0, [a]      | mov.b128 q1, {r0, 2, 3, 0x80000000}
mov.b128 {rd0, rd1}, q0   | mov.b128 q0, q1
                          | mov.b128 {rd2, rd3}, q0
always: rd0 = 3 & rd1 = 4 & rd2 = 0x200000000 & rd3 = 0x8000000000000003
`)
	d := openEmu(t, 2)
	for version, skipped := range map[int]string{12020: "CUDA 12.4 drivers and later read; this one is for CUDA 12.2", 12030: "this one is for CUDA 12.3", 12040: "", 13000: ""} {
		results, err := RunLitmus(t.Context(), oldDriver{d, version}, tests, LitmusOptions{Time: time.Millisecond})
		require.NoError(t, err)
		require.NotZero(t, results[0].Runs)
		require.Empty(t, results[0].Skipped)
		r := results[1]
		if skipped != "" {
			require.Contains(t, r.Skipped, ".b128 needs PTX 8.4, which ")
			require.Contains(t, r.Skipped, skipped)
			continue
		}
		require.Empty(t, r.Skipped)
		require.NotZero(t, r.Runs)
		require.Zero(t, r.Forbidden(), "%+v", r.Outcomes)
	}
	require.Equal(t, ".version 7.8\n.target sm_90\n.address_size 64\n", litmusHead(90, tests[0]))
	require.Equal(t, ".version 8.4\n.target sm_90\n.address_size 64\n", litmusHead(100, tests...))
	require.Equal(t, ".version 8.4\n.target sm_70\n.address_size 64\n", litmusHead(80, tests[1]))
}

// A test that is interrupted still counts; those behind it are left out.
func TestLitmusStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := openEmu(t, 1)
	tests := parse(t, plain2+strings.ReplaceAll(plain2, "test: values", "test: more values"))
	time.AfterFunc(50*time.Millisecond, cancel)
	results, err := RunLitmus(ctx, d, tests, LitmusOptions{Time: time.Hour})
	require.NoError(t, err)
	require.Len(t, results, 1)
	require.NotZero(t, results[0].Runs)
}

// The host takes part, too; what it observes is counted as the rest is.
func TestHostLitmus(t *testing.T) {
	d := openEmu(t, 1)
	results, err := RunHostLitmus(t.Context(), d, LitmusOptions{Time: 50 * time.Millisecond})
	require.NoError(t, err)
	require.Len(t, results, len(hostShapes))
	for _, r := range results {
		require.Zero(t, r.Forbidden(), "%+v", r)
		require.NotZero(t, r.Runs)
		seen, of := r.Weak()
		require.NotZero(t, of)
		t.Logf("%s: %d runs, %d of %d allowed, %v", r.Name, r.Runs, seen, of, r.Outcomes)
	}
	var b strings.Builder
	b.WriteString(litmusHead(90))
	for i := range hostShapes {
		fmt.Fprintf(&b, hostEntry, i, hostShapes[i].device)
	}
	assemble(t, "sm_90", []byte(b.String()))
}
