package emu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/gpu/gputest"
)

func open(t *testing.T, cfg emu.Config) gpu.Driver {
	t.Helper()
	d, err := emu.Open(cfg)
	require.NoError(t, err)
	return d
}

func TestConformance(t *testing.T) {
	for _, machine := range emu.Machines() {
		t.Run(machine, func(t *testing.T) {
			gputest.Run(t, func(t *testing.T) gpu.Driver { return open(t, emu.Config{Machine: machine}) })
		})
	}
	t.Run("one device", func(t *testing.T) {
		gputest.Run(t, func(t *testing.T) gpu.Driver { return open(t, emu.Config{Devices: 1, Seed: 7}) })
	})
}
