//go:build linux && cgo

package cuda

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

// The fake driver's source is embedded, so that a test binary carried to a machine without this tree can
// still build it where there is a C compiler.
//
//go:embed testdata/fakecuda.c
var fakeSource []byte

var fakes struct {
	sync.Mutex
	dir  string
	libs map[string]string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if fakes.dir != "" {
		os.RemoveAll(fakes.dir)
	}
	os.Exit(code)
}

// buildFake compiles a variant of the fake libcuda, once for each set of flags.
func buildFake(t testing.TB, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc, which builds the fake libcuda")
	}
	fakes.Lock()
	defer fakes.Unlock()
	key := strings.Join(flags, " ")
	if lib := fakes.libs[key]; lib != "" {
		return lib
	}
	if fakes.dir == "" {
		fakes.dir, err = os.MkdirTemp("", "fakecuda")
		require.NoError(t, err)
		fakes.libs = map[string]string{}
		require.NoError(t, os.WriteFile(filepath.Join(fakes.dir, "fakecuda.c"), fakeSource, 0o600))
	}
	lib := filepath.Join(fakes.dir, fmt.Sprintf("libfake%d.so", len(fakes.libs)))
	args := append([]string{"-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread", "-o", lib}, flags...)
	out, err := exec.Command(cc, append(args, filepath.Join(fakes.dir, "fakecuda.c"))...).CombinedOutput()
	require.NoError(t, err, string(out))
	fakes.libs[key] = lib
	return lib
}

var runs atomic.Int64

// freshFlag makes a variant of its own: a library that stays loaded keeps its counters.
func freshFlag() string { return fmt.Sprintf("-DRUN=%d", runs.Add(1)) }

// openFake opens a variant; the test fails if Close does, or if something is left.
func openFake(t testing.TB, flags ...string) *driver {
	t.Helper()
	d, err := OpenLibrary(buildFake(t, flags...))
	require.NoError(t, err)
	t.Cleanup(func() {
		if !d.(*driver).closed.Load() {
			require.NoError(t, d.Close())
		}
	})
	return d.(*driver)
}

const fakePTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry noop(.param .u64 a, .param .u32 b, .param .u64 c) { ret; }
.visible .entry bare() { ret; }
.visible .entry store(.param .u64 p, .param .u32 v) { ret; }
.visible .entry busy(.param .u32 ms) { ret; }
.visible .entry fault(.param .u32 code) { ret; }
.visible .entry stats(.param .u64 p) { ret; }
`

// Places in the fake's counters; see testdata/fakecuda.c.
const (
	statSet = iota
	statLaunch
	statLaunchEx
	statPDL
	statSetForeign
	statRetained
	statReleased
	statWrongCtx
	statArgBytes
	statObjects
	statDynamic
	statFuncLoad
	statDeadCtx
	statCount
)

// rig is one device of a fake driver with what most tests need.
type rig struct {
	*require.Assertions
	t   testing.TB
	d   *driver
	dev int
	s   gpu.Stream
	m   gpu.Module
	fn  map[string]gpu.Function
}

func newRig(t testing.TB, d *driver, dev int) *rig {
	t.Helper()
	r := &rig{Assertions: require.New(t), t: t, d: d, dev: dev, fn: map[string]gpu.Function{}}
	var err error
	r.s, err = d.StreamCreate(dev)
	r.NoError(err)
	r.m, err = d.ModuleLoad(dev, "fake.ptx", []byte(fakePTX))
	r.NoError(err)
	for _, e := range []string{"noop", "bare", "store", "busy", "fault", "stats"} {
		r.fn[e], err = d.ModuleFunction(dev, r.m, e)
		r.NoError(err)
	}
	return r
}

// free destroys what newRig made.
func (r *rig) free() {
	r.NoError(r.d.StreamDestroy(r.dev, r.s))
	r.NoError(r.d.ModuleUnload(r.dev, r.m))
}

var one = gpu.LaunchConfig{Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}}

func u32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func u64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func (r *rig) launch(entry string, args []byte) error {
	return r.d.Launch(r.dev, r.s, r.fn[entry], &one, args)
}

func (r *rig) wait() {
	r.t.Helper()
	done, err := r.d.StreamWait(r.dev, r.s, 10*time.Second)
	r.NoError(err)
	r.True(done)
}

// stats reads the fake's counters.
func (r *rig) stats() [statCount]uint64 {
	r.t.Helper()
	p, err := r.d.MemAlloc(r.dev, 8*statCount)
	r.NoError(err)
	r.NoError(r.launch("stats", u64(uint64(p))))
	buf := make([]byte, 8*statCount)
	r.NoError(r.d.CopyOut(r.dev, r.s, buf, p))
	r.NoError(r.d.MemFree(r.dev, p))
	var out [statCount]uint64
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(buf[8*i:])
	}
	return out
}
