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

// UnmarshalText reads a name.
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

// Choose picks the algorithm for ranks placed on devices of m: devices[r] is rank r's. It is a pure function.
// want other than Auto is taken if it can work at all. The ladder is one-shot pull, which needs every device
// to reach every other; copy, which needs one direction of each pair; host, which needs nothing. The reason
// says why each rung above the one taken was refused. The error is a *PlanError.
func Choose(m *topo.Machine, devices []int, want Algorithm) (Algorithm, string, error) {
	noPull, noCopy := refusePull(m, devices), refuseCopy(m, devices)
	switch want {
	case OneshotPull:
		if noPull != "" {
			return 0, "", &PlanError{Algorithm: want, Reason: noPull, Remedy: "use auto, copy or host"}
		}
		return want, "asked for", nil
	case Copy, Host:
		return want, "asked for", nil
	case Auto:
	default:
		return 0, "", &PlanError{Algorithm: want, Reason: "there is no such algorithm", Remedy: "use one of " + strings.Join(algorithmNames[:], ", ")}
	}
	switch {
	case noPull == "":
		return OneshotPull, describe(devices), nil
	case noCopy == "":
		return Copy, fmt.Sprintf("%s, and direct kernels need both directions", noPull), nil
	default:
		return Host, fmt.Sprintf("%s, so direct kernels cannot run and copies would pass through host memory anyway", noCopy), nil
	}
}

// nextRung is the algorithm below one-shot pull, when that is refused for a reason other than the topology.
func nextRung(m *topo.Machine, devices []int, refused string) (Algorithm, string) {
	if noCopy := refuseCopy(m, devices); noCopy != "" {
		return Host, refused + "; " + noCopy
	}
	return Copy, refused + ", so direct kernels cannot run"
}

func describe(devices []int) string {
	distinct := slices.Compact(slices.Sorted(slices.Values(devices)))
	switch {
	case len(devices) == 1:
		return "a single rank"
	case len(distinct) == 1:
		return fmt.Sprintf("all ranks share device %d", distinct[0])
	}
	return fmt.Sprintf("all %d devices reach each other directly", len(distinct))
}

// refusePull says which pair stands in the way of direct kernels, "" for none. They read peers' data and
// write peers' flags.
func refusePull(m *topo.Machine, devices []int) string {
	for _, i := range devices {
		for _, j := range devices {
			if i == j {
				continue
			}
			p := m.Pairs[i][j]
			if p.CanRead() != topo.Yes {
				return refusal(i, j, "read", p.CanRead(), p.ReadCode)
			}
			if p.CanWrite() != topo.Yes {
				return refusal(i, j, "write", p.CanWrite(), p.WriteCode)
			}
		}
	}
	return ""
}

// refuseCopy says which pair has no peer access either way, "" for none.
func refuseCopy(m *topo.Machine, devices []int) string {
	for _, i := range devices {
		for _, j := range devices {
			if i < j && m.Pairs[i][j].CanRead() != topo.Yes && m.Pairs[j][i].CanRead() != topo.Yes {
				return fmt.Sprintf("devices %d and %d have no peer access in either direction%s", i, j, code(m.Pairs[i][j].ReadCode))
			}
		}
	}
	return ""
}

func refusal(i, j int, what string, answer topo.Tri, c topo.Code) string {
	if answer == topo.Unknown {
		return fmt.Sprintf("%d→%d: it is not known whether device %d can %s device %d", i, j, i, what, j)
	}
	return fmt.Sprintf("%d→%d: device %d cannot %s the memory of device %d%s", i, j, i, what, j, code(c))
}

func code(c topo.Code) string {
	if c == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", c)
}

// shape is the grid of the summing kernel for a piece of n bytes on world ranks: one 16-byte pack per thread as far as
// blocks last. Larger blocks, and so fewer flags, pay when there is much to do. fit(threads) is how many blocks of
// that size one rank may have, so that all ranks' blocks are resident together. Measured on one H200 with 2, 4
// and 8 virtual ranks, 1 KB to 1 MB.
func shape(n uint64, world int, fit func(threads int) int) (blocks, threads int) {
	packs := max(1, (n+15)/16)
	threads = 256
	switch {
	case packs < 256:
		threads = max(64, int(packs+31)/32*32)
	case packs*uint64(world) > 16384:
		threads = 512
	}
	return min(blocksFor(packs, threads), fit(threads)), threads
}

func blocksFor(packs uint64, threads int) int {
	return int(min((packs+uint64(threads)-1)/uint64(threads), mostBlocks))
}

const mostBlocks = 32
