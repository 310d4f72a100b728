package launcher

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fenceline/fenceline/internal/cuda"
	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
)

// Names of the backends, for Config.Backend.
const (
	Auto = "auto" // GPUs where there are any, otherwise the emulator
	CUDA = "cuda" // GPUs or an error
	Emu  = "emu"  // emulated devices
)

// Config says what to open. The zero value opens GPUs where there are any and the default
// emulated machine where there are none.
type Config struct {
	Backend string // Auto, CUDA or Emu; "" is Auto

	// The emulated machine. With backend CUDA these are refused. With Auto, naming a Machine
	// means the emulator; the others apply when it comes to be used.
	Machine    string // name of an emulated machine, or "file:PATH" of a saved one; "" is the emulator's default
	Devices    int    // number of emulated devices; 0 is the machine's own
	Seed       uint64 // order in which emulated warps run
	StepBudget uint64 // warp instructions one emulated block may run before it counts as deadlocked; 0 is the default

	// WaitLimit bounds each wait whose context has no deadline. 0 is 2 minutes.
	WaitLimit time.Duration
}

const defaultWaitLimit = 2 * time.Minute

// validate fills the defaults and refuses what no backend could open. Names of machines are
// the emulator's to know.
func (c *Config) validate() error {
	switch c.Backend {
	case "":
		c.Backend = Auto
	case Auto, CUDA, Emu:
	default:
		return &ConfigError{"Backend", c.Backend, `want "auto", "cuda" or "emu"`}
	}
	if c.Devices < 0 {
		return &ConfigError{"Devices", fmt.Sprint(c.Devices), "want 0 (the machine's own number) or more"}
	}
	if c.WaitLimit < 0 {
		return &ConfigError{"WaitLimit", c.WaitLimit.String(), "want 0 (2 minutes) or more"}
	}
	if c.WaitLimit == 0 {
		c.WaitLimit = defaultWaitLimit
	}
	if c.Backend != CUDA {
		return nil
	}
	const only = `describes the emulator and has no meaning with backend "cuda"; leave it out, or use backend "emu"`
	switch {
	case c.Machine != "":
		return &ConfigError{"Machine", c.Machine, only}
	case c.Devices != 0:
		return &ConfigError{"Devices", fmt.Sprint(c.Devices), only}
	case c.Seed != 0:
		return &ConfigError{"Seed", fmt.Sprint(c.Seed), only}
	case c.StepBudget != 0:
		return &ConfigError{"StepBudget", fmt.Sprint(c.StepBudget), only}
	}
	return nil
}

// openers are the two drivers, replaced in tests.
type openers struct {
	cuda func() (gpu.Driver, error)
	emu  func(emu.Config) (gpu.Driver, error)
}

// Open opens a runtime. It fails with *ConfigError on bad configuration and otherwise with the
// driver's own error. With Auto only the absence of a driver or of devices, or a build that
// cannot use one, leads to the emulator; a driver that is there and fails is an error.
// Runtime.Info says what was chosen and why.
func Open(cfg Config) (*Runtime, error) {
	return open(cfg, openers{cuda.Open, emu.Open})
}

func open(cfg Config, drivers openers) (*Runtime, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	d, why, err := choose(cfg, drivers)
	if err != nil {
		return nil, fmt.Errorf("open %s runtime: %w", cfg.Backend, err)
	}
	rt := newRuntime(d, why, cfg.WaitLimit)
	if rt.broken != nil {
		err := rt.broken
		if cerr := d.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
		return nil, fmt.Errorf("open %s runtime: %w", cfg.Backend, err)
	}
	return rt, nil
}

// choose opens a driver and says in words why this one.
func choose(cfg Config, drivers openers) (gpu.Driver, string, error) {
	ecfg := emu.Config{Machine: cfg.Machine, Devices: cfg.Devices, Seed: cfg.Seed, StepBudget: cfg.StepBudget}
	if path, ok := strings.CutPrefix(cfg.Machine, filePrefix); ok {
		m, err := readMachine(path)
		if err != nil {
			return nil, "", fmt.Errorf("%w: %w", &ConfigError{"Machine", cfg.Machine, "no topology can be read from it"}, err)
		}
		ecfg.Machine, ecfg.Custom = "", m
	}
	switch {
	case cfg.Backend == Emu:
		d, err := drivers.emu(ecfg)
		return d, "emulator asked for", err
	case cfg.Backend == CUDA:
		d, err := drivers.cuda()
		return d, "CUDA asked for", err
	case cfg.Machine != "":
		d, err := drivers.emu(ecfg)
		return d, fmt.Sprintf("emulated machine %q asked for", cfg.Machine), err
	}
	d, err := drivers.cuda()
	if err == nil {
		return d, "CUDA driver and devices found", nil
	}
	if !absent(err) {
		return nil, "", fmt.Errorf("%w (the driver is present but fails; repair it, or ask for backend %q)", err, Emu)
	}
	d, eerr := drivers.emu(ecfg)
	if eerr != nil {
		return nil, "", errors.Join(err, eerr)
	}
	return d, fmt.Sprintf("no usable GPU, emulating: %v", err), nil
}

// absent tells a machine or build without CUDA from a driver that fails. A driver can answer
// "not supported" too; only a call that never reached it (code 0) means this build has none.
func absent(err error) bool {
	if errors.Is(err, gpu.ErrNoDriver) {
		return true
	}
	var e *gpu.Error
	return errors.Is(err, gpu.ErrNotSupported) && errors.As(err, &e) && e.Code == 0
}
