package doctor

import (
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/topo"
)

// fakeDriver describes devices and does nothing else.
type fakeDriver struct {
	gpu.Driver
	info    gpu.DriverInfo
	devices []gpu.DeviceInfo
}

func (d fakeDriver) Info() gpu.DriverInfo                       { return d.info }
func (d fakeDriver) DeviceCount() int                           { return len(d.devices) }
func (d fakeDriver) DeviceInfo(dev int) (gpu.DeviceInfo, error) { return d.devices[dev], nil }

func driverOf(version, count int) gpu.Driver {
	d := fakeDriver{info: gpu.DriverInfo{Name: "cuda", Version: version, Detail: "/usr/lib/x86_64-linux-gnu/libcuda.so.1"}}
	for i := range count {
		d.devices = append(d.devices, gpu.DeviceInfo{Ordinal: i, Major: 8, Minor: 0, Name: "NVIDIA A100 80GB PCIe"})
	}
	return d
}

// machineOf is two devices (those of pcie.host) with the same claim in both directions.
func machineOf(p topo.Pair) *topo.Machine {
	m := &topo.Machine{Version: topo.FormatVersion, Driver: topo.Driver{Name: "cuda", API: 12020}}
	for i, pci := range []string{"0000:18:00.0", "00000000:19:00.0"} {
		m.Devices = append(m.Devices, topo.Device{Ordinal: i, UUID: fmt.Sprintf("GPU-%d", i), Name: "NVIDIA A100 80GB PCIe", PCI: pci, SM: 80,
			TotalMem: 80 << 30, MIG: topo.No})
	}
	m.Pairs = [][]topo.Pair{{{}, p}, {p, {}}}
	return m
}

var claimed = topo.Pair{Access: topo.Yes, Read: topo.Yes, Write: topo.Yes, ReadCode: topo.CodeOK, WriteCode: topo.CodeOK, Link: "PIX"}

var good = topo.Measured{Read: topo.Check{Answer: topo.Yes}, Write: topo.Check{Answer: topo.Yes}, Flags: topo.Check{Answer: topo.Yes}}

func measured(there, back topo.Measured) *topo.Measurement {
	return &topo.Measurement{Version: topo.FormatVersion, Key: topo.Key{UUIDs: []string{"GPU-0", "GPU-1"}, BootID: "5d1f3f3e-9a0b-4c55-8f43-0a3f7a2f4c11"},
		Pairs: [][]topo.Measured{{{}, there}, {back, {}}}}
}

func no(detail string, offset, expected, got uint64) topo.Check {
	return topo.Check{Answer: topo.No, Detail: detail, Offset: offset, Expected: expected, Got: got}
}

func both(m *topo.Measurement) func(*Options) {
	return func(o *Options) {
		o.Driver, o.Machine, o.Measurement = driverOf(12020, 2), machineOf(claimed), m
	}
}

var knobs = []Knob{
	{"FENCELINE_ALGO", func(v string) error {
		if v != "auto" && v != "copy" {
			return errors.New("want auto or copy")
		}
		return nil
	}},
	{"FENCELINE_P2P_LEVEL", nil},
}

// hosts are canned machines. first is the finding to mend first, and its status; the golden file has the whole report.
var hosts = []struct {
	name, host, first string
	status            Status
	set               func(*Options)
}{
	{"clean", "pcie", "", OK, both(measured(good, good))},
	{"acs", "acs", "acs", Fail, both(measured(
		topo.Measured{Read: no("timed out after 2s", 0, 0, 0), Write: topo.Check{Answer: topo.Yes}, Flags: topo.Check{Answer: topo.Yes}}, good))},
	{"acs-unprobed", "acs", "acs", Warn, both(nil)},
	{"acs-harmless", "acs", "", Unknown, func(o *Options) {
		both(measured(good, good))(o)
		o.Env = []string{"FENCELINE_ALGO=copy"} // and no list of knobs
	}},
	{"acs-nvlink", "acs", "", Unknown, func(o *Options) {
		both(nil)(o)
		o.Machine.Pairs[0][1].Link, o.Machine.Pairs[1][0].Link = "NV12", "NV12"
	}},
	{"iommu-zero", "iommu", "iommu", Fail, both(measured(
		topo.Measured{Read: no("", 0, 0x5eed0001, 0), Write: no("", 0, 0x5eed0002, 0), Flags: no("timed out after 2s", 0, 0, 0)},
		topo.Measured{Read: no("", 64, 0x5eed0003, 0), Write: no("", 0, 0x5eed0004, 0), Flags: no("timed out after 2s", 0, 0, 0)}))},
	{"iommu-typo", "iommu-typo", "iommu", Warn, both(nil)},
	{"iommu-pt", "iommu-pt", "", OK, both(measured(good, good))},
	{"write-only", "pcie", "p2p", Warn, both(measured(
		topo.Measured{Read: no("timed out after 2s", 0, 0, 0), Write: topo.Check{Answer: topo.Yes}, Flags: topo.Check{Answer: topo.Yes}},
		topo.Measured{Read: no("timed out after 2s", 0, 0, 0), Write: topo.Check{Answer: topo.Yes}, Flags: topo.Check{Answer: topo.Yes}}))},
	{"read-garbage", "pcie", "p2p", Warn, both(measured(good,
		topo.Measured{Read: no("wrong pattern", 128, 0x5eed0005, 0xffffffff), Write: topo.Check{Answer: topo.Yes}, Flags: topo.Check{Answer: topo.Yes}}))},
	{"flags", "pcie", "p2p", Fail, both(measured(good,
		topo.Measured{Read: topo.Check{Answer: topo.Yes}, Write: topo.Check{Answer: topo.Yes}, Flags: no("stale data", 8, 2, 1)}))},
	{"one-way", "pcie", "p2p", Warn, func(o *Options) {
		both(nil)(o)
		o.Machine.Pairs[1][0] = topo.Pair{Access: topo.No, Link: "PIX"}
	}},
	{"stale-probe", "pcie", "", Unknown, func(o *Options) {
		both(measured(good, good))(o)
		o.Measurement.Key.BootID = "another"
	}},
	{"container", "container", "shm", Warn, func(o *Options) {
		both(nil)(o)
		o.Env = []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"}
	}},
	{"container-peers", "container", "namespaces", Fail, func(o *Options) {
		both(measured(good, good))(o)
		o.Peers = []int{77, 78}
	}},
	{"fabric-down", "fabric-down", "fabric", Fail, func(o *Options) {
		o.OpenErr = &gpu.Error{Op: "cuInit", Device: -1, Code: 802, Name: "CUDA_ERROR_SYSTEM_NOT_READY", Kind: gpu.ErrUnknown}
	}},
	{"hgx", "hgx", "", Unknown, nil},
	{"mismatch", "mismatch", "module", Fail, func(o *Options) {
		o.OpenErr = &gpu.Error{Op: "cuInit", Device: -1, Code: 803, Name: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", Kind: gpu.ErrUnknown}
	}},
	{"nouveau", "nouveau", "gpus", Fail, func(o *Options) {
		o.OpenErr = &gpu.Error{Op: "cuInit", Device: -1, Code: 100, Name: "CUDA_ERROR_NO_DEVICE", Kind: gpu.ErrNoDriver}
	}},
	{"not-root", "not-root", "", Unknown, both(nil)},
	{"mig", "mig", "mig", Warn, func(o *Options) {
		both(nil)(o)
		none := topo.Pair{Access: topo.No, ReadCode: topo.CodeNS, WriteCode: topo.CodeNS}
		o.Machine.Pairs[0][1], o.Machine.Pairs[1][0] = none, none
		o.Machine.Devices[0].MIG, o.Machine.Devices[1].MIG = topo.Yes, topo.Yes
	}},
	{"wsl", "wsl", "place", Warn, nil},
	{"geforce", "geforce", "pcie", Warn, func(o *Options) {
		both(nil)(o)
		none := topo.Pair{Access: topo.No, Read: topo.No, Write: topo.No, ReadCode: topo.CodeGNS, WriteCode: topo.CodeGNS, Link: "PHB"}
		o.Machine.Pairs[0][1], o.Machine.Pairs[1][0] = none, none
		for i := range o.Machine.Devices {
			o.Machine.Devices[i].Name, o.Machine.Devices[i].TotalMem = "NVIDIA GeForce RTX 4090", 24<<30
		}
	}},
	{"old-driver", "old-driver", "libcuda", Fail, func(o *Options) {
		o.Env = []string{"LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:relative"}
		o.OpenErr = &gpu.Error{Op: "Open", Device: -1, Detail: "libcuda.so.1 lacks cuCtxGetId", Kind: gpu.ErrMissingSymbol}
		o.NVMLErr = errors.New("function not found")
	}},
	{"ptx-driver", "pcie", "ptx", Fail, func(o *Options) {
		o.Driver = driverOf(10020, 2)
	}},
	{"forced", "forced", "params", Warn, both(nil)},
	{"off-bus", "off-bus", "gpus", Fail, func(o *Options) { o.Driver = driverOf(12020, 1) }},
	{"laptop", "laptop", "gpus", Fail, func(o *Options) {
		o.OpenErr = &gpu.Error{Op: "Open", Device: -1, Detail: "dlopen libcuda.so.1: no such file", Kind: gpu.ErrNoDriver}
	}},
	{"emulator", "laptop", "p2p", Warn, func(o *Options) {
		d := driverOf(13000, 2).(fakeDriver)
		d.info = gpu.DriverInfo{Name: "emu", Emulated: true, Version: 13000, Detail: "one-way, seed 1"}
		o.Driver, o.Machine = d, machineOf(claimed)
		o.Machine.Emulated = true
		o.Machine.Pairs[1][0] = topo.Pair{Access: topo.No}
		o.OpenErr = &gpu.Error{Op: "Open", Device: -1, Detail: "dlopen libcuda.so.1: no such file", Kind: gpu.ErrNoDriver}
	}},
	{"vm", "vm", "bar1", Fail, func(o *Options) { o.Driver = driverOf(12020, 2) }},
	{"limits", "small-limits", "pidfd", Warn, both(measured(good, good))},
	{"environment", "pcie", "env-cuda", Fail, func(o *Options) {
		both(measured(good, good))(o)
		o.Knobs = knobs
		o.Env = []string{
			"CUDA_VISIBLE_DEVICES=0,1,7", "CUDA_LAUNCH_BLOCKING=1", "CUDA_LAUNCH_BLOCKING=0", "CUDA_MODULE_LOADING=lazy", "CUDA_DEVICE_MAX_CONNECTIONS=1",
			"NCCL_P2P_DISABLE=0", "NCCL_P2P_LEVEL=NVLINK", "NCCL_SHM_DISABLE=yes", "NCCL_DEBUG=info",
			"FENCELINE_ALGO=fast\x1b[31m", "FENCELINE_ALGOS=copy", "FENCELINE_P2P_LEVEL=", "fenceline_nothing=1",
		}
	}},
	{"environment-off", "pcie", "", OK, func(o *Options) {
		both(measured(good, good))(o)
		o.Knobs = knobs
		o.Env = []string{"CUDA_LAUNCH_BLOCKING=0", "CUDA_DISABLE_PTX_JIT=0", "NCCL_P2P_DISABLE=0", "NCCL_SHM_DISABLE=0", "FENCELINE_ALGO=copy",
			"CUDA_VISIBLE_DEVICES=1,GPU-8932f937"}
	}},
	{"empty", "empty", "", Unknown, nil},
}
