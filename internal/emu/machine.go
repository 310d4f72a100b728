package emu

import (
	"slices"

	"github.com/fenceline/fenceline/internal/gpu"
)

// machine is a kind of computer: how many devices it has, and what each ordered pair of them can do.
// It is data, so that odd machines are one more entry of the table.
type machine struct {
	name        string
	description string
	devices     int // unless asked otherwise
	link        func(from, to int) link
}

// link is one ordered pair: what the driver claims of it, and what it really does. An honest link's
// claims and deeds agree.
type link struct {
	claim  gpu.P2PInfo
	reads  bool // kernels and copies on "from" can load from the memory of "to"
	writes bool // … and store to it
}

// honest is a link that does what it claims.
func honest(claim gpu.P2PInfo) link {
	return link{claim: claim, reads: claim.Access, writes: claim.Access}
}

// absent is no link at all. Its rank is worse than that of any link.
var absent = honest(gpu.P2PInfo{PerfRank: 9})

const defaultMachine = "nvlink"

var machines = []machine{
	{
		name: "nvlink", description: "every pair reaches each other, with native atomics", devices: 4,
		link: func(int, int) link { return honest(gpu.P2PInfo{Access: true, NativeAtomics: true}) },
	},
	{
		name: "pcie", description: "every pair reaches each other, more slowly and without native atomics", devices: 4,
		link: func(int, int) link { return honest(gpu.P2PInfo{Access: true, PerfRank: 1}) },
	},
	{
		name: "one-way", description: "device i reaches device j only when i < j", devices: 4,
		link: func(from, to int) link {
			if from < to {
				return honest(gpu.P2PInfo{Access: true, NativeAtomics: true})
			}
			return absent
		},
	},
	{
		name: "no-p2p", description: "no device reaches another's memory", devices: 4,
		link: func(int, int) link { return absent },
	},
}

// Machines are the names that Config.Machine takes, the default first.
func Machines() []string {
	names := make([]string, len(machines))
	for i, m := range machines {
		names[i] = m.name
	}
	return names
}

// Describe says in one line what a machine is; "" for one that does not exist.
func Describe(name string) string {
	m, _ := findMachine(name)
	return m.description
}

func findMachine(name string) (machine, bool) {
	i := slices.IndexFunc(machines, func(m machine) bool { return m.name == name })
	if i < 0 {
		return machine{}, false
	}
	return machines[i], true
}
