package emu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/gpu"
)

// kind is a named machine, in any size up to most.
type kind struct {
	name        string
	description string
	devices     int // unless asked otherwise
	most        int // 0 is MaxDevices
	link        func(n, from, to int) Link
	device      func(n, i int) Device // nil: a plain one
}

const defaultMachine = "nvlink"

// The machines without a fault, the plain ones first.
var kinds = []kind{
	{
		name: "nvlink", description: "every pair reaches each other over NVLink, with native atomics: half of nvlink-8", devices: 4,
		link: switched,
	},
	{
		name: "pcie", description: "every pair reaches each other over PCIe switches, without native atomics: one socket of pcie-2socket", devices: 4,
		link: func(_, from, to int) Link { return pcie(from, to) },
	},
	{
		name: "one-way", description: "device i reaches device j only when i < j", devices: 4,
		link: func(_, from, to int) Link {
			if from < to {
				return Link{Claim: gpu.P2PInfo{Access: true, NativeAtomics: true, Link: "PHB"}}
			}
			return Absent("PHB")
		},
	},
	{
		name: "no-p2p", description: "no device reaches another's memory", devices: 4,
		link: func(int, int, int) Link { return Absent("PHB") },
	},
	{
		name: "nvlink-8", description: "eight devices behind NVSwitches: every pair over NVLink, with native atomics", devices: 8,
		link: switched, device: halves,
	},
	{
		name: "dgx1-v100", description: "eight sm_70 devices with DGX-1's NVLinks: P2P only where there is one", devices: 8, most: 8,
		link: dgx1, device: dgx1Device,
	},
	{
		name: "pcie-2socket", description: "two sockets with two PCIe switches each: P2P inside a socket, none across", devices: 8,
		link: func(n, from, to int) Link {
			if socket(n, from) != socket(n, to) {
				return Absent("SYS")
			}
			half := (n + 1) / 2
			return pcie(from%half, to%half)
		},
		device: halves,
	},
	{
		name: "mig", description: "MIG instances, two of each GPU: no P2P, not even on the same GPU", devices: 4,
		link: func(int, int, int) Link { return Absent("") },
		device: func(_, i int) Device { // 3g instances of an H100
			return Device{MIG: true, SMs: 60, PCI: fmt.Sprintf("0000:%02x:00.0", 0x10+i/2)}
		},
	},
	{
		name: "write-only", description: "claims P2P; writes arrive, and reads of peers never complete", devices: 4,
		link: func(int, int, int) Link { return Link{Claim: overBridge, Loads: Stalls} },
	},
	{
		name: "read-garbage", description: "claims P2P; writes arrive, and reads of peers give all-ones", devices: 4,
		link: func(int, int, int) Link { return Link{Claim: overBridge, Loads: Ones} },
	},
	{
		name: "lying", description: "claims P2P and native atomics; reads of peers give zero, and writes vanish", devices: 4,
		link: func(int, int, int) Link {
			claim := overBridge
			claim.NativeAtomics = true
			return Link{Claim: claim, Loads: Zeroes, Stores: Vanishes}
		},
	},
}

// overBridge is what drivers claim of a pair below one PCIe host bridge.
var overBridge = gpu.P2PInfo{Access: true, PerfRank: 1, Link: "PHB"}

// switched is a pair of GPUs on NVSwitches.
func switched(int, int, int) Link {
	return Link{Claim: gpu.P2PInfo{Access: true, NativeAtomics: true, Link: "NV18"}}
}

// pcie is a pair on one socket, with two devices to a switch.
func pcie(from, to int) Link {
	claim := gpu.P2PInfo{Access: true, PerfRank: 1, Link: "PXB"}
	if from/2 == to/2 {
		claim.Link = "PIX"
	}
	return Link{Claim: claim}
}

// socket is 0 for the first half of n devices, and 1 for the rest.
func socket(n, i int) int {
	if i < (n+1)/2 {
		return 0
	}
	return 1
}

// halves puts a device on its socket.
func halves(n, i int) Device {
	node := socket(n, i)
	return Device{NUMA: &node}
}

// dgx1Links are the NVLinks between the GPUs of a DGX-1 with V100, as `nvidia-smi topo -m` gives them there.
var dgx1Links = [8][8]int{
	{0, 1, 1, 2, 2, 0, 0, 0},
	{1, 0, 2, 1, 0, 2, 0, 0},
	{1, 2, 0, 2, 0, 0, 1, 0},
	{2, 1, 2, 0, 0, 0, 0, 1},
	{2, 0, 0, 0, 0, 1, 1, 2},
	{0, 2, 0, 0, 1, 0, 2, 1},
	{0, 0, 1, 0, 1, 2, 0, 2},
	{0, 0, 0, 1, 2, 1, 2, 0},
}

// dgx1 ranks double links above single ones. CUDA gives P2P to the linked pairs only.
func dgx1(_, from, to int) Link {
	n := dgx1Links[from][to]
	if n == 0 {
		return Absent("SYS")
	}
	return Link{Claim: gpu.P2PInfo{Access: true, NativeAtomics: true, PerfRank: 2 - n, Link: fmt.Sprintf("NV%d", n)}}
}

func dgx1Device(_, i int) Device {
	node := i / 4
	return Device{SM: 70, NUMA: &node, PCI: fmt.Sprintf("0000:%s:00.0", strings.Fields("06 07 0a 0b 85 86 89 8a")[i])}
}

// build makes the machine in a size.
func (k *kind) build(n int) *Machine {
	m := &Machine{Name: k.name, Description: k.description, Devices: make([]Device, n), Links: make([][]Link, n)}
	for i := range n {
		if k.device != nil {
			m.Devices[i] = k.device(n, i)
		}
		m.Links[i] = make([]Link, n)
		for j := range n {
			if i != j {
				m.Links[i][j] = k.link(n, i, j)
			}
		}
	}
	return m
}

// limit is the most devices it has.
func (k *kind) limit() int {
	if k.most > 0 {
		return k.most
	}
	return MaxDevices
}

// Machines are the names that Config.Machine takes, the default first.
func Machines() []string {
	names := make([]string, len(kinds))
	for i := range kinds {
		names[i] = kinds[i].name
	}
	return names
}

// Describe says in one line what a machine is; "" for one that does not exist.
func Describe(name string) string {
	if k := findKind(name); k != nil {
		return k.description
	}
	return ""
}

func findKind(name string) *kind {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	return &kinds[i]
}
