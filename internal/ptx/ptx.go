// Package ptx reads PTX and runs it.
//
// Parse turns PTX text into a Module: every entry checked and lowered to a flat list of
// fixed-size operations. What it does not know — opcode, modifier, type, directive — is an
// error at load, with file, line and text, never a guess. Signatures reads the entry
// declarations alone, and so works on PTX that the interpreter does not support.
//
// A Block is one running thread block: warps of 32 lanes stepped together, registers held
// as vectors of lanes, with divergence and reconvergence. The caller owns memory (through
// Memory), the grid and the order in which blocks run; the package owns what the
// instructions mean, bit for bit.
//
// A Thread is one thread of a kernel on its own, over the same operations: the caller owns every memory that
// threads share, the barriers and the warp's collectives, and answers the thread's events.
//
// What the PTX reference leaves open, or what cannot be had here:
//
//   - Integer division and remainder by zero give all ones, as the code does that NVIDIA's assembler puts in.
//   - NaN results are 0x7fffffff (f32) and 0x7fff (f16, bf16); f64 keeps the payload of its first NaN operand.
//     cvt.f32.bf16 is a shift and keeps payloads.
//   - .approx functions are rounded from a float64, so closer than hardware's. Directed rounding is for f32 only.
//   - Shared memory has generic addresses from 1<<56, local memory from 2<<56, kernel parameters from 3<<56.
//     Addresses below 1<<56 are the caller's. Constant memory is part of global memory.
//   - Every .func is inlined: no recursion, no indirect calls.
//   - Lanes that have parted meet again as early as the code allows. A side that goes round a loop while
//     others wait is made to stand aside now and then, so lanes may wait for one another.
//   - Memory is sequentially consistent and fences do nothing: the order of blocks is all that varies. Volatile,
//     relaxed, acquire, release and atomic accesses of 4 and 8 bytes are atomic towards sync/atomic in the host,
//     and .b128 ones towards other warps.
//   - .b128 is a type of registers, mov, ld and st. Variables, parameters and atomics of 128 bits are refused.
//   - %clock counts the block's warp instructions, at the grain of a scheduling slice.
package ptx

import "fmt"

// Info is what the declarations of a module say.
type Info struct {
	File    string
	Version int    // PTX ISA version ×10: 70 is 7.0, 78 is 7.8
	Target  string // "sm_70"
	SM      int    // 70
	Entries []Signature
}

// Entry finds a signature by name.
func (i *Info) Entry(name string) (*Signature, bool) {
	for k := range i.Entries {
		if i.Entries[k].Name == name {
			return &i.Entries[k], true
		}
	}
	return nil, false
}

// Signature is the declaration of one entry.
type Signature struct {
	Name       string
	Line       int
	Params     []Param
	ParamBytes int    // size of the parameter buffer
	MaxThreads uint32 // from .maxntid (product) or .reqntid; 0 when not declared
	Waits      bool   // griddepcontrol.wait stands in the body, or in that of a function that it calls by name, directly or through others
}

// Param is one kernel parameter and its place in the parameter buffer.
type Param struct {
	Name   string
	Type   string // "u64", "f32", "b8", … as declared, without the dot
	Array  bool   // declared with [n]: a struct or array passed by value
	Size   int    // bytes, the whole array
	Align  int
	Offset int // bytes from the start of the parameter buffer
}

// Error is a refusal of PTX text.
type Error struct {
	File string
	Line int
	Text string // the offending line, trimmed
	Msg  string
}

func (e *Error) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg)
	}
	return fmt.Sprintf("%s:%d: %s: `%s`", e.File, e.Line, e.Msg, e.Text)
}
