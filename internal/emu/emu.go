// Package emu is a machine of emulated GPUs behind the driver seam. It runs the very PTX that a GPU
// would, through internal/ptx, on memory that checks bounds, lifetime and peer access.
//
// Nothing runs in the background. Queued work advances only while some call lets emulated time pass:
// the waits, CopyIn and CopyOut, HostLoad32 and HostStore32, EventElapsed. The blocks of all devices and
// streams interleave as a seeded generator chooses, so the same seed and the same calls from one
// goroutine give the same schedule; only kernels that read %globaltimer or sleep can tell runs apart, for
// that clock is the wall's. Several goroutines may call at once: one at a time drives.
//
// As on hardware, blocks become resident while the SMs have room for them, and wait otherwise. A grid
// larger than the device whose blocks wait for each other never ends here either.
//
// Fresh device memory holds junk, not zeroes.
//
// Some machines have broken peer access: what a pair claims and what its accesses do are separate. A read that
// never completes holds its threads up, or its copy and stream, until the driver is closed; other work goes on,
// waits end at their limit, and closing does not wait for it.
package emu

import (
	"fmt"
	"strings"

	"github.com/fenceline/fenceline/internal/gpu"
)

// MaxDevices is the largest machine.
const MaxDevices = 16

// driverVersion is the CUDA version the machine claims, 13.0; PTX 9.0 is the newest it loads.
const driverVersion = 13000

// defaultBudget is the StepBudget of a Config without one: a lone block spins for about a minute before
// it is called a deadlock, so that a slow peer is not.
const defaultBudget = 1 << 30

// Config describes a machine. The zero value is the default machine.
type Config struct {
	Machine    string   // one of Machines(); "" is "nvlink"
	Custom     *Machine // instead of a named one; it is not changed, and must not be while the driver is open
	Devices    int      // the first so many of the machine's; 0 is the machine's own number
	Seed       uint64   // of the schedule
	StepBudget uint64   // warp instructions that one block may execute before it is a deadlock; 0 is about 10⁹
}

// machine fills the defaults and makes the machine.
func (c *Config) machine() (*Machine, error) {
	bad := func(format string, args ...any) error {
		return &gpu.Error{Op: "Open", Device: -1, Kind: gpu.ErrInvalidValue, Detail: fmt.Sprintf(format, args...)}
	}
	var own, most int
	var build func(devices int) *Machine
	if c.Custom != nil {
		if c.Machine != "" {
			return nil, bad("both a custom machine and the name %q are given; give one", c.Machine)
		}
		if err := c.Custom.validate(); err != nil {
			return nil, err
		}
		own, most, build = len(c.Custom.Devices), len(c.Custom.Devices), c.Custom.first
	} else {
		if c.Machine == "" {
			c.Machine = defaultMachine
		}
		k := findKind(c.Machine)
		if k == nil {
			return nil, bad("no emulated machine is called %q; there are %s", c.Machine, strings.Join(Machines(), ", "))
		}
		own, most, build = k.devices, k.limit(), k.build
	}
	if c.Devices < 0 || c.Devices > most {
		return nil, bad("%d emulated devices asked for; this machine has 1 to %d (0: its own number, %d)", c.Devices, most, own)
	}
	if c.Devices == 0 {
		c.Devices = own
	}
	if c.StepBudget == 0 {
		c.StepBudget = defaultBudget
	}
	return build(c.Devices), nil
}

// Open makes a machine. Its only error is ErrInvalidValue, for a bad Config.
func Open(cfg Config) (gpu.Driver, error) {
	m, err := cfg.machine()
	if err != nil {
		return nil, err
	}
	return newDriver(cfg, m), nil
}
