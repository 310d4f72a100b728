package ptx

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Memory is the address space that one device sees.
type Memory interface {
	// Resolve returns the segment holding [addr, addr+size) if the device may access all of it.
	// Otherwise it returns an error that says why not (unmapped, out of bounds, freed, no peer access).
	Resolve(addr uint64, size int, write bool) (Segment, error)
	// Generation changes whenever a segment returned earlier may no longer be used.
	Generation() uint64
}

// Segment is contiguous memory that starts at address Base.
type Segment struct {
	Base  uint64
	Data  []byte
	Route Route // of accesses on their way there
}

// Route says what becomes of accesses to a segment. The zero value is a good route: all of them arrive. The
// others are those of machines whose peer access is broken.
type Route struct {
	Loads  Outcome // Arrives, Stalls, Ones or Zeroes
	Stores Outcome // Arrives, Stalls or Vanishes
}

// Outcome is what becomes of an access. An atomic is a load and a store: it stalls when either does; its result
// is that of the load, and memory changes when the store arrives.
type Outcome uint8

const (
	Arrives  Outcome = iota // it does what it should
	Stalls                  // it never completes, and the threads that issued it never go on
	Ones                    // a load gives ones in every bit
	Zeroes                  // a load gives zero
	Vanishes                // a store is lost, without a word
)

// Global is a module-scope .global or .const variable, for which the caller provides memory.
type Global struct {
	Name  string
	Size  int
	Align int
	Init  []byte // nil, or Size bytes
	Const bool
}

// Launch is one kernel launch: what its blocks share.
type Launch struct {
	Kernel    *Kernel
	Grid      [3]uint32
	Block     [3]uint32
	Shared    int      // dynamic shared memory, bytes
	Params    []byte   // Kernel.Sig.ParamBytes long
	Globals   []uint64 // addresses of Module.Globals, same order
	Memory    Memory
	Clock     func() uint64 // nanoseconds, for %globaltimer
	SM        func(block [3]uint32) uint32
	SMs       uint32 // for %nsmid; 0 when only the SM of each block is known
	StepLimit uint64 // warp instructions one block may execute; 0 is no limit
}

// State is what a block needs next.
type State int

const (
	Ready    State = iota // quantum used up; run it again
	Sleeping              // every unfinished warp is in nanosleep; run it again later
	Done                  // all threads exited
	Stalled               // an access that never completes holds the block up: running it again changes nothing
)

// Fault is a run-time failure at one thread of a block. The caller adds device and kernel.
type Fault struct {
	Kind   FaultKind
	Block  [3]uint32
	Thread [3]uint32
	File   string
	Line   int
	Text   string
	Addr   uint64
	Size   int
	Err    error // why memory could not be resolved, or nil
}

// FaultKind classifies a Fault.
type FaultKind int

const (
	BadAddress FaultKind = iota + 1
	Misaligned
	Trap
	Deadlock // StepLimit exceeded, or a barrier that can never complete; Line is where the block spins
)

// Quantum bounds one call of Block.Run.
type Quantum struct {
	Warps int        // warp instructions to execute at most
	Rand  *rand.Rand // chooses among runnable warps and how long each runs
}

func (k FaultKind) String() string {
	switch k {
	case BadAddress:
		return "illegal address"
	case Misaligned:
		return "misaligned address"
	case Trap:
		return "trap"
	case Deadlock:
		return "kernel does not end"
	}
	return fmt.Sprintf("fault %d", int(k))
}

func (f *Fault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v in block (%d,%d,%d) thread (%d,%d,%d)", f.Kind,
		f.Block[0], f.Block[1], f.Block[2], f.Thread[0], f.Thread[1], f.Thread[2])
	if f.Line > 0 {
		fmt.Fprintf(&b, " at %s:%d `%s`", f.File, f.Line, f.Text)
	}
	if f.Size > 0 {
		fmt.Fprintf(&b, ", %d bytes at %#x", f.Size, f.Addr)
	}
	if f.Err != nil {
		fmt.Fprintf(&b, ": %v", f.Err)
	}
	return b.String()
}

// Unwrap gives the reason memory could not be resolved.
func (f *Fault) Unwrap() error { return f.Err }
