package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/kernels"
)

// CUresult values that say more than a driver call's own message does (cuda.h, enum cudaError_enum).
const (
	resNoDevice       = 100
	resOperatingSys   = 304
	resSystemNotReady = 802
	resMismatch       = 803
	resCompat         = 804
	resUnknown        = 999
)

// openRemedies are what to do about a driver that is there and does not open.
var openRemedies = map[int][]string{
	resNoDevice:       {"check CUDA_VISIBLE_DEVICES, and in a container that devices are passed through (--gpus all)"},
	resOperatingSys:   {"check /dev/nvidia* and the limits (ulimit -l, ulimit -v)"},
	resSystemNotReady: {"start the fabric manager: systemctl start nvidia-fabricmanager; its version must be the driver's"},
	resMismatch:       {"reboot after a driver update; in a container, use the host's libcuda"},
	resCompat:         {"take the forward-compatibility library out of LD_LIBRARY_PATH: this GPU does not support it"},
	resUnknown:        {"load the UVM module: modprobe nvidia-uvm; if it is loaded, look for Xid lines in dmesg and reboot"},
}

func checkDriver(h *host, f *Finding) {
	if err := h.o.OpenErr; err != nil {
		f.see("open", "%v", err)
		var e *gpu.Error
		var remedy []string
		if errors.As(err, &e) {
			remedy = openRemedies[e.Code]
		}
		switch {
		case errors.Is(err, gpu.ErrNoDriver) && len(h.gpus) == 0 && h.emulated():
			f.conclude(Skipped, "none; the emulator stands in")
		case errors.Is(err, gpu.ErrNoDriver):
			f.conclude(Fail, "it did not open: no driver or no device", append(remedy, "install NVIDIA's driver, or use the emulator")...)
		case errors.Is(err, gpu.ErrDriverTooOld):
			f.conclude(Fail, "it is too old", "update the driver")
		case errors.Is(err, gpu.ErrMissingSymbol):
			f.conclude(Fail, "its library lacks functions that are needed", "reinstall or update the driver")
		case errors.Is(err, gpu.ErrNotSupported):
			f.conclude(Unknown, "this program was built without CUDA", "build on Linux with CGO_ENABLED=1")
		case remedy != nil:
			f.conclude(Fail, "it did not open", remedy...)
		default:
			f.conclude(Fail, "it did not open", "run nvidia-smi and look for NVRM and Xid lines in dmesg")
		}
		return
	}
	if h.o.Driver == nil {
		f.conclude(Unknown, "not opened", "run demo doctor on the machine itself")
		return
	}
	info := h.o.Driver.Info()
	f.see("Info", "%s, CUDA %s, %s", info.Name, gpu.CUDAVersion(info.Version), info.Detail)
	if info.Emulated {
		f.conclude(Skipped, "emulator with "+plural(h.o.Driver.DeviceCount(), "device")+": no GPU executes anything")
		return
	}
	f.conclude(OK, fmt.Sprintf("CUDA %s with %s", gpu.CUDAVersion(info.Version), plural(h.o.Driver.DeviceCount(), "device")))
}

// branches are driver release branches with the CUDA version they came with, from the table of minimum driver
// versions in the CUDA toolkit's release notes.
var branches = []struct{ release, cuda int }{
	{450, 11000}, {455, 11010}, {460, 11020}, {465, 11030}, {470, 11040}, {495, 11050}, {510, 11060}, {515, 11070}, {520, 11080},
	{525, 12000}, {530, 12010}, {535, 12020}, {545, 12030}, {550, 12040}, {555, 12050}, {560, 12060}, {565, 12070}, {570, 12080}, {575, 12090},
	{580, 13000},
}

// cudaOf is the CUDA version of a driver release, as far as its branch tells; 0 when it is older than the table.
func cudaOf(release string) int {
	major, _, _ := strings.Cut(release, ".")
	n, err := strconv.Atoi(major)
	cuda := 0
	if err != nil {
		return 0
	}
	for _, b := range branches {
		if b.release <= n {
			cuda = b.cuda
		}
	}
	return cuda
}

func checkPTX(h *host, f *Finding) {
	m, err := kernels.Load()
	if err != nil {
		f.conclude(Fail, "the program's own kernels cannot be read: "+err.Error(), "build it again")
		return
	}
	oldest, newest := 0, 0
	var sources []string
	for i, mod := range m.Modules {
		if d, ok := gpu.DriverForPTX(mod.PTX); ok {
			if i == 0 || d < oldest {
				oldest = d
			}
			if !kernels.Optional(mod.Source) {
				newest = max(newest, d)
			}
		}
		if len(sources) == 0 || sources[len(sources)-1] != mod.Source {
			sources = append(sources, mod.Source)
		}
	}
	f.see("kernels", "%s: need a driver for CUDA %s, their fastest builds one for CUDA %s", plural(len(sources), "source"), gpu.CUDAVersion(oldest), gpu.CUDAVersion(newest))
	if h.o.Driver == nil {
		release := parseRelease(h.t.word("proc/driver/nvidia/version"))
		cuda := cudaOf(release)
		switch {
		case release == "":
			f.conclude(Unknown, "no driver to compare with", "run doctor where the driver is open")
		case cuda < oldest:
			f.see("/proc/driver/nvidia/version", "release %s", release)
			f.conclude(Fail, "driver release "+release+" is older than the kernels' PTX", "update the driver to branch 470 or newer")
		default:
			f.see("/proc/driver/nvidia/version", "release %s, CUDA %s", release, gpu.CUDAVersion(cuda))
			f.conclude(OK, "by its release, the driver reads PTX "+gpu.PTXVersion(gpu.NewestPTX(cuda)))
		}
		return
	}
	version := h.o.Driver.Info().Version
	for dev := range h.o.Driver.DeviceCount() {
		info, err := h.o.Driver.DeviceInfo(dev)
		if err != nil {
			f.see("DeviceInfo", "%v", err)
			f.conclude(Unknown, fmt.Sprintf("device %d cannot be described", dev), "run nvidia-smi")
			continue
		}
		for _, s := range sources {
			h.comparePTX(f, s, dev, info, version)
		}
	}
	if f.Result == "" {
		f.conclude(OK, fmt.Sprintf("a CUDA %s driver reads PTX %s and %s", gpu.CUDAVersion(version), gpu.PTXVersion(gpu.NewestPTX(version)), whatLoads(m, version)))
	}
}

// whatLoads is "all kernels load", or which do not: those without which a device can do.
func whatLoads(m *kernels.Manifest, version int) string {
	least := map[string]int{} // the oldest driver that any build of the source needs
	for _, mod := range m.Modules {
		if need, ok := gpu.DriverForPTX(mod.PTX); ok && kernels.Optional(mod.Source) && (least[mod.Source] == 0 || need < least[mod.Source]) {
			least[mod.Source] = need
		}
	}
	var missing []string
	most := 0
	for _, source := range slices.Sorted(maps.Keys(least)) {
		if least[source] > version {
			missing, most = append(missing, source), max(most, least[source])
		}
	}
	if missing == nil {
		return "all kernels load"
	}
	return fmt.Sprintf("all kernels load but %s, which a driver for CUDA %s would add", strings.Join(missing, " and "), gpu.CUDAVersion(most))
}

// comparePTX judges one source on one device.
func (h *host) comparePTX(f *Finding, source string, dev int, info gpu.DeviceInfo, version int) {
	mod, err := kernels.Find(source, info.SM(), version)
	if err != nil && kernels.Optional(source) {
		return
	}
	if err != nil {
		f.see(fmt.Sprintf("device %d", dev), "%v", err)
		remedy := "update the driver"
		if _, any := kernels.Find(source, info.SM(), 1<<30); any != nil {
			remedy = "leave this device out with CUDA_VISIBLE_DEVICES: it is too old"
		}
		f.conclude(Fail, "some kernels do not load", remedy)
		return
	}
	best, err := kernels.Find(source, info.SM(), 1<<30)
	if err == nil && best.SM > mod.SM {
		need, _ := gpu.DriverForPTX(best.PTX)
		f.see(fmt.Sprintf("device %d", dev), "%s is used; %s needs a driver for CUDA %s", mod.File, best.File, gpu.CUDAVersion(need))
		f.conclude(Warn, "slower builds of some kernels are used", "update the driver to one for CUDA "+gpu.CUDAVersion(need))
	}
}
