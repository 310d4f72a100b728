//go:build !linux || !cgo

package nccl

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnavailable(t *testing.T) {
	_, err := Open("")
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "this build has no cgo")
}
