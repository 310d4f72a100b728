//go:build unix

package probe

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/cuda"
	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/topo"
)

// gpuMachine describes the GPUs. Without any, the test is skipped, or fails under REQUIRE_GPU=1.
func gpuMachine(t *testing.T) *topo.Machine {
	d, err := cuda.Open()
	absent := errors.Is(err, gpu.ErrNoDriver) || errors.Is(err, gpu.ErrNotSupported) // no driver, or built without cgo
	if absent && os.Getenv("REQUIRE_GPU") != "1" {
		t.Skipf("needs a GPU: %v", err)
	}
	require.NoError(t, err)
	m, err := topo.FromDriver(d)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	return m
}

func show(t *testing.T, m *topo.Machine, found *topo.Measurement) {
	var b strings.Builder
	require.NoError(t, WriteChecks(&b, m, found))
	require.NoError(t, WriteNumbers(&b, m, found))
	t.Log("\n" + b.String())
}

// TestGPU probes every pair of GPUs, and each with itself, in children. A GPU's own memory must pass everything; what
// pairs can do is the machine's business, but a probe of them must not fail for other reasons.
func TestGPU(t *testing.T) {
	m := gpuMachine(t)
	results := map[string]Result{}
	start := time.Now()
	found, err := RunChild(context.Background(), itself(t, "cuda", ""), m, Options{Virtual: true, Numbers: true,
		Report: func(r Result) { results[r.Pair.String()+" "+r.Step] = r }})
	require.NoError(t, err)
	t.Logf("%d probes in %v", len(results), time.Since(start))
	show(t, m, found)
	for i := range m.Devices {
		own := found.Pairs[i][i]
		require.Equal(t, "yyyy", answers(own), "%+v", own)
		requireNumbers(t, own)
		require.GreaterOrEqual(t, own.KernelRate, 0.85*own.CopyRate, "loads by a kernel are slow")
		require.Less(t, own.FlagLatency, 100_000.0)
		for j := range m.Devices {
			if p := found.Pairs[i][j]; i != j && m.Pairs[i][j].Access == topo.Yes {
				require.Equal(t, "yyy", answers(p)[:3], "%d→%d: %+v", i, j, p)
			}
		}
	}
	for name, r := range results {
		require.False(t, r.Lost, name)
	}
}

// TestGPURun is the same in this process, with small buffers, and leaves nothing behind.
func TestGPURun(t *testing.T) {
	m := gpuMachine(t)
	d, err := cuda.Open()
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	for range 3 { // of different patterns
		found, err := Run(context.Background(), d, m, Options{Virtual: true, Pairs: []Pair{{0, 0}}, Bytes: 16 << 20, Numbers: true, RateBytes: 1 << 20})
		require.NoError(t, err)
		require.Equal(t, "yyyy", answers(found.Pairs[0][0]), "%+v", found.Pairs[0][0])
		requireNumbers(t, found.Pairs[0][0])
		require.Zero(t, d.Live())
	}
}

// TestGPUChildFails: a fault or a hang on a GPU costs one probe, and a death is no answer.
func TestGPUChildFails(t *testing.T) {
	m := gpuMachine(t)
	for mode, want := range map[string]struct{ says, answers string }{
		"hang": {"was killed: last words", "nyy-"}, "exit": {"exit status 3", "-yy-"}, "fault": {"illegal address", "nyy-"},
	} {
		t.Run(mode, func(t *testing.T) {
			found, err := RunChild(context.Background(), itself(t, "cuda", mode), m, Options{Pairs: []Pair{{0, 0}}, Timeout: 500 * time.Millisecond})
			require.NoError(t, err)
			require.Equal(t, want.answers, answers(found.Pairs[0][0]))
			require.Contains(t, found.Pairs[0][0].Read.Detail, want.says)
		})
	}
}
