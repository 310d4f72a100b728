package launcher

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// ptxDrivers lists each PTX ISA version (×10) with the first CUDA driver version that reads it, in
// the driver's own encoding (cuda/std/__cccl/ptx_isa.h of CUDA 13.5, and the PTX ISA manual).
var ptxDrivers = []struct{ ptx, driver int }{
	{60, 9000}, {61, 9010}, {62, 9020}, {63, 10000}, {64, 10010}, {65, 10020},
	{70, 11000}, {71, 11010}, {72, 11020}, {73, 11030}, {74, 11040}, {75, 11050}, {76, 11060}, {77, 11070}, {78, 11080},
	{80, 12000}, {81, 12010}, {82, 12020}, {83, 12030}, {84, 12040}, {85, 12050}, {86, 12070}, {87, 12080}, {88, 12090},
	{90, 13000}, {91, 13010}, {92, 13020}, {93, 13030}, {94, 13040}, {95, 13050},
}

// driverFor is the oldest driver that reads a PTX version. known is false for versions newer
// than the table: those are left to the driver to judge.
func driverFor(version int) (driver int, known bool) {
	for _, row := range ptxDrivers {
		if version <= row.ptx {
			return row.driver, true
		}
	}
	return 0, false
}

// newestPTX is the newest PTX version that a driver reads.
func newestPTX(driver int) int {
	newest := ptxDrivers[0].ptx
	for _, row := range ptxDrivers {
		if row.driver <= driver {
			newest = row.ptx
		}
	}
	return newest
}

// suits refuses PTX that the driver is too old for or that is made for other devices than dev,
// with the remedy, which the driver's own refusal would not name.
func (rt *Runtime) suits(dev int, info *ptx.Info) error {
	refuse := func(kind error, format string, args ...any) error {
		return &gpu.Error{Op: "load " + info.File, Device: dev, Kind: kind, Detail: fmt.Sprintf(format, args...)}
	}
	have := rt.info.DriverVersion
	if need, known := driverFor(info.Version); known && need > have {
		return refuse(gpu.ErrDriverTooOld,
			"PTX .version %d.%d needs a driver of CUDA %s or newer, this one is %s: update the driver, or build the PTX for .version %d.%d",
			info.Version/10, info.Version%10, cudaVersion(need), cudaVersion(have), newestPTX(have)/10, newestPTX(have)%10)
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

// cudaVersion renders a driver version: 12020 is "12.2".
func cudaVersion(v int) string {
	return strconv.Itoa(v/1000) + "." + strconv.Itoa(v%1000/10)
}
