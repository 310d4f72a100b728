// Package topo models the machine: its devices and, for each ordered pair of them, the
// link and what peer access it claims.
//
// FromDriver fills a Machine from the driver seam (real or emulated); package topo/nvml adds
// what NVML knows. Both only report claims. An answer nobody gave stays Unknown, which is
// never the same as No.
package topo

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/internal/gpu"
)

// Sentinels. Errors of this package match one of them, or carry a driver's own error.
var (
	ErrNoDevices = errors.New("no devices")           // the driver has none
	ErrFormat    = errors.New("not a machine record") // JSON that is cut off, foreign or inconsistent
)

// FormatVersion is the version of the JSON form that this package writes and reads.
const FormatVersion = 1

// Machine is one host with its devices, as one process sees them.
type Machine struct {
	Version  int      `json:"version"` // FormatVersion
	Driver   Driver   `json:"driver"`
	Emulated bool     `json:"emulated"` // true when no GPU executes anything
	Devices  []Device `json:"devices"`  // Devices[i].Ordinal == i
	// Pairs[i][j] is device i reaching the memory of device j. The diagonal is zero and means nothing.
	Pairs [][]Pair `json:"pairs"`
	// From pasted text alone: the NICs, which affinity columns the matrix had, and whether it wrote SOC for SYS, as
	// nvidia-smi once did.
	NICs    []NIC    `json:"nics,omitempty"`
	Columns []string `json:"columns,omitempty"`
	SOC     bool     `json:"soc,omitempty"`
	Notes   []string `json:"notes,omitempty"` // what a source could not tell, in words
}

// Driver says what the machine was read from.
type Driver struct {
	Name    string `json:"name"`              // "cuda" or "emu"
	API     int    `json:"api"`               // CUDA driver API version, 1000*major + 10*minor
	Detail  string `json:"detail,omitempty"`  // library path, or the emulated machine's name
	Release string `json:"release,omitempty"` // NVIDIA driver release, "580.95.05"; from NVML
}

// Device is one GPU, or one MIG instance.
type Device struct {
	Ordinal  int    `json:"ordinal"` // the driver's number for it in this process, not NVML's index
	UUID     string `json:"uuid"`    // "GPU-…" as nvidia-smi writes it
	Name     string `json:"name"`
	PCI      string `json:"pci,omitempty"` // as sysfs writes it, "0000:1b:00.0"; empty when unknown
	SM       int    `json:"sm"`            // compute capability, 90 for sm_90
	SMs      int    `json:"sms"`
	TotalMem uint64 `json:"total_mem"`         // bytes
	BAR1     uint64 `json:"bar1,omitempty"`    // bytes of memory that peers and host can map at once; 0 when unknown
	NUMA     *int   `json:"numa,omitempty"`    // host NUMA node nearest to the device; nil when unknown
	MIG      Tri    `json:"mig"`               // whether it is a MIG instance, which has no peer access
	Slice    *Slice `json:"slice,omitempty"`   // of a MIG instance, where it is known
	NVLinks  *int   `json:"nvlinks,omitempty"` // active NVLinks of the device; nil when unknown
	// Affinity is nvidia-smi's own words, from pasted text alone.
	Affinity *Affinity `json:"affinity,omitempty"`
}

// Slice says which part of which GPU a MIG instance is.
type Slice struct {
	GPU             string `json:"gpu"` // UUID of the whole GPU
	GPUInstance     int    `json:"gpu_instance"`
	ComputeInstance int    `json:"compute_instance"`
}

// Pair is what is claimed of one device reaching one other's memory. The direction counts.
type Pair struct {
	Access        Tri  `json:"access"`         // the CUDA driver's answer to "can access peer"
	Read          Tri  `json:"read"`           // NVML's answer, Unknown without it
	Write         Tri  `json:"write"`          // NVML's answer, Unknown without it
	NativeAtomics Tri  `json:"native_atomics"` // either source's; No wins
	PerfRank      int  `json:"perf_rank"`      // the driver's; lower is faster, 0 is best
	ReadCode      Code `json:"read_code,omitempty"`
	WriteCode     Code `json:"write_code,omitempty"`
	AtomicsCode   Code `json:"atomics_code,omitempty"`
	// NVLinkCode and PropertyCode are NVML's answers on NVLink, and on proprietary peer access through a GPU's BAR1.
	NVLinkCode   Code `json:"nvlink_code,omitempty"`
	PropertyCode Code `json:"property_code,omitempty"`
	// Link is the path in nvidia-smi's words: "NV18", "PIX", "PXB", "PHB", "NODE", "SYS";
	// empty when unknown.
	Link          string `json:"link,omitempty"`
	NVLinkVersion string `json:"nvlink_version,omitempty"` // of the NVLinks in Link, "4.0"; empty when unknown or none
}

// NVLinks is how many NVLinks join the pair, and whether that is known.
func (p Pair) NVLinks() (n int, known bool) {
	if _, err := fmt.Sscanf(p.Link, "NV%d", &n); err == nil {
		return n, true
	}
	return 0, p.Link != ""
}

// Property is what NVML says of proprietary peer access: the kind that goes through the BAR1 window.
func (p Pair) Property() Tri { return p.PropertyCode.Tri() }

// CanRead is whether all that is known of the pair lets the device read its peer: No when any
// source says no, Yes when one says yes and none says no.
func (p Pair) CanRead() Tri { return p.Access.And(p.Read) }

// CanWrite is CanRead for writing.
func (p Pair) CanWrite() Tri { return p.Access.And(p.Write) }

// FromDriver reads the devices of d and what it claims of every ordered pair. It changes no
// state of the driver: peer access is asked about, not enabled. The error is ErrNoDevices, or
// the driver's own with the device it failed on.
func FromDriver(d gpu.Driver) (*Machine, error) {
	info := d.Info()
	n := d.DeviceCount()
	if n <= 0 {
		return nil, fmt.Errorf("driver %s: %w: check CUDA_VISIBLE_DEVICES, or open the emulator", info.Name, ErrNoDevices)
	}
	m := &Machine{
		Version:  FormatVersion,
		Driver:   Driver{Name: info.Name, API: info.Version, Detail: info.Detail},
		Emulated: info.Emulated,
		Devices:  make([]Device, n),
		Pairs:    make([][]Pair, n),
	}
	for i := range m.Devices {
		di, err := d.DeviceInfo(i)
		if err != nil {
			return nil, fmt.Errorf("describe device %d: %w", i, err)
		}
		m.Devices[i] = Device{
			Ordinal: i, UUID: gpu.UUIDString(di.UUID), Name: di.Name, PCI: di.PCI,
			SM: di.SM(), SMs: di.SMs, TotalMem: di.TotalMem, NUMA: di.NUMA,
		}
		if di.MIG { // false may mean that the driver does not know
			m.Devices[i].MIG = Yes
		}
	}
	for i := range m.Pairs {
		m.Pairs[i] = make([]Pair, n)
		for j := range m.Pairs[i] {
			if i == j {
				continue
			}
			p, err := d.P2P(i, j)
			if err != nil {
				return nil, fmt.Errorf("ask whether device %d reaches device %d: %w", i, j, err)
			}
			m.Pairs[i][j] = Pair{Access: Known(p.Access), NativeAtomics: Known(p.NativeAtomics), PerfRank: p.PerfRank, Link: p.Link}
		}
	}
	return m, nil
}

// Device finds a device by UUID, as nvidia-smi writes it. Ordinals differ between processes
// and between CUDA and NVML, UUIDs do not.
func (m *Machine) Device(uuid string) (*Device, bool) {
	i := slices.IndexFunc(m.Devices, func(d Device) bool { return d.UUID == uuid })
	if i < 0 {
		return nil, false
	}
	return &m.Devices[i], true
}

// Note records what a source could not tell, once.
func (m *Machine) Note(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if !slices.Contains(m.Notes, s) {
		m.Notes = append(m.Notes, s)
	}
}
