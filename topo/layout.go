package topo

import (
	"slices"
	"strconv"
)

// socket is the devices of one NUMA node, or of as much as the paths tell of one; switches are its PCIe switches.
type socket struct {
	name     string
	switches []group
	class    Class // the farthest path between switches, ClassUnknown when none is known
}

// group is devices, and NICs, that reach each other without a host bridge.
type group struct {
	class   Class // the farthest path inside; ClassSelf of one device alone
	devices []int // those of one bridge side by side
	nics    []int
	bridges [][]int // devices on one bridge (PIX), where it is not all of them
}

// sockets sorts the devices by socket and switch. NVLink hides how two devices are joined by PCIe; NICs beside them
// tell it: two devices on the same switch as one NIC are on the same switch.
func (m *Machine) sockets() []socket {
	n, all := len(m.Devices), len(m.Devices)+len(m.NICs)
	near := newSets(all)   // joined without a host bridge
	bridge := newSets(all) // by one bridge
	path := func(i, j int) Class {
		switch {
		case i == j:
			return ClassSelf
		case i < n && j < n:
			return m.Class(i, j)
		case i < n:
			return ClassOf(m.NICs[j-n].GPUs[i])
		case j < n:
			return ClassOf(m.NICs[i-n].GPUs[j])
		case m.NICs[i-n].NICs == nil:
			return ClassUnknown
		}
		return ClassOf(m.NICs[i-n].NICs[j-n])
	}
	node := newSets(all) // joined without leaving the NUMA node
	for i := range all {
		for j := range i {
			switch c := path(i, j); {
			case c == ClassPIX || c == ClassPXB:
				near.join(i, j)
				node.join(i, j)
				if c == ClassPIX {
					bridge.join(i, j)
				}
			case c == ClassPHB || c == ClassNODE:
				node.join(i, j)
			}
		}
	}
	m.joinNodes(node)

	var out []socket
	for _, members := range node.all() {
		s := socket{name: m.socketName(members)}
		for _, g := range near.all() {
			if !slices.Contains(members, g[0]) {
				continue
			}
			var sw group
			for _, k := range g {
				if k < n {
					sw.devices = append(sw.devices, k)
				} else {
					sw.nics = append(sw.nics, k-n)
				}
			}
			sw.sortByBridge(bridge)
			sw.class = ClassSelf
			for _, i := range g {
				for _, j := range g {
					if c := path(i, j); c == ClassPIX || c == ClassPXB {
						sw.class = max(sw.class, c)
					}
				}
			}
			s.switches = append(s.switches, sw)
		}
		// Groups of NICs alone stand behind those with devices.
		slices.SortStableFunc(s.switches, func(a, b group) int { return boolOrder(len(a.devices) == 0, len(b.devices) == 0) })
		for _, i := range members {
			for _, j := range members {
				if c := path(i, j); near.find(i) != near.find(j) && c != ClassNVLink {
					s.class = max(s.class, c)
				}
			}
		}
		out = append(out, s)
	}
	return out
}

// sortByBridge puts devices of one bridge side by side, and lists the bridges of two and more.
func (g *group) sortByBridge(bridge *sets) {
	slices.SortStableFunc(g.devices, func(a, b int) int { return bridge.find(a) - bridge.find(b) })
	for k := 0; k < len(g.devices); {
		end := k + 1
		for end < len(g.devices) && bridge.find(g.devices[end]) == bridge.find(g.devices[k]) {
			end++
		}
		if end-k > 1 && end-k < len(g.devices) {
			g.bridges = append(g.bridges, g.devices[k:end])
		}
		k = end
	}
}

// joinNodes joins devices that say the same of their NUMA node or, without that, of their CPUs. Where nothing tells
// which devices are close, and NVLinks may hide it, they are drawn together.
func (m *Machine) joinNodes(node *sets) {
	hidden, told := false, len(node.all()) < len(node.parent)
	for i := range m.Devices {
		told = told || m.nodeOf(i) != ""
		for j := range i {
			if k := m.nodeOf(i); k != "" && k == m.nodeOf(j) {
				node.join(i, j)
			}
			c := m.Class(i, j)
			hidden = hidden || c == ClassNVLink || c == ClassUnknown
		}
	}
	if hidden && !told {
		for i := range node.parent {
			node.join(0, i)
		}
	}
}

// nodeOf is what device i says of its place, "" when nothing.
func (m *Machine) nodeOf(i int) string {
	switch d := m.Devices[i]; {
	case d.NUMA != nil:
		return "NUMA node " + strconv.Itoa(*d.NUMA)
	case d.Affinity != nil && d.Affinity.CPU != "" && d.Affinity.CPU != "N/A":
		return "CPUs " + d.Affinity.CPU
	}
	return ""
}

func (m *Machine) socketName(members []int) string {
	for _, i := range members {
		if i < len(m.Devices) {
			if name := m.nodeOf(i); name != "" {
				return name
			}
		}
	}
	return ""
}

// boolOrder puts false ahead of true.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// sets is disjoint sets of 0…n-1; the smallest member stands for a set.
type sets struct{ parent []int }

func newSets(n int) *sets {
	s := &sets{make([]int, n)}
	for i := range s.parent {
		s.parent[i] = i
	}
	return s
}

func (s *sets) find(i int) int {
	for s.parent[i] != i {
		i = s.parent[i]
	}
	return i
}

func (s *sets) join(i, j int) {
	i, j = s.find(i), s.find(j)
	s.parent[max(i, j)] = min(i, j)
}

// all lists the sets by their smallest member, each in order.
func (s *sets) all() [][]int {
	var out [][]int
	at := map[int]int{}
	for i := range s.parent {
		r := s.find(i)
		if _, ok := at[r]; !ok {
			at[r] = len(out)
			out = append(out, nil)
		}
		out[at[r]] = append(out[at[r]], i)
	}
	return out
}
