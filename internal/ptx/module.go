package ptx

import "sync"

// Module is parsed and lowered PTX, ready to run. It is immutable and safe for concurrent use.
type Module struct {
	Info    Info
	Globals []Global // .global and .const variables, in order of declaration
	Sum     uint64   // a hash of the text

	kernels map[string]*Kernel
}

// ParseObserved is Parse for kernels whose registers are looked at: each has a place of its own, and keeps what was
// written to it last. See Thread.Register.
func ParseObserved(name string, src []byte) (*Module, error) {
	f, err := parseFile(name, src, false)
	if err != nil {
		return nil, err
	}
	return lowerFile(f, name, string(src), true)
}

// Kernel finds an entry by name.
func (m *Module) Kernel(name string) (*Kernel, bool) {
	k, ok := m.kernels[name]
	return k, ok
}

// Kernel is one entry, lowered. It is immutable.
type Kernel struct {
	Sig          *Signature
	Registers    int // 32-bit registers per thread after allocation
	StaticShared int // bytes per block
	Local        int // bytes of .local memory per thread

	file    string
	globals int  // addresses of module variables it needs
	dynamic bool // uses extern shared memory
	ops     []op
	stmts   []stmtPos
	tables  [][]int32     // op indices of brx.idx targets
	n       [4]int32      // physical registers of each kind, constants behind them
	consts  [4][]constant // by kind
	pool    sync.Pool     // *arena
	names   *scope        // of registers, where ParseObserved kept them

	threaded sync.Once // makes program, for threads
	program  *program
}

// dynamicAt is where dynamic shared memory starts.
func (k *Kernel) dynamicAt() int {
	if k.dynamic {
		return alignUp(k.StaticShared, 16)
	}
	return k.StaticShared
}

// stmtPos places operations in the source.
type stmtPos struct {
	line int
	text string
}
