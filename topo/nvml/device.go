//go:build cgo && linux && !nonvml

package nvml

import (
	"fmt"
	"math/bits"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/fenceline/fenceline/topo"
)

// maxNUMANodes bounds the node set asked for; Linux's default is 1024, but no host near it has GPUs.
const maxNUMANodes = 256

// pciAddr is a device's place on PCI. The zero value is unknown: bus 0 device 0 is a host bridge.
type pciAddr struct{ domain, bus, device uint32 }

func addrOf(p nv.PciInfo) pciAddr { return pciAddr{p.Domain, p.Bus, p.Device} }

// String writes the address as sysfs does.
func (a pciAddr) String() string { return fmt.Sprintf("%04x:%02x:%02x.0", a.domain, a.bus, a.device) }

// link is one active NVLink.
type link struct {
	remote  pciAddr // what it is plugged into
	sw      bool    // may be an NVSwitch, so that the far device cannot be told from the link
	version string  // "4.0"; empty when unknown
}

// describe fills what NVML knows of device i by itself.
func (s *session) describe(i int) {
	d, out := s.devs[i], &s.m.Devices[i]
	out.MIG = topo.Known(d.mig)
	what := fmt.Sprintf("device %d", i)
	// go-nvml picks the newest of these that the library has, so one of them is enough.
	if s.hasAny("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo") {
		if p, ret := d.GetPciInfo(); ret != nv.SUCCESS {
			s.failed("nvmlDeviceGetPciInfo", ret, what)
		} else if d.pci = addrOf(p); d.pci != (pciAddr{}) && out.PCI == "" {
			out.PCI = d.pci.String()
		}
	}
	// The host's node nearest to the device. nvmlDeviceGetNumaNodeId is another thing: the node
	// that the device's own memory forms on coherent machines.
	if s.has("nvmlDeviceGetMemoryAffinity") {
		if set, ret := d.GetMemoryAffinity(maxNUMANodes, nv.AFFINITY_SCOPE_NODE); ret != nv.SUCCESS {
			s.failed("nvmlDeviceGetMemoryAffinity", ret, what)
		} else if n, ok := lowest(set); ok {
			out.NUMA = &n
		}
	}
	if d.mig {
		return
	}
	if s.has("nvmlDeviceGetBAR1MemoryInfo") {
		if b, ret := d.GetBAR1MemoryInfo(); ret != nv.SUCCESS {
			s.failed("nvmlDeviceGetBAR1MemoryInfo", ret, what)
		} else {
			out.BAR1 = b.Bar1Total
		}
	}
	if d.links = s.links(d, what); d.links != nil {
		n := len(d.links)
		out.NVLinks = &n
	}
}

// hasAny is has for functions of which the library needs only one version.
func (s *session) hasAny(symbols ...string) bool {
	for _, sym := range symbols {
		if s.lib.Extensions().LookupSymbol(sym) == nil {
			return true
		}
	}
	return s.has(symbols[0])
}

// lowest is the lowest set bit of a node set.
func lowest(set []uint) (int, bool) {
	for w, word := range set {
		if word != 0 {
			return w*bits.UintSize + bits.TrailingZeros(word), true
		}
	}
	return 0, false
}

// links lists the active NVLinks of d. Nil is unknown; none is an empty list.
func (s *session) links(d *device, what string) []link {
	if !s.has("nvmlDeviceGetNvLinkState") {
		return nil
	}
	pci := s.hasAny("nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo")
	kind := s.has("nvmlDeviceGetNvLinkRemoteDeviceType")
	version := s.has("nvmlDeviceGetNvLinkVersion")
	all := []link{}
	for n := range nv.NVLINK_MAX_LINKS {
		state, ret := d.GetNvLinkState(n)
		if ret == nv.ERROR_INVALID_ARGUMENT {
			break // past the last link this GPU has
		}
		if ret == nv.ERROR_NOT_SUPPORTED || ret == nv.SUCCESS && state != nv.FEATURE_ENABLED {
			continue
		}
		if ret != nv.SUCCESS {
			s.failed("nvmlDeviceGetNvLinkState", ret, fmt.Sprintf("%s, link %d", what, n))
			return nil // a partial count would be taken for the whole
		}
		l := link{sw: true}
		if pci {
			if p, r := d.GetNvLinkRemotePciInfo(n); r == nv.SUCCESS {
				l.remote = addrOf(p)
			} else {
				s.failed("nvmlDeviceGetNvLinkRemotePciInfo", r, fmt.Sprintf("%s, link %d", what, n))
			}
		}
		if kind {
			t, r := d.GetNvLinkRemoteDeviceType(n)
			l.sw = r != nv.SUCCESS || t == nv.NVLINK_DEVICE_TYPE_SWITCH || t == nv.NVLINK_DEVICE_TYPE_UNKNOWN
		}
		if version {
			if v, r := d.GetNvLinkVersion(n); r == nv.SUCCESS {
				l.version = linkVersions[nv.NvlinkVersion(v)]
			} else {
				s.failed("nvmlDeviceGetNvLinkVersion", r, fmt.Sprintf("%s, link %d", what, n))
			}
		}
		all = append(all, l)
	}
	return all
}

// linkVersions are NVML's numbers of NVLink versions, which are not the versions.
var linkVersions = map[nv.NvlinkVersion]string{
	nv.NVLINK_VERSION_1_0: "1.0", nv.NVLINK_VERSION_2_0: "2.0", nv.NVLINK_VERSION_2_2: "2.2", nv.NVLINK_VERSION_3_0: "3.0",
	nv.NVLINK_VERSION_3_1: "3.1", nv.NVLINK_VERSION_4_0: "4.0", nv.NVLINK_VERSION_5_0: "5.0", nv.NVLINK_VERSION_6_0: "6.0",
}

// versionOf is the version of all links, empty when they differ or one is unknown.
func versionOf(links []link) string {
	for _, l := range links {
		if l.version != links[0].version {
			return ""
		}
	}
	if len(links) == 0 {
		return ""
	}
	return links[0].version
}

// slice says which part of its GPU a MIG instance is. Nil is unknown.
func (s *session) slice(parent, inst nv.Device, i int) *topo.Slice {
	if !s.has("nvmlDeviceGetGpuInstanceId") || !s.has("nvmlDeviceGetComputeInstanceId") || !s.has("nvmlDeviceGetUUID") {
		return nil
	}
	what := fmt.Sprintf("device %d", i)
	uuid, ret := parent.GetUUID()
	if ret != nv.SUCCESS {
		s.failed("nvmlDeviceGetUUID", ret, what)
		return nil
	}
	g, ret := inst.GetGpuInstanceId()
	if ret != nv.SUCCESS {
		s.failed("nvmlDeviceGetGpuInstanceId", ret, what)
		return nil
	}
	c, ret := inst.GetComputeInstanceId()
	if ret != nv.SUCCESS {
		s.failed("nvmlDeviceGetComputeInstanceId", ret, what)
		return nil
	}
	return &topo.Slice{GPU: uuid, GPUInstance: g, ComputeInstance: c}
}

// pair fills what NVML knows of device i reaching device j.
func (s *session) pair(i, j int) {
	a, b, p := s.devs[i], s.devs[j], &s.m.Pairs[i][j]
	if a.mig || b.mig {
		return // NVML answers for whole GPUs only
	}
	p.ReadCode = s.status(i, j, nv.P2P_CAPS_INDEX_READ)
	p.WriteCode = s.status(i, j, nv.P2P_CAPS_INDEX_WRITE)
	p.AtomicsCode = s.status(i, j, nv.P2P_CAPS_INDEX_ATOMICS)
	p.NVLinkCode = s.status(i, j, nv.P2P_CAPS_INDEX_NVLINK)
	p.PropertyCode = s.status(i, j, nv.P2P_CAPS_INDEX_PROP)
	p.Read, p.Write = p.ReadCode.Tri(), p.WriteCode.Tri()
	p.NativeAtomics = p.NativeAtomics.And(p.AtomicsCode.Tri())
	p.Link = s.path(i, j)
	if n, _ := p.NVLinks(); n > 0 {
		p.NVLinkVersion = versionOf(a.links)
	}
}

// status asks one capability of a pair. Empty when NVML cannot be asked.
func (s *session) status(i, j int, index nv.GpuP2PCapsIndex) topo.Code {
	if !s.has("nvmlDeviceGetP2PStatus") {
		return ""
	}
	st, ret := s.devs[i].GetP2PStatus(s.devs[j].Device, index)
	if ret != nv.SUCCESS {
		s.failed("nvmlDeviceGetP2PStatus", ret, fmt.Sprintf("device %d to %d, capability %d", i, j, index))
		return topo.CodeU
	}
	return codeOf(st)
}

func codeOf(st nv.GpuP2PStatus) topo.Code {
	switch st {
	case nv.P2P_STATUS_OK:
		return topo.CodeOK
	case nv.P2P_STATUS_CHIPSET_NOT_SUPPORTED:
		return topo.CodeCNS
	case nv.P2P_STATUS_GPU_NOT_SUPPORTED:
		return topo.CodeGNS
	case nv.P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED:
		return topo.CodeTNS
	case nv.P2P_STATUS_DISABLED_BY_REGKEY:
		return topo.CodeDR
	case nv.P2P_STATUS_NOT_SUPPORTED:
		return topo.CodeNS
	}
	return topo.CodeU
}

// path names the way from i to j: NVLinks between the two, NVLinks of both into switches, else PCI.
// An active link alone proves nothing of a pair: it may lead to another device, or into another
// partition of the switches, so behind switches NVML's word on the pair decides.
func (s *session) path(i, j int) string {
	a, b := s.devs[i], s.devs[j]
	if a.links == nil || b.links == nil {
		return s.pciPath(i, j, true)
	}
	direct, swA := 0, 0
	for _, l := range a.links {
		switch {
		case l.remote != (pciAddr{}) && l.remote == b.pci:
			direct++
		case l.sw:
			swA++
		}
	}
	swB := 0
	for _, l := range b.links {
		if l.sw {
			swB++
		}
	}
	if direct > 0 {
		return fmt.Sprintf("NV%d", direct)
	}
	if n := min(swA, swB); n > 0 {
		switch s.status(i, j, nv.P2P_CAPS_INDEX_NVLINK).Tri() {
		case topo.Yes:
			return fmt.Sprintf("NV%d", n)
		case topo.Unknown:
			return ""
		}
	}
	return s.pciPath(i, j, false)
}

// pciPath is the PCI part of path. Where NVLinks could not be counted it answers only for pairs that NVML says
// have none.
func (s *session) pciPath(i, j int, uncounted bool) string {
	if uncounted && s.status(i, j, nv.P2P_CAPS_INDEX_NVLINK).Tri() != topo.No {
		return ""
	}
	if !s.has("nvmlDeviceGetTopologyCommonAncestor") {
		return ""
	}
	level, ret := s.devs[i].GetTopologyCommonAncestor(s.devs[j].Device)
	if ret != nv.SUCCESS {
		s.failed("nvmlDeviceGetTopologyCommonAncestor", ret, fmt.Sprintf("device %d to %d", i, j))
		return ""
	}
	switch level {
	case nv.TOPOLOGY_INTERNAL, nv.TOPOLOGY_SINGLE: // two GPUs of one board share its bridge
		return "PIX"
	case nv.TOPOLOGY_MULTIPLE:
		return "PXB"
	case nv.TOPOLOGY_HOSTBRIDGE:
		return "PHB"
	case nv.TOPOLOGY_NODE:
		return "NODE"
	case nv.TOPOLOGY_SYSTEM:
		return "SYS"
	}
	return ""
}
