package stress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/ptx"
)

func TestKernels(t *testing.T) {
	for sm, arch := range map[int]string{70: "sm_75", 80: "sm_80", 90: "sm_90", 100: "sm_100"} {
		text := Kernels(sm)
		m, err := ptx.Parse("stress.ptx", text)
		require.NoError(t, err)
		for _, name := range []string{BusyKernel, PauseKernel, ScribbleKernel} {
			_, ok := m.Kernel(name)
			require.True(t, ok, name)
		}
		assemble(t, arch, text)
	}
}
