package allreduce

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/topo"
)

// Algorithm is a way to all-reduce.
type Algorithm uint8

const (
	Auto        Algorithm = iota // the first of the ladder that the machine supports
	OneshotPull                  // one kernel per rank reads all peers' memory
	Copy                         // copy engines gather all inputs, then a local reduction
	Host                         // the same through pinned host memory
	numAlgorithms
)

var algorithmNames = [numAlgorithms]string{"auto", "oneshot-pull", "copy", "host"}

// Algorithms lists all that can be asked for, Auto first.
func Algorithms() []Algorithm { return []Algorithm{Auto, OneshotPull, Copy, Host} }

func (a Algorithm) String() string {
	if a >= numAlgorithms {
		return "invalid"
	}
	return algorithmNames[a]
}

// ParseAlgorithm reads "auto", "oneshot-pull", "copy" or "host". The error is a *NameError.
func ParseAlgorithm(s string) (Algorithm, error) {
	if i := slices.Index(algorithmNames[:], strings.ToLower(s)); i >= 0 {
		return Algorithm(i), nil
	}
	return 0, &NameError{Kind: "algorithm", Name: s, Known: algorithmNames[:]}
}

// MarshalText gives the name.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads a name, as ParseAlgorithm does.
func (a *Algorithm) UnmarshalText(b []byte) (err error) {
	*a, err = ParseAlgorithm(string(b))
	return err
}

// Plan is what a call will do, and why.
type Plan struct {
	Algorithm Algorithm `json:"algorithm"`
	Reason    string    `json:"reason"`
	Blocks    int       `json:"blocks"`  // per rank, of the kernel that does the sum
	Threads   int       `json:"threads"` // per block
	Pieces    uint64    `json:"pieces"`  // launches per rank; more than one above Config.MaxBytes
}

func (p Plan) String() string {
	return fmt.Sprintf("%v (%d×%d): %s", p.Algorithm, p.Blocks, p.Threads, p.Reason)
}

// Choose picks the algorithm for ranks placed on devices of m: devices[r] is rank r's. It is Select without a
// measurement and knobs. The error is an *ArgumentError for a machine and devices that do not fit together, or a *PlanError.
func Choose(m *topo.Machine, devices []int, want Algorithm) (Algorithm, string, error) {
	in := SelectInput{Machine: m, Devices: devices}
	if err := in.validate(); err != nil {
		return 0, "", err
	}
	s := selector{m: m, devices: devices}
	return s.choose(want)
}

// shape is the grid of the summing kernel for a piece of n bytes on world ranks: one 16-byte pack per thread as far as
// blocks last. Larger blocks, and so fewer flags, pay when there is much to do. fit(threads) is how many blocks of
// that size one rank may have, so that all ranks' blocks are resident together. Measured on one H200 with 2, 4
// and 8 virtual ranks, 1 KB to 1 MB.
func shape(n uint64, world int, fit func(threads int) int) (blocks, threads int) {
	packs := packsOf(n)
	threads = 256
	switch {
	case packs < 256:
		threads = max(64, int(packs+31)/32*32)
	case packs*uint64(world) > 16384:
		threads = 512
	}
	return min(blocksFor(packs, threads), fit(threads)), threads
}

// packsOf is how many 16-byte packs n bytes take, one at least.
func packsOf(n uint64) uint64 { return max(1, (n+15)/16) }

// piecesOf is how many launches a message of n bytes takes, one at least.
func piecesOf(n, most uint64) uint64 { return max(1, (n+most-1)/most) }

func blocksFor(packs uint64, threads int) int {
	return int(min((packs+uint64(threads)-1)/uint64(threads), mostBlocks))
}

const mostBlocks = 32
