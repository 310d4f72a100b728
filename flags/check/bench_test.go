package check

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkRandom is the speed of checking at random: memory operations a second.
func BenchmarkRandom(b *testing.B) {
	text, err := os.ReadFile("../../kernels/ptx/oneshot_pull.sm_90.ptx")
	require.NoError(b, err)
	p := pull(b, text, 2, 2, 1000, true, true)
	ops := uint64(0)
	for b.Loop() {
		r, err := Check(b.Context(), p, Options{Executions: 100})
		require.NoError(b, err)
		require.Empty(b, r.Findings)
		ops += r.Operations
	}
	b.ReportMetric(float64(ops)/b.Elapsed().Seconds()/1e6, "Mops/s")
}
