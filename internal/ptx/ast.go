package ptx

// file is a module as written.
type file struct {
	info  Info
	vars  []*variable // module scope
	funcs []*function
}

// function is an .entry or a .func.
type function struct {
	name    string
	entry   bool
	sig     int // index in Info.Entries, for entries
	rets    []*variable
	params  []*variable
	body    []stmt
	hasBody bool
	line    int
	pos     int
}

// variable is a declaration in memory or, as a formal parameter of a .func, in a register.
type variable struct {
	name   string
	space  space
	typ    typ
	array  bool
	extern bool // .extern .shared name[]: the dynamic part
	size   int  // bytes
	align  int
	init   []byte
	line   int
	pos    int
}

type stmtKind uint8

const (
	stInst stmtKind = iota
	stReg           // .reg
	stVar           // .shared, .local, .param variable
	stLabel
	stBlock   // { … }
	stTargets // label: .branchtargets …
)

type stmt struct {
	kind  stmtKind
	line  int
	pos   int
	end   int // byte offset behind the statement
	inst  *inst
	regs  []regDecl
	v     *variable
	label string
	names []string // branch targets
	body  []stmt
}

// regDecl declares name, or name0 … name(count-1) when count ≥ 0.
type regDecl struct {
	name  string
	typ   typ
	count int
}

type inst struct {
	guard    string // predicate register, or empty
	guardNot bool
	name     string   // opcode without modifiers
	mods     []string // modifiers without dots
	args     []operand
}

type argKind uint8

const (
	argName  argKind = iota // register, variable, label or special register
	argInt                  // integer constant, in val
	argFloat                // floating constant
	argAddr                 // [sub[0] + off]
	argVec                  // {sub…}
	argSink                 // _
	argPair                 // sub[0] | sub[1]
	argList                 // (sub…)
)

type operand struct {
	kind   argKind
	name   string
	suffix string // .x of %tid.x
	not    bool   // !p
	off    int64
	val    uint64 // argInt: two's complement; argFloat: bits
	single bool   // argFloat: val holds f32 bits (0f…), else f64 bits
	sub    []operand
}
