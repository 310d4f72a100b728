package check

import (
	"github.com/fenceline/fenceline/internal/ptx"
)

// Host is the device number of the host: of pinned host memory, and of tasks that the host itself does.
const Host = -1

// Program is what is checked: devices, their memory, and what is launched on them. A Program is a description; it can be
// run any number of times, and by several goroutines.
type Program struct {
	Name string
	// Key tells programs apart: tokens begin with it, and one with another key is refused. "": tokens have none.
	Key     string
	Devices int
	Buffers []Buffer
	Tasks   []Task // in the order in which the host issues them
	// Racy lets execution go on after a race, with every value that the model then allows: for litmus tests, whose
	// outcomes are the point. Otherwise a race is a finding and ends the execution.
	Racy bool
	// GiveUp has those that poll in vain go on polling until they give up by themselves, where otherwise an execution in
	// which nobody can go on is a deadlock: for what happens when a peer never comes. Clocks then run fast. That a poll may
	// give up earlier is not explored, so such a program is never covered exhaustively.
	GiveUp bool
	// Observe lists what a litmus test looks at in the end. The values, in this order, are the execution's outcome.
	Observe []Observed
	// Final judges the memory at the end, as the host sees it after waiting for every stream. nil: nothing to judge.
	// What it returns becomes a finding.
	Final func(*Memory) error
	// Unasserted says why nothing is known of results, where Final compares none: then only races, deadlocks, faults and their
	// like are found, and a search that finds nothing does not say that results are right. "": some are compared.
	Unasserted string
	// Stronger lists programs that differ in one strengthened instruction, to find out which makes a finding go away; nil: none.
	Stronger func(*Finding) []Variant
	// Lines is where a PTX line came from in its CUDA source; nil if not known.
	Lines func(file string, line int) (source string, sourceLine int, ok bool)
	// Calls are the calls through which a PTX line was inlined, the innermost first, as "fenceline.cuh:197"; nil if not known.
	Calls func(file string, line int) []string
}

// Variant is a program with one instruction changed.
type Variant struct {
	What    string // "kernel.ptx:120: st.relaxed.sys → st.release.sys"
	Program *Program
}

// Buffer is memory that kernels are given. Every device and the host may address it.
type Buffer struct {
	Name   string
	Device int    // whose memory, or Host
	Size   int    // bytes
	Align  int    // of its address; 0: 256
	Init   []byte // contents at the start, Size bytes; nil: zeroes
}

// Task is one thing in a stream: a kernel launch, or a step of the host. Tasks of one stream run one after the other.
type Task struct {
	Stream int   // any number; the host's own steps have a stream too
	Device int   // on which the kernel runs; Host for a step of the host
	After  []int // tasks, by index, that must have ended: events
	Name   string

	Kernel    *ptx.Kernel
	Grid      [3]uint32
	Block     [3]uint32
	Shared    int                                   // dynamic shared memory, bytes
	Params    func(address func(int) uint64) []byte // the parameter buffer; address gives a buffer's, by index
	Globals   []int                                 // buffers that stand for the module's variables, in their order
	Dependent bool                                  // programmatic dependent launch: starts when its predecessor in the stream lets it, or as late as at that one's end
	Resident  int                                   // blocks of this launch that are on the device together at most, whatever else is there; 0: all

	Do func(*Memory) // with Device Host
}

// Observed is one part of a litmus test's outcome: a word of memory, or a register that a thread had when it ended.
type Observed struct {
	Name   string
	Buffer int // with Task < 0
	Offset int
	Size   int // bytes: 1, 2, 4 or 8

	Task     int    // -1: a word of memory
	Block    int    // linear
	Thread   int    // linear in its block
	Register string // as in the PTX: "%r1"
}

// Memory is the memory of one execution, seen by the host at a point where it is ordered after all that it reads.
type Memory struct {
	bytes func(buffer int) []byte
	write func(buffer, offset int, data []byte)
}

// Bytes is a copy of a buffer.
func (m *Memory) Bytes(buffer int) []byte { return m.bytes(buffer) }

// Write changes a buffer. Only a task of the host may.
func (m *Memory) Write(buffer, offset int, data []byte) { m.write(buffer, offset, data) }
