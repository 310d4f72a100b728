package topo

import "strings"

// Class is how far a path between two devices goes. Larger is farther.
type Class uint8

// The classes, in nvidia-smi's words.
const (
	ClassUnknown Class = iota
	ClassSelf          // a device with itself
	ClassNVLink
	ClassPIX  // one PCIe bridge at most
	ClassPXB  // several PCIe bridges, no host bridge
	ClassPHB  // a PCIe host bridge
	ClassNODE // several host bridges of one NUMA node
	ClassSYS  // between NUMA nodes
)

var classNames = [...]string{"unknown", "X", "NVL", "PIX", "PXB", "PHB", "NODE", "SYS"}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return classNames[ClassUnknown]
}

// ClassOf is the class of a path as nvidia-smi writes it: "NV18", "PIX", "SYS", "X". The old word for SYS, "SOC", is
// read as well. Any other word is ClassUnknown.
func ClassOf(link string) Class {
	switch link {
	case "X":
		return ClassSelf
	case "SOC":
		return ClassSYS
	}
	if n, ok := strings.CutPrefix(link, "NV"); ok && n != "" && strings.Trim(n, "0123456789") == "" {
		return ClassNVLink
	}
	for c := ClassPIX; c <= ClassSYS; c++ {
		if classNames[c] == link {
			return c
		}
	}
	return ClassUnknown
}

// Class is the class of the path from device i to device j. An ordinal that the machine lacks is ClassUnknown.
func (m *Machine) Class(i, j int) Class {
	switch n := len(m.Pairs); {
	case i < 0 || j < 0 || i >= n || j >= n || j >= len(m.Pairs[i]):
		return ClassUnknown
	case i == j:
		return ClassSelf
	}
	return ClassOf(m.Pairs[i][j].Link)
}

// Farthest is the ordered pair of the ranks' devices whose path is the farthest, the first of equals. devices[r] is
// the device of rank r; nil is every device. An unknown path counts as the farthest. One device alone gives
// ClassSelf.
func (m *Machine) Farthest(devices []int) (c Class, from, to int) {
	devices = m.orAll(devices)
	c = ClassSelf
	if len(devices) > 0 {
		from, to = devices[0], devices[0]
		c = m.Class(from, to)
	}
	for _, i := range devices {
		for _, j := range devices {
			switch k := m.Class(i, j); {
			case c == ClassUnknown:
				return c, from, to
			case k == ClassUnknown || k > c:
				c, from, to = k, i, j
			}
		}
	}
	return c, from, to
}

// Mesh is whether NVLinks join every pair of the devices, in both directions, so that no transfer takes another
// path or passes through a third device. nil is every device. Links of an NVSwitch count as joining what they
// reach. One device alone is a mesh: it has no pair that is not joined. An ordinal that the machine lacks is not.
func (m *Machine) Mesh(devices []int) bool {
	c, _, _ := m.Farthest(devices)
	return c == ClassNVLink || c == ClassSelf
}

func (m *Machine) orAll(devices []int) []int {
	if devices != nil {
		return devices
	}
	for i := range m.Devices {
		devices = append(devices, i)
	}
	return devices
}
