//go:build !cgo || !linux || nonvml

package nvml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/topo"
)

func TestStub(t *testing.T) {
	err := Augment(&topo.Machine{})
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "CGO_ENABLED=1")
	require.ErrorIs(t, Augment(&topo.Machine{Emulated: true}), ErrUnavailable)
}
