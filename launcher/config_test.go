package launcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
)

func TestConfigValidate(t *testing.T) {
	tests := []struct {
		name  string
		cfg   Config
		field string // refused field, "" when all is well
	}{
		{"zero value", Config{}, ""},
		{"emulator with everything", Config{Backend: Emu, Machine: "pcie", Devices: 3, Seed: 7, StepBudget: 9}, ""},
		{"auto with seed", Config{Backend: Auto, Seed: 7}, ""},
		{"cuda", Config{Backend: CUDA}, ""},
		{"backend", Config{Backend: "rocm"}, "Backend"},
		{"case matters", Config{Backend: "CUDA"}, "Backend"},
		{"devices", Config{Devices: -1}, "Devices"},
		{"wait limit", Config{WaitLimit: -time.Second}, "WaitLimit"},
		{"cuda with machine", Config{Backend: CUDA, Machine: "nvlink"}, "Machine"},
		{"cuda with devices", Config{Backend: CUDA, Devices: 2}, "Devices"},
		{"cuda with seed", Config{Backend: CUDA, Seed: 1}, "Seed"},
		{"cuda with budget", Config{Backend: CUDA, StepBudget: 1}, "StepBudget"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.cfg.validate()
			if tt.field == "" {
				require.NoError(t, err)
				require.Positive(t, tt.cfg.WaitLimit)
				require.NotEmpty(t, tt.cfg.Backend)
				return
			}
			var ce *ConfigError
			require.ErrorAs(t, err, &ce)
			require.ErrorIs(t, err, ErrInvalidValue)
			require.Equal(t, tt.field, ce.Field)
			require.NotEmpty(t, ce.Msg)
		})
	}
}

func TestOpenChooses(t *testing.T) {
	noDriver := &gpu.Error{Op: "dlopen", Device: -1, Kind: gpu.ErrNoDriver, Detail: "libcuda.so.1 not found"}
	noDevice := &gpu.Error{Op: "cuInit", Device: -1, Code: 100, Kind: gpu.ErrNoDriver}
	stub := &gpu.Error{Op: "Open", Device: -1, Kind: gpu.ErrNotSupported, Detail: "built without cgo"}
	mismatch := &gpu.Error{Op: "cuInit", Device: -1, Code: 803, Kind: gpu.ErrUnknown}
	refused := &gpu.Error{Op: "cuInit", Device: -1, Code: 801, Kind: gpu.ErrNotSupported}
	symbol := &gpu.Error{Op: "dlsym", Device: -1, Kind: gpu.ErrMissingSymbol}
	tests := []struct {
		name    string
		cfg     Config
		cudaErr error
		got     string // driver opened, "" when an error is wanted
		why     string
		err     error
	}{
		{"auto with a GPU", Config{}, nil, "cuda", "found", nil},
		{"auto without library", Config{}, noDriver, "emu", "libcuda.so.1 not found", nil},
		{"auto without device", Config{}, noDevice, "emu", "cuInit", nil},
		{"auto in a build without cgo", Config{}, stub, "emu", "built without cgo", nil},
		{"auto, driver broken", Config{}, mismatch, "", "", gpu.ErrUnknown},
		{"auto, driver says not supported", Config{}, refused, "", "", ErrNotSupported},
		{"auto, symbol missing", Config{}, symbol, "", "", ErrMissingSymbol},
		{"auto with a machine", Config{Machine: "pcie"}, nil, "emu", `"pcie"`, nil},
		{"auto with a seed and a GPU", Config{Seed: 3}, nil, "cuda", "found", nil},
		{"cuda", Config{Backend: CUDA}, nil, "cuda", "asked for", nil},
		{"cuda without library", Config{Backend: CUDA}, noDriver, "", "", ErrNoDriver},
		{"emu", Config{Backend: Emu}, nil, "emu", "asked for", nil},
		{"emu, unknown machine", Config{Backend: Emu, Machine: "abacus"}, nil, "", "", ErrInvalidValue},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opened := ""
			var given emu.Config
			rt, err := open(tt.cfg, openers{
				cuda: func() (gpu.Driver, error) {
					if tt.cudaErr != nil {
						return nil, tt.cudaErr
					}
					opened = "cuda"
					return newFake(1), nil
				},
				emu: func(c emu.Config) (gpu.Driver, error) {
					if c.Machine == "abacus" {
						return nil, &gpu.Error{Op: "Open", Device: -1, Kind: gpu.ErrInvalidValue}
					}
					opened, given = "emu", c
					return newFake(4), nil
				},
			})
			require.Equal(t, tt.got, opened)
			if tt.got == "" {
				require.Nil(t, rt)
				require.ErrorIs(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Contains(t, rt.Info().Why, tt.why)
			if opened == "emu" {
				require.Equal(t, tt.cfg.Machine, given.Machine)
			}
			require.NoError(t, rt.Close())
		})
	}
}

func TestOpenDeviceInfoFails(t *testing.T) {
	f := newFake(2)
	f.failOn = "DeviceInfo"
	f.fail.Store(&gpu.Error{Op: "DeviceInfo", Device: 0, Kind: gpu.ErrUnknown})
	_, err := open(Config{Backend: CUDA}, openers{cuda: func() (gpu.Driver, error) { return f, nil }})
	require.ErrorIs(t, err, ErrUnknown)
	require.True(t, f.closed, "the driver must not stay open")

	rt := OpenWith(f)
	_, err = rt.Alloc(0, 4)
	require.ErrorIs(t, err, ErrUnknown)
}
