//go:build cgo && linux && !nonvml

package nvml

import (
	"errors"
	"fmt"
	"testing"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/topo"
)

const ok = nv.SUCCESS

// dgx is go-nvml's mock DGX A100 with what the mock leaves out: PCI addresses, NUMA, 12 links each into
// the switches, and peer capabilities. Tests change it from there.
func dgx() *server.Server {
	s := dgxa100.New()
	for i := range s.Devices {
		d := s.Devices[i].(*server.Device)
		d.GetPciInfoFunc = func() (nv.PciInfo, nv.Return) { return nv.PciInfo{Bus: uint32(0x10 + i)}, ok }
		d.GetMemoryAffinityFunc = func(n int, scope nv.AffinityScope) ([]uint, nv.Return) {
			set := make([]uint, 4)
			set[i/4*2] = 1 << 3 // nodes 3 and 131: the second word counts too
			return set, ok
		}
		d.GetNvLinkStateFunc = func(n int) (nv.EnableState, nv.Return) {
			if n >= 12 {
				return 0, nv.ERROR_INVALID_ARGUMENT
			}
			return nv.FEATURE_ENABLED, ok
		}
		d.GetNvLinkRemotePciInfoFunc = func(n int) (nv.PciInfo, nv.Return) { return nv.PciInfo{Bus: uint32(0xc0 + n)}, ok }
		d.GetNvLinkRemoteDeviceTypeFunc = func(int) (nv.IntNvLinkDeviceType, nv.Return) { return nv.NVLINK_DEVICE_TYPE_SWITCH, ok }
		d.GetNvLinkVersionFunc = func(int) (uint32, nv.Return) { return uint32(nv.NVLINK_VERSION_3_0), ok }
		d.GetBAR1MemoryInfoFunc = func() (nv.BAR1Memory, nv.Return) { return nv.BAR1Memory{Bar1Total: 64 << 30}, ok }
		d.GetP2PStatusFunc = func(nv.Device, nv.GpuP2PCapsIndex) (nv.GpuP2PStatus, nv.Return) { return nv.P2P_STATUS_OK, ok }
		d.GetTopologyCommonAncestorFunc = func(nv.Device) (nv.GpuTopologyLevel, nv.Return) { return nv.TOPOLOGY_SYSTEM, ok }
	}
	return s
}

func dev(s *server.Server, i int) *server.Device { return s.Devices[i].(*server.Device) }

// machineOf is the machine as CUDA would see it with CUDA_VISIBLE_DEVICES naming these NVML indices in this order.
func machineOf(s *server.Server, indices ...int) *topo.Machine {
	m := &topo.Machine{Version: topo.FormatVersion, Driver: topo.Driver{Name: "cuda"}}
	for o, i := range indices {
		m.Devices = append(m.Devices, topo.Device{Ordinal: o, UUID: dev(s, i).UUID, Name: "A100"})
		row := make([]topo.Pair, len(indices))
		for j := range row {
			if j != o {
				row[j] = topo.Pair{Access: topo.Yes, NativeAtomics: topo.Yes}
			}
		}
		m.Pairs = append(m.Pairs, row)
	}
	return m
}

func TestAugmentDGXA100(t *testing.T) {
	s := dgx()
	m := machineOf(s, 0, 1, 2, 3, 4, 5, 6, 7)
	require.NoError(t, augment(s, m))
	require.Equal(t, "550.54.15", m.Driver.Release)
	require.Empty(t, m.Notes)
	for i, d := range m.Devices {
		require.Equal(t, fmt.Sprintf("0000:%02x:00.0", 0x10+i), d.PCI)
		require.Equal(t, 3+i/4*128, *d.NUMA)
		require.Equal(t, 12, *d.NVLinks)
		require.Equal(t, uint64(64<<30), d.BAR1)
		require.Equal(t, topo.No, d.MIG)
		for j, p := range m.Pairs[i] {
			if i == j {
				require.Equal(t, topo.Pair{}, p)
				continue
			}
			require.Equal(t, topo.Pair{Access: topo.Yes, Read: topo.Yes, Write: topo.Yes, NativeAtomics: topo.Yes,
				ReadCode: "OK", WriteCode: "OK", AtomicsCode: "OK", NVLinkCode: "OK", PropertyCode: "OK", Link: "NV12", NVLinkVersion: "3.0"}, p, "%d to %d", i, j)
		}
	}
	require.Len(t, s.InitCalls(), 1)
	require.Len(t, s.ShutdownCalls(), 1)
}

// With CUDA_VISIBLE_DEVICES=6,1 ordinal 0 is NVML's device 6. A match by index would fill it with device 0's.
func TestAugmentMatchesByUUID(t *testing.T) {
	s := dgx()
	dev(s, 6).GetP2PStatusFunc = func(d nv.Device, index nv.GpuP2PCapsIndex) (nv.GpuP2PStatus, nv.Return) {
		require.Same(t, s.Devices[1], d)
		if index == nv.P2P_CAPS_INDEX_READ {
			return nv.P2P_STATUS_CHIPSET_NOT_SUPPORTED, ok
		}
		return nv.P2P_STATUS_OK, ok
	}
	m := machineOf(s, 6, 1)
	m.Devices[1].PCI = "0001:99:00.0" // what the driver said stays
	require.NoError(t, augment(s, m))
	require.Equal(t, "0000:16:00.0", m.Devices[0].PCI)
	require.Equal(t, "0001:99:00.0", m.Devices[1].PCI)
	require.Equal(t, topo.No, m.Pairs[0][1].CanRead())
	require.Equal(t, topo.Yes, m.Pairs[0][1].CanWrite())
	require.Equal(t, topo.CodeCNS, m.Pairs[0][1].ReadCode)
	require.Equal(t, topo.Yes, m.Pairs[1][0].CanRead())
	require.Empty(t, s.DeviceGetHandleByIndexCalls())
}

func TestAugmentNoMatch(t *testing.T) {
	s := dgx()
	m := machineOf(s, 0, 1, 2)
	m.Devices[1].UUID = "GPU-00000000-0000-0000-0000-000000000000"
	err := augment(s, m)
	require.ErrorIs(t, err, ErrNoMatch)
	require.ErrorContains(t, err, "device 1, GPU-00000000")
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, int(nv.ERROR_INVALID_ARGUMENT), e.Code)
	require.Equal(t, "NV12", m.Pairs[0][2].Link, "the others are filled")
	require.Equal(t, topo.Pair{Access: topo.Yes, NativeAtomics: topo.Yes}, m.Pairs[0][1])
	require.Nil(t, m.Devices[1].NUMA)

	s.DeviceGetHandleByUUIDFunc = func(string) (nv.Device, nv.Return) { return nil, nv.ERROR_GPU_IS_LOST }
	err = augment(s, machineOf(s, 0))
	require.ErrorIs(t, err, ErrQuery)
	require.NotErrorIs(t, err, ErrNoMatch)
}

func TestAugmentMIG(t *testing.T) {
	s := dgx()
	byUUID := s.DeviceGetHandleByUUIDFunc
	s.DeviceGetHandleByUUIDFunc = func(uuid string) (nv.Device, nv.Return) {
		if uuid == "MIG-11111111-2222-3333-4444-555555555555" {
			return &mock.Device{GetDeviceHandleFromMigDeviceHandleFunc: func() (nv.Device, nv.Return) { return s.Devices[5], ok },
				GetGpuInstanceIdFunc:     func() (int, nv.Return) { return 3, ok },
				GetComputeInstanceIdFunc: func() (int, nv.Return) { return 1, ok }}, ok
		}
		return byUUID(uuid)
	}
	m := machineOf(s, 0, 5)
	m.Devices[1].UUID = "GPU-11111111-2222-3333-4444-555555555555" // as the CUDA driver's 16 bytes are written
	require.NoError(t, augment(s, m))
	require.Equal(t, topo.Yes, m.Devices[1].MIG)
	require.Equal(t, topo.No, m.Devices[0].MIG)
	require.Equal(t, "0000:15:00.0", m.Devices[1].PCI, "of the GPU that holds the instance")
	require.Nil(t, m.Devices[1].NVLinks)
	require.Zero(t, m.Devices[1].BAR1)
	require.Equal(t, &topo.Slice{GPU: dev(s, 5).UUID, GPUInstance: 3, ComputeInstance: 1}, m.Devices[1].Slice)
	seen, why := topo.Visible("MIG-"+dev(s, 5).UUID+"/3/1", m.Devices)
	require.Equal(t, []int{1}, seen, why)
	require.Nil(t, m.Devices[0].Slice)
	require.Equal(t, topo.Pair{Access: topo.Yes, NativeAtomics: topo.Yes}, m.Pairs[0][1], "NVML has no say on MIG pairs")
}

func TestLinks(t *testing.T) {
	plugged := func(s *server.Server, i int, kind nv.IntNvLinkDeviceType, bus ...uint32) {
		dev(s, i).GetNvLinkStateFunc = func(n int) (nv.EnableState, nv.Return) {
			switch {
			case n >= 6:
				return 0, nv.ERROR_INVALID_ARGUMENT
			case n >= len(bus):
				return 0, nv.ERROR_NOT_SUPPORTED
			case bus[n] == 0:
				return nv.FEATURE_DISABLED, ok
			}
			return nv.FEATURE_ENABLED, ok
		}
		dev(s, i).GetNvLinkRemotePciInfoFunc = func(n int) (nv.PciInfo, nv.Return) { return nv.PciInfo{Bus: bus[n]}, ok }
		dev(s, i).GetNvLinkRemoteDeviceTypeFunc = func(int) (nv.IntNvLinkDeviceType, nv.Return) { return kind, ok }
	}
	status := func(s *server.Server, st nv.GpuP2PStatus, ret nv.Return) {
		for i := range s.Devices {
			dev(s, i).GetP2PStatusFunc = func(_ nv.Device, index nv.GpuP2PCapsIndex) (nv.GpuP2PStatus, nv.Return) {
				if index == nv.P2P_CAPS_INDEX_NVLINK {
					return st, ret
				}
				return nv.P2P_STATUS_OK, ok
			}
		}
	}
	level := func(l nv.GpuTopologyLevel) func(*server.Server) {
		return func(s *server.Server) {
			plugged(s, 0, 0)
			plugged(s, 1, 0)
			dev(s, 0).GetTopologyCommonAncestorFunc = func(nv.Device) (nv.GpuTopologyLevel, nv.Return) { return l, ok }
		}
	}
	for _, c := range []struct {
		name   string
		change func(*server.Server)
		want   string
		count  int // NVLinks of device 0, -1 for unknown
	}{
		{"switch", func(*server.Server) {}, "NV12", 12},
		{"switch, far side has fewer links up", func(s *server.Server) { plugged(s, 1, nv.NVLINK_DEVICE_TYPE_SWITCH, 0xc0, 0, 0xc1) }, "NV2", 12},
		{"switch, but other partitions", func(s *server.Server) { status(s, nv.P2P_STATUS_NOT_SUPPORTED, ok) }, "SYS", 12},
		{"switch, pair unknown", func(s *server.Server) { status(s, nv.P2P_STATUS_UNKNOWN, ok) }, "", 12},
		{"direct, two of four to the peer", func(s *server.Server) {
			plugged(s, 0, nv.NVLINK_DEVICE_TYPE_GPU, 0x11, 0x12, 0x11, 0x13)
		}, "NV2", 4},
		{"direct, all to others", func(s *server.Server) { plugged(s, 0, nv.NVLINK_DEVICE_TYPE_GPU, 0x12, 0x13) }, "SYS", 2},
		{"direct, the link to the peer is down", func(s *server.Server) { plugged(s, 0, nv.NVLINK_DEVICE_TYPE_GPU, 0, 0x13) }, "SYS", 1},
		{"remote kind unknown, remote is the peer", func(s *server.Server) { plugged(s, 0, nv.NVLINK_DEVICE_TYPE_UNKNOWN, 0x11, 0xc0) }, "NV1", 2},
		{"remote kind unknown, pair confirmed", func(s *server.Server) { plugged(s, 0, nv.NVLINK_DEVICE_TYPE_UNKNOWN, 0xc0, 0xc1) }, "NV2", 2},
		{"same board", level(nv.TOPOLOGY_INTERNAL), "PIX", 0},
		{"one switch", level(nv.TOPOLOGY_SINGLE), "PIX", 0},
		{"several switches", level(nv.TOPOLOGY_MULTIPLE), "PXB", 0},
		{"host bridge", level(nv.TOPOLOGY_HOSTBRIDGE), "PHB", 0},
		{"node", level(nv.TOPOLOGY_NODE), "NODE", 0},
		{"system", level(nv.TOPOLOGY_SYSTEM), "SYS", 0},
		{"a level of a later driver", level(60), "", 0},
		{"link count failed", func(s *server.Server) {
			dev(s, 0).GetNvLinkStateFunc = func(n int) (nv.EnableState, nv.Return) {
				if n == 3 {
					return 0, nv.ERROR_GPU_IS_LOST
				}
				return nv.FEATURE_ENABLED, ok
			}
		}, "", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := dgx()
			c.change(s)
			m := machineOf(s, 0, 1)
			require.NoError(t, augment(s, m))
			require.Equal(t, c.want, m.Pairs[0][1].Link)
			if c.count < 0 {
				require.Nil(t, m.Devices[0].NVLinks)
				require.NotEmpty(t, m.Notes)
				return
			}
			require.Equal(t, c.count, *m.Devices[0].NVLinks)
		})
	}
}

func TestLinkVersions(t *testing.T) {
	for name, c := range map[string]struct {
		version func(n int) (uint32, nv.Return)
		want    string
	}{
		"4.0":     {func(int) (uint32, nv.Return) { return uint32(nv.NVLINK_VERSION_4_0), ok }, "4.0"},
		"2.2":     {func(int) (uint32, nv.Return) { return uint32(nv.NVLINK_VERSION_2_2), ok }, "2.2"},
		"later":   {func(int) (uint32, nv.Return) { return 99, ok }, ""},
		"mixed":   {func(n int) (uint32, nv.Return) { return uint32(nv.NVLINK_VERSION_3_0) + uint32(n%2), ok }, ""},
		"refused": {func(int) (uint32, nv.Return) { return 0, nv.ERROR_NOT_SUPPORTED }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := dgx()
			dev(s, 0).GetNvLinkVersionFunc = c.version
			m := machineOf(s, 0, 1)
			require.NoError(t, augment(s, m))
			require.Equal(t, c.want, m.Pairs[0][1].NVLinkVersion)
			require.Equal(t, "NV12", m.Pairs[0][1].Link)
		})
	}
}

func TestStatusCodes(t *testing.T) {
	for st, want := range map[nv.GpuP2PStatus]topo.Code{
		nv.P2P_STATUS_OK: "OK", nv.P2P_STATUS_CHIPSET_NOT_SUPPORTED: "CNS", nv.P2P_STATUS_GPU_NOT_SUPPORTED: "GNS",
		nv.P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: "TNS", nv.P2P_STATUS_DISABLED_BY_REGKEY: "DR",
		nv.P2P_STATUS_NOT_SUPPORTED: "NS", nv.P2P_STATUS_UNKNOWN: "U", 99: "U",
	} {
		s := dgx()
		dev(s, 0).GetP2PStatusFunc = func(_ nv.Device, index nv.GpuP2PCapsIndex) (nv.GpuP2PStatus, nv.Return) {
			if index == nv.P2P_CAPS_INDEX_ATOMICS {
				return st, ok
			}
			return nv.P2P_STATUS_OK, ok
		}
		m := machineOf(s, 0, 1)
		require.NoError(t, augment(s, m))
		require.Equal(t, want, m.Pairs[0][1].AtomicsCode, "status %d", st)
		// The driver said yes; NVML's no wins, its ignorance does not.
		require.Equal(t, want.Tri() != topo.No, m.Pairs[0][1].NativeAtomics == topo.Yes, "status %d", st)
	}

	s := dgx()
	dev(s, 0).GetP2PStatusFunc = func(nv.Device, nv.GpuP2PCapsIndex) (nv.GpuP2PStatus, nv.Return) { return 0, nv.ERROR_UNKNOWN }
	m := machineOf(s, 0, 1)
	require.NoError(t, augment(s, m))
	require.Equal(t, topo.Unknown, m.Pairs[0][1].Read, "a failed query is not a no")
	require.Equal(t, topo.CodeU, m.Pairs[0][1].ReadCode)
	require.NotEmpty(t, m.Notes)
}

// The mock panics on a function that has not been set, so leaving them unset shows that a function
// whose symbol is missing is never called.
func TestMissingSymbols(t *testing.T) {
	s := dgxa100.New()
	for i := range s.Devices {
		dev(s, i).GetPciInfoFunc = nil
	}
	s.SystemGetDriverVersionFunc = nil
	s.LookupSymbolFunc = func(name string) error { return errors.New("undefined symbol: " + name) }
	m := machineOf(s, 0, 1)
	require.NoError(t, augment(s, m))
	require.Equal(t, topo.Pair{Access: topo.Yes, NativeAtomics: topo.Yes}, m.Pairs[0][1])
	require.Nil(t, m.Devices[0].NVLinks)
	require.Contains(t, m.Notes, "NVML lacks nvmlDeviceGetP2PStatus: a newer driver has it")
	require.Len(t, m.Notes, 6, "each is noted once: %q", m.Notes)
}

// An old library has other versions of some functions; any one of them will do.
func TestOlderSymbolVersions(t *testing.T) {
	s := dgx()
	s.LookupSymbolFunc = func(name string) error {
		switch name {
		case "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemoteDeviceType":
			return errors.New("undefined symbol: " + name)
		}
		return nil
	}
	m := machineOf(s, 0, 1)
	require.NoError(t, augment(s, m))
	require.Equal(t, "0000:10:00.0", m.Devices[0].PCI)
	require.Equal(t, "NV12", m.Pairs[0][1].Link)
}

func TestUnavailable(t *testing.T) {
	s := dgx()
	m := machineOf(s, 0, 1)
	before := *m
	for ret, remedy := range map[nv.Return]string{
		nv.ERROR_LIBRARY_NOT_FOUND:       "install the NVIDIA driver",
		nv.ERROR_DRIVER_NOT_LOADED:       "modprobe",
		nv.ERROR_LIB_RM_VERSION_MISMATCH: "reboot",
		nv.ERROR_NO_PERMISSION:           "/dev/nvidiactl",
		nv.ERROR_UNKNOWN:                 "",
	} {
		s.InitFunc = func() nv.Return { return ret }
		err := augment(s, m)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, remedy)
		require.Equal(t, before, *m)
	}
	require.Empty(t, s.ShutdownCalls())

	m.Emulated = true
	require.ErrorIs(t, Augment(m), ErrUnavailable)
	require.ErrorIs(t, augment(s, m), ErrUnavailable)
}
