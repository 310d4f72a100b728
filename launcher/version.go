package launcher

import (
	"fmt"
	"strings"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// suits refuses PTX that the driver is too old for or that is made for other devices than dev,
// with the remedy, which the driver's own refusal would not name.
func (rt *Runtime) suits(dev int, info *ptx.Info) error {
	refuse := func(kind error, format string, args ...any) error {
		return &gpu.Error{Op: "load " + info.File, Device: dev, Kind: kind, Detail: fmt.Sprintf(format, args...)}
	}
	have := rt.info.DriverVersion
	if need, known := gpu.DriverForPTX(info.Version); known && need > have {
		return refuse(gpu.ErrDriverTooOld,
			"PTX .version %s needs a driver of CUDA %s or newer, this one is %s: update the driver, or build the PTX for .version %s",
			gpu.PTXVersion(info.Version), gpu.CUDAVersion(need), gpu.CUDAVersion(have), gpu.PTXVersion(gpu.NewestPTX(have)))
	}
	d := rt.devices[dev]
	ok, needs := targetRuns(info, d)
	if !ok {
		return refuse(gpu.ErrInvalidPTX, "PTX .target %s needs %s, this device (%s) is sm_%d: build the PTX for a target of at most sm_%d",
			info.Target, needs, d.Name, d.SM(), d.SM())
	}
	return nil
}

// targetRuns says whether a device runs PTX of a target, and in words what the target needs.
// Plain targets run on every later device; "a" targets on exactly their own; "f" targets on their
// own and later ones of the same major version.
func targetRuns(info *ptx.Info, d Device) (bool, string) {
	name, _, _ := strings.Cut(info.Target, ",")
	switch name = strings.TrimSpace(name); {
	case strings.HasSuffix(name, "a"):
		return d.SM() == info.SM, fmt.Sprintf("a device of exactly sm_%d", info.SM)
	case strings.HasSuffix(name, "f"):
		return d.Major == info.SM/10 && d.SM() >= info.SM,
			fmt.Sprintf("a device of sm_%d or newer of the same family", info.SM)
	}
	return d.SM() >= info.SM, fmt.Sprintf("a device of sm_%d or newer", info.SM)
}
