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
	Auto        Algorithm = iota // the best for each call, of those that the machine supports
	OneshotPull                  // one kernel per rank reads all peers' memory
	OneshotPush                  // one kernel per rank writes its data to all peers, in packets that carry their own flags
	TwoshotPull                  // each rank sums its chunk of all peers' data, then reads the other sums
	TwoshotPush                  // each rank is sent its chunk in packets, sums it, and sends the sum to all
	OneshotWide                  // one-shot push in packets that are three quarters data, not half; it takes 128-bit atomic accesses
	TwoshotWide                  // two-shot push in such packets
	Copy                         // copy engines gather all inputs, or this rank's chunk of them, for a local reduction
	Host                         // the same through pinned host memory
	// NCCL is NVIDIA's library, where there is one at run time, for ranks that are all in this process and on a device each. Its
	// bits are its own: it does not sum in fp32 and in rank order, so they can differ from Reference, from the other algorithms,
	// and from size to size. So Auto takes it only where Config.AllowNCCL allows it, and a rule of the table asks for it.
	NCCL
	numAlgorithms
)

var algorithmNames = [numAlgorithms]string{"auto", "oneshot-pull", "oneshot-push", "twoshot-pull", "twoshot-push", "oneshot-wide", "twoshot-wide", "copy", "host", "nccl"}

// Algorithms lists all that can be asked for, Auto first.
func Algorithms() []Algorithm {
	return []Algorithm{Auto, OneshotPull, OneshotPush, TwoshotPull, TwoshotPush, OneshotWide, TwoshotWide, Copy, Host, NCCL}
}

// pulls is whether kernels read their peers' data; pushes, whether they write theirs to the peers and read nothing there; wide,
// whether they do that in packets of 12 bytes of data, not 8; twoshot, whether each rank sums a chunk.
func (a Algorithm) pulls() bool   { return a == OneshotPull || a == TwoshotPull }
func (a Algorithm) pushes() bool  { return a == OneshotPush || a == TwoshotPush || a.wide() }
func (a Algorithm) wide() bool    { return a == OneshotWide || a == TwoshotWide }
func (a Algorithm) twoshot() bool { return a == TwoshotPull || a == TwoshotPush || a == TwoshotWide }

// Direct is whether kernels of ours reach the peers' memory themselves; a tuning table's grids are for these.
func (a Algorithm) Direct() bool { return a.pulls() || a.pushes() }

func (a Algorithm) String() string {
	if a >= numAlgorithms {
		return "invalid"
	}
	return algorithmNames[a]
}

// ParseAlgorithm reads a name, such as "auto" or "oneshot-pull", in either case. The error is a *NameError, which lists them.
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
	Blocks    int       `json:"blocks"`  // per rank, of the kernel that does the sum; 0: NCCL's, which are not ours to know
	Threads   int       `json:"threads"` // per block
	Pieces    uint64    `json:"pieces"`  // launches per rank at most; see Config.MaxBytes and Config.PushBytes
}

func (p Plan) String() string {
	if p.Blocks == 0 {
		return fmt.Sprintf("%v: %s", p.Algorithm, p.Reason)
	}
	return fmt.Sprintf("%v (%d×%d): %s", p.Algorithm, p.Blocks, p.Threads, p.Reason)
}

// Choose picks the algorithm of the smallest calls, for ranks placed on devices of m: devices[r] is rank r's. It is Select
// without a measurement, a size and knobs. The error is an *ArgumentError for a machine and devices that do not fit
// together, or a *PlanError.
func Choose(m *topo.Machine, devices []int, want Algorithm) (Algorithm, string, error) {
	p, err := Select(SelectInput{Machine: m, Devices: devices, Want: want})
	return p.Algorithm, p.Reason, err
}
