package ptx

// EventKind says what a thread has come to.
type EventKind uint8

const (
	Load       EventKind = iota + 1 // answer with Thread.Load or Thread.Defer
	Store                           // Values are stored; no answer
	Atomic                          // Thread.Apply computes; answer with Load or Defer, but for Inst.Red
	Fence                           // no answer
	Barrier                         // answer with Thread.BarrierResult when Inst.Barrier reduces
	Collective                      // answer with Collect
	Sleep                           // nanosleep for Values[0] nanoseconds; no answer
	GridWait                        // griddepcontrol.wait; no answer
	GridLaunch                      // griddepcontrol.launch_dependents; no answer
	Use                             // an instruction needs the deferred value Token; Thread.Fill gives it
	Exit                            // the thread has ended
)

var eventNames = [...]string{"", "load", "store", "atomic", "fence", "barrier", "collective", "sleep", "grid wait", "grid launch", "use", "exit"}

func (k EventKind) String() string { return eventNames[k] }

// Event is what a thread has come to. It belongs to the thread, which overwrites it in its next step.
type Event struct {
	Kind    EventKind
	Space   Space     // Load, Store, Atomic: SpaceGlobal, SpaceShared or, for ld.const, SpaceConst
	Pred    bool      // Barrier: the predicate to reduce
	Mask    uint32    // Collective: the member mask
	Barrier uint32    // Barrier: which of the block's sixteen
	Threads uint32    // Barrier: how many threads it waits for, 0 is all of the block
	Inst    *Inst     // the instruction; with Use, the one that cannot go on
	Addr    uint64    // Load, Store, Atomic: of element 0; in SpaceShared the offset in the block's shared memory
	Token   uint64    // Use
	Values  [4]uint64 // Store: the elements, or the two halves of one of 16 bytes. Atomic: the operands, cas's comparand first. Sleep: nanoseconds
}

// Inst is what is known of an instruction before it runs. There is one Inst for an instruction, so pointers
// compare; an instruction of a .func has one for each place where the function was inlined.
type Inst struct {
	File        string
	Line        int
	Text        string
	Kind        EventKind // what it can give rise to; 0 for what concerns the thread alone
	Sem         Sem       // Load, Store, Atomic, Fence: as in the text; atomics without one are Relaxed
	Scope       Scope     // with Sem above Volatile; atomics without one have ScopeGPU. membar.gl is fence.sc.gpu
	Space       Space     // as in the text: SpaceGeneric has to be looked up in the event
	Size        int       // bytes of one element of Load, Store, Atomic: at most 8, or 16 of a .b128, which is one access
	Elements    int       // of a vector; otherwise 1
	NonCoherent bool      // ld.global.nc and ldu: memory that nobody may write while the kernel runs
	Red         bool      // an Atomic whose result nobody gets
	Atomic      string    // "add", "exch", "cas", …
	Barrier     BarrierKind
	Aligned     bool   // a Barrier that all threads of a warp run together, or none
	Code        Code   // which Collective
	Operation   string // the same with its modifiers: "shfl.sync.idx.b32"
	Loop        bool   // on a cycle of the kernel's control flow
}

// Sem is the strength of a memory operation, as PTX names it.
type Sem uint8

const (
	Weak     = Sem(semWeak)
	Volatile = Sem(semVolatile)
	Relaxed  = Sem(semRelaxed)
	Acquire  = Sem(semAcquire)
	Release  = Sem(semRelease)
	AcqRel   = Sem(semAcqRel)
	SC       = Sem(semSC) // of fences
)

var semNames = [...]string{"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc"}

func (s Sem) String() string { return semNames[s] }

// Acquires tells whether s orders what follows.
func (s Sem) Acquires() bool { return s == Acquire || s >= AcqRel }

// Releases tells whether s orders what precedes.
func (s Sem) Releases() bool { return s >= Release }

// Scope is the set of threads that a memory operation is coherent with.
type Scope uint8

const (
	ScopeNone    = Scope(scopeNone)
	ScopeCTA     = Scope(scopeCTA)
	ScopeCluster = Scope(scopeCluster)
	ScopeGPU     = Scope(scopeGPU)
	ScopeSys     = Scope(scopeSys)
)

var scopeNames = [...]string{"none", "cta", "cluster", "gpu", "sys"}

func (s Scope) String() string { return scopeNames[s] }

// Space is a state space.
type Space uint8

const (
	SpaceGeneric = Space(spGeneric)
	SpaceGlobal  = Space(spGlobal)
	SpaceConst   = Space(spConst) // addresses are those of global memory; read-only
	SpaceShared  = Space(spShared)
	SpaceLocal   = Space(spLocal) // of one thread, as are parameters: no events
	SpaceParam   = Space(spParam)
)

func (s Space) String() string { return space(s).String() }

// BarrierKind is what a thread does at a barrier.
type BarrierKind uint8

const (
	BarrierSync   BarrierKind = BarrierKind(barSync) + 1
	BarrierArrive BarrierKind = BarrierKind(barArrive) + 1 // does not wait
	BarrierAnd    BarrierKind = BarrierKind(barAnd) + 1    // the predicates of all, reduced; all wait
	BarrierOr     BarrierKind = BarrierKind(barOr) + 1
	BarrierPopc   BarrierKind = BarrierKind(barPopc) + 1
)

// Reduces tells whether the barrier gives a result.
func (k BarrierKind) Reduces() bool { return k >= BarrierAnd }

// Code is a warp-level operation. Only bar.warp.sync orders memory.
type Code uint8

const (
	CodeWarpSync Code = iota + 1
	CodeShuffle
	CodeVote
	CodeMatch
	CodeReduce
	CodeElect
)

var codeNames = [...]string{"", "bar.warp.sync", "shfl.sync", "vote.sync", "match.sync", "redux.sync", "elect.sync"}

func (c Code) String() string { return codeNames[c] }
