package ptx

// Block is one running thread block. It is used by one goroutine at a time.
type Block struct {
	launch *Launch
}

// NewBlock makes the block id of a launch ready to run. It fails when the launch does not fit the kernel.
func NewBlock(l *Launch, id [3]uint32) (*Block, error) { return &Block{launch: l}, nil }

// Run executes at most q.Warps warp instructions. The error is always a *Fault.
func (b *Block) Run(q Quantum) (State, error) { return Done, nil }

// Counts is the number of warp instructions issued so far, and of active threads summed over them.
func (b *Block) Counts() (warpInsts, threadInsts uint64) { return 0, 0 }
