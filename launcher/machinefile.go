package launcher

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/topo"
)

// filePrefix before a path makes an emulated machine of the topology in that file.
const filePrefix = "file:"

// readMachine reads a machine record in JSON, as topo writes it, or the output of `nvidia-smi topo -m`.
func readMachine(path string) (*emu.Machine, error) {
	m, err := topo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return emulate(filepath.Base(path), m), nil
}

// emulate makes an emulated machine that claims and does what a topology says. What the topology leaves open
// is taken as drivers usually have it: access over NVLink and inside a NUMA node, none across sockets; native
// atomics over NVLink. A pair that can write and not read gets reads that never complete, and one that can read and
// not write loses writes, for that is how such machines fail.
func emulate(name string, m *topo.Machine) *emu.Machine {
	n := len(m.Devices)
	em := &emu.Machine{Name: name, Description: fmt.Sprintf("the topology of %d devices in a file", n),
		Devices: make([]emu.Device, n), Links: make([][]emu.Link, n)}
	ranks := perfRanks(m)
	for i, d := range m.Devices {
		em.Devices[i] = emu.Device{SMs: d.SMs, PCI: d.PCI, NUMA: d.NUMA, MIG: d.MIG == topo.Yes}
		if emu.CanBe(d.SM) {
			em.Devices[i].SM = d.SM
		}
		em.Links[i] = make([]emu.Link, n)
		for j := range m.Devices {
			if i != j {
				p := m.Pairs[i][j]
				if p.Access == topo.Unknown { // no driver has ranked it
					p.PerfRank = ranks[p.Link]
				}
				em.Links[i][j] = emulatePair(p)
			}
		}
	}
	return em
}

func emulatePair(p topo.Pair) emu.Link {
	nvlink := strings.HasPrefix(p.Link, "NV")
	access := p.Access
	if access == topo.Unknown {
		switch {
		case p.Read == topo.Yes || p.Write == topo.Yes:
			access = topo.Yes
		case p.Read == topo.No || p.Write == topo.No:
			access = topo.No
		default:
			access = topo.Known(nvlink || p.Link == "PIX" || p.Link == "PXB" || p.Link == "PHB" || p.Link == "NODE")
		}
	}
	if access != topo.Yes {
		return emu.Absent(p.Link)
	}
	l := emu.Link{Claim: gpu.P2PInfo{Access: true, PerfRank: p.PerfRank, Link: p.Link}}
	l.Claim.NativeAtomics = p.NativeAtomics == topo.Yes || p.NativeAtomics == topo.Unknown && nvlink
	if p.Read == topo.No {
		l.Loads = emu.Stalls
	}
	if p.Write == topo.No {
		l.Stores = emu.Vanishes
	}
	return l
}

// perfRanks ranks the kinds of link that a machine has, the fastest 0.
func perfRanks(m *topo.Machine) map[string]int {
	ranks := map[string]int{}
	for i, row := range m.Pairs {
		for j, p := range row {
			if i != j {
				ranks[p.Link] = 0
			}
		}
	}
	for link := range ranks {
		for other := range ranks {
			if slowness(other) < slowness(link) {
				ranks[link]++
			}
		}
	}
	return ranks
}

// slowness orders links from the fastest up: NVLinks by their number, then the paths over PCIe, then the unknown.
func slowness(link string) int {
	var n int
	if _, err := fmt.Sscanf(link, "NV%d", &n); err == nil {
		return -n
	}
	for i, path := range []string{"PIX", "PXB", "PHB", "NODE", "SYS"} {
		if link == path {
			return 1 + i
		}
	}
	return 100
}
