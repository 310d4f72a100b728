package emu

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// Machine is a kind of computer, for Config.Custom: its devices, and what each ordered pair of them claims and does.
// It is data, so that odd machines are data too.
type Machine struct {
	Name        string // also what the devices' UUIDs are made from
	Description string // one line
	Devices     []Device
	Links       [][]Link // Links[i][j]: device i reaches the memory of device j. The diagonal means nothing.
}

// Device is one device of a Machine. The zero value is a whole H100-class GPU.
type Device struct {
	SM   int    // compute capability, a key of archs: 90 for sm_90; 0 is 90
	SMs  int    // how many; 0 is as many as such a GPU has
	PCI  string // "0000:1b:00.0"; empty is one made from the ordinal
	NUMA *int   // nil when unknown
	MIG  bool   // a MIG instance
}

// Link is one ordered pair: what the driver claims of it, and what really becomes of the accesses of kernels
// and copy engine while peer access is enabled. With the zero outcomes it does what it claims.
type Link struct {
	Claim  gpu.P2PInfo
	Loads  Outcome // Arrives, Stalls, Ones or Zeroes
	Stores Outcome // Arrives, Stalls or Vanishes
}

// Outcome is what becomes of an access to a peer's memory.
type Outcome = ptx.Outcome

// What becomes of an access. Atomics are loads and stores at once, as ptx.Outcome says.
const (
	Arrives  = ptx.Arrives  // it does what it should
	Stalls   = ptx.Stalls   // it never completes: its threads, and the copy engine's stream, stop there for good
	Ones     = ptx.Ones     // it reads ones in every bit
	Zeroes   = ptx.Zeroes   // it reads zero
	Vanishes = ptx.Vanishes // it is lost
)

// Absent is a pair without P2P. path is its Link; its rank is worse than that of any pair with P2P.
func Absent(path string) Link { return Link{Claim: gpu.P2PInfo{PerfRank: 9, Link: path}} }

// arch is what devices of one compute capability have, from the CUDA programming guide's table of technical
// specifications. The number of SMs is that of the class's largest product.
type arch struct {
	sms            int
	threadsPerSM   int
	blocksPerSM    int
	sharedPerSM    int
	sharedPerBlock int
	sharedReserved int // of each resident block, by the system
}

var archs = map[int]arch{
	70: {80, 2048, 32, 96 << 10, 96 << 10, 0},
	75: {72, 1024, 16, 64 << 10, 64 << 10, 0},
	80: {108, 2048, 32, 164 << 10, 163 << 10, 1 << 10},
	86: {84, 1536, 16, 100 << 10, 99 << 10, 1 << 10},
	89: {142, 1536, 24, 100 << 10, 99 << 10, 1 << 10},
	90: {132, 2048, 32, 228 << 10, 227 << 10, 1 << 10},
}

const defaultSM = 90

// validate says what is wrong with a machine that a caller made.
func (m *Machine) validate() error {
	bad := func(format string, args ...any) error {
		return &gpu.Error{Op: "Open", Device: -1, Kind: gpu.ErrInvalidValue,
			Detail: fmt.Sprintf("custom machine %q: ", m.Name) + fmt.Sprintf(format, args...)}
	}
	n := len(m.Devices)
	switch {
	case m.Name == "":
		return bad("it has no name")
	case n < 1 || n > MaxDevices:
		return bad("%d devices; a machine has 1 to %d", n, MaxDevices)
	case len(m.Links) != n:
		return bad("%d rows of links for %d devices", len(m.Links), n)
	}
	for i, dev := range m.Devices {
		if _, ok := archs[dev.SM]; !ok && dev.SM != 0 {
			return bad("device %d is sm_%d; emulated are %v", i, dev.SM, slices.Sorted(maps.Keys(archs)))
		}
		if dev.SMs < 0 {
			return bad("device %d has %d SMs", i, dev.SMs)
		}
		if len(m.Links[i]) != n {
			return bad("%d links of device %d to %d devices", len(m.Links[i]), i, n)
		}
		for j, l := range m.Links[i] {
			if !slices.Contains([]Outcome{Arrives, Stalls, Ones, Zeroes}, l.Loads) ||
				!slices.Contains([]Outcome{Arrives, Stalls, Vanishes}, l.Stores) {
				return bad("link %d→%d: loads or stores cannot end like that (%d, %d)", i, j, l.Loads, l.Stores)
			}
		}
	}
	return nil
}

// first is the machine with its first n devices only.
func (m *Machine) first(n int) *Machine {
	part := *m
	part.Devices = m.Devices[:n]
	part.Links = make([][]Link, n)
	for i := range part.Links {
		part.Links[i] = m.Links[i][:n]
	}
	return &part
}

// CanBe is whether there are emulated devices of a compute capability: 90 for sm_90.
func CanBe(sm int) bool { _, ok := archs[sm]; return ok }
