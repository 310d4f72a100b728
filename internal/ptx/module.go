package ptx

// Module is parsed and lowered PTX, ready to run. It is immutable and safe for concurrent use.
type Module struct {
	Info    Info
	Globals []Global // .global and .const variables, in order of declaration

	kernels map[string]*Kernel
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

	file  string
	ops   []op
	stmts []stmtPos
}

// stmtPos places operations in the source.
type stmtPos struct {
	line int
	text string
}
