package topo

import "fmt"

// namedCheck and namedNumber are the fields of a Measured in order, so that what goes over all of them has one list.
type namedCheck struct {
	name string
	Check
}

type namedNumber struct {
	name    string
	value   float64
	latency bool // nanoseconds, less is better; else GB/s
}

func (n namedNumber) String() string {
	switch {
	case n.value == 0:
		return "not measured"
	case n.latency:
		return fmt.Sprintf("%.0f ns", n.value)
	}
	return fmt.Sprintf("%.2f GB/s", n.value)
}

func (m *Measured) checks() []namedCheck {
	return []namedCheck{{"read", m.Read}, {"write", m.Write}, {"flags", m.Flags}, {"atomics", m.Atomics}}
}

func (m *Measured) numbers() []namedNumber {
	return []namedNumber{
		{"flag latency", m.FlagLatency, true},
		{"load latency", m.LoadLatency, true},
		{"copy rate", m.CopyRate, false},
		{"copy rate without peer access", m.CopyNoP2P, false},
		{"copy rate both ways", m.CopyBoth, false},
		{"copy rate both ways without peer access", m.BothNoP2P, false},
		{"kernel rate", m.KernelRate, false},
		{"kernel rate both ways", m.KernelBoth, false},
	}
}
