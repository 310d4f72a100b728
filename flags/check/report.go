package check

import (
	"fmt"
	"strings"

	"github.com/fenceline/fenceline/internal/ptx"
)

// Kind is what is wrong.
type Kind string

const (
	Race      Kind = "race"           // two accesses that nothing orders, and that do not synchronise by themselves
	MixedSize Kind = "mixed size"     // a race between accesses that overlap in part: the model promises nothing any more
	Torn      Kind = "lost atomicity" // an atomic whose scope does not include its rival
	Stale     Kind = "wrong result"   // the final assertion failed
	Stuck     Kind = "deadlock"       // threads wait for ever
	Faulted   Kind = "fault"          // a bad address, a trap
	ReadOnly  Kind = "ld.global.nc"   // memory that is written during the kernel is read as if it were constant
	Uneven    Kind = "barrier"        // a barrier that not all of its threads reach
	Endless   Kind = "endless"        // a kernel that never ends, or a very long one: a limit of steps was reached
)

// Access is one operation of one thread, for a report.
type Access struct {
	Task       string // name of the launch
	Device     int
	Block      [3]uint32
	Thread     [3]uint32
	Text       string // the PTX instruction
	File       string
	Line       int    // of the PTX
	Source     string // the CUDA source and its line, where known
	SourceLine int
	Calls      []string // through which that line was inlined, the innermost first: "k.cu:76"
	Buffer     string   // what was accessed
	Offset     int      // bytes in Buffer
	Size       int      // bytes
	Value      uint64   // what was read or written of these, where it is known
	Known      bool     // Value is
	Write      bool
	Strong     bool
	Scope      string // "cta", "gpu", "sys"; "" when weak
}

func (a *Access) String() string {
	var b strings.Builder
	if a.Device == Host {
		b.WriteString("host")
	} else {
		fmt.Fprintf(&b, "device %d %s block (%d,%d,%d) thread (%d,%d,%d)", a.Device, a.Task,
			a.Block[0], a.Block[1], a.Block[2], a.Thread[0], a.Thread[1], a.Thread[2])
	}
	if a.Line > 0 {
		fmt.Fprintf(&b, " %s:%d `%s`", a.File, a.Line, a.Text)
	}
	if a.SourceLine > 0 {
		fmt.Fprintf(&b, " (%s:%d", a.Source, a.SourceLine)
		for _, c := range a.Calls {
			fmt.Fprintf(&b, ", inlined at %s", c)
		}
		b.WriteString(")")
	}
	if a.Buffer != "" {
		fmt.Fprintf(&b, " %s+%d", a.Buffer, a.Offset)
	}
	return b.String()
}

// Finding is one thing that is wrong, and one execution that shows it.
type Finding struct {
	Kind    Kind
	A, B    *Access  // the two accesses, in the order of the execution; B alone for findings with one
	Message string   // what is wrong, in a sentence
	Missing string   // the order that is missing between A and B
	Waiting []Access // Stuck: where each thread waits
	History []Access // the strong operations that led here, the latest last
	Fix     string   // the strengthened instruction that makes it go away, as far as trying shows; "" if none was found
	Unfixed string   // in words, that each was tried and none makes it go away; "" where Fix says one or none was tried
	Token   string   // replays the execution, of this very program: "KEY-r:SEED"; see Program.Key
}

func (f *Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Kind, f.Message)
	if f.A != nil {
		fmt.Fprintf(&b, "\n  first:  %v", f.A)
	}
	if f.B != nil {
		fmt.Fprintf(&b, "\n  second: %v", f.B)
	}
	if f.Missing != "" {
		fmt.Fprintf(&b, "\n  missing: %s", f.Missing)
	}
	for i := range f.Waiting {
		fmt.Fprintf(&b, "\n  waits: %v", &f.Waiting[i])
	}
	if f.Fix != "" {
		fmt.Fprintf(&b, "\n  goes away with: %s", f.Fix)
	}
	if f.Unfixed != "" {
		fmt.Fprintf(&b, "\n  %s", f.Unfixed)
	}
	for i := range f.History {
		fmt.Fprintf(&b, "\n  %3d. %v = %#x", i+1, &f.History[i], f.History[i].Value)
	}
	if f.Token != "" {
		fmt.Fprintf(&b, "\n  replay: %s", f.Token)
	}
	return b.String()
}

// Result is what a search found.
type Result struct {
	Findings   []Finding
	Executions uint64
	Operations uint64             // memory operations that were checked
	Exhaustive bool               // every execution of this program was covered, up to equivalence
	Why        string             // why not, when not
	Evictions  uint64             // writes forgotten because a location's history was full
	Outcomes   map[string]uint64  // executions by what Program.Observe saw: "1 0"
	Executed   map[*ptx.Inst]bool // with Options.Cover: the memory and synchronisation instructions that some thread executed

	spent bool   // Options.budget ended it
	steps uint64 // of all executions
}

// Strategy is how executions are chosen.
type Strategy int

const (
	Random     Strategy = iota // each choice at random, with a bias
	PCT                        // random priorities that change at a few points
	Exhaustive                 // all, each class of equivalent ones once
)

// Options of a search. The zero value is a random one of 1000 executions.
type Options struct {
	Strategy   Strategy
	Seed       uint64
	Executions uint64 // at most; 0: 1000 at random, 1,000,000 when exhaustive
	Steps      uint64 // operations that one execution may take; 0: ten million
	MaxWrites  int    // writes remembered of one location; 0: 64
	Findings   int    // stop after so many different ones; 0: one
	Replay     string // run this token's execution alone; a token of another program is an error
	Progress   func(executions uint64)
	Cover      bool // fill in Result.Executed
	NoFix      bool // look neither for Finding.Fix nor for a shorter history

	budget uint64 // steps of all executions together, about; 0: any
}
