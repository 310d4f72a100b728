//go:build !linux || !cgo

package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

func TestStub(t *testing.T) {
	d, err := Open()
	require.Nil(t, d)
	require.ErrorIs(t, err, gpu.ErrNotSupported)
	require.NotErrorIs(t, err, gpu.ErrNoDriver)
	require.Regexp(t, "without cgo|only on Linux", err.Error())
}
