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
	Value      uint64   // what was read or written of these, where it is known: of 16 the first 8
	High       uint64   // and the other 8
	Known      bool     // Value is, and High
	Write      bool
	Strong     bool
	Scope      string // "cta", "gpu", "sys"; "" when weak

	ReadFrom *Access  // of a read in the history of a wrong result: the write that it read
	Newer    *Access  // and the newest write that was there, if it read an older one
	Writes   []Access // of a thread that polls in a deadlock: the latest writes of what it polls, the last one last
	Earlier  int      // and how many came before those
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

// hex is a's value: of 16 bytes the halves, as mov.b128 has them.
func (a *Access) hex() string {
	if a.Size > 8 {
		return fmt.Sprintf("{%#x, %#x}", a.Value, a.High)
	}
	return fmt.Sprintf("%#x", a.Value)
}

// Finding is one thing that is wrong, and one execution that shows it.
type Finding struct {
	Kind    Kind
	A, B    *Access  // the two accesses, in the order of the execution; B alone for findings with one
	Message string   // what is wrong, in a sentence
	Missing string   // the order that is missing between A and B
	Waiting []Access // Stuck: where each thread waits, those that poll first
	History []Access // the strong operations that led here, the latest last
	Traced  bool     // Stale: B is the write of what is wrong, and History the reads of its thread ahead of it, strong or of others' memory
	Left    int      // and how many more there were of those
	Fix     string   // the strengthened instruction that makes it go away, as far as trying shows; "" if none was found
	Unfixed string   // in words, that each was tried and none makes it go away; "" where Fix says one or none was tried
	Token   string   // replays the execution, of this very program: "KEY-r:SEED"; see Program.Key

	wrong  *wrong   // Stale: where
	writer event    // and whose write it is
	led    []Access // the strong operations that led here, where History is something else
}

func (f *Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Kind, f.Message)
	if f.A != nil {
		fmt.Fprintf(&b, "\n  first:  %v", f.A)
	}
	switch {
	case f.B == nil:
	case f.Traced:
		fmt.Fprintf(&b, "\n  wrote:  %v = %s", f.B, f.B.hex())
	case f.Kind == Stale:
		fmt.Fprintf(&b, "\n  wrote:  %v", f.B)
	default:
		fmt.Fprintf(&b, "\n  second: %v", f.B)
	}
	if f.Missing != "" {
		fmt.Fprintf(&b, "\n  missing: %s", f.Missing)
	}
	for i := range f.Waiting {
		w := &f.Waiting[i]
		fmt.Fprintf(&b, "\n  waits: %v", w)
		if w.Buffer == "" {
			continue
		}
		fmt.Fprintf(&b, " = %s", w.hex())
		for k := range w.Writes {
			fmt.Fprintf(&b, "\n    written: %v = %s", &w.Writes[k], w.Writes[k].hex())
		}
		if w.Earlier > 0 {
			fmt.Fprintf(&b, "\n    (and %d times before)", w.Earlier)
		}
		if len(w.Writes) == 0 {
			b.WriteString("\n    never written")
		}
	}
	if f.Fix != "" {
		fmt.Fprintf(&b, "\n  goes away with: %s", f.Fix)
	}
	if f.Unfixed != "" {
		fmt.Fprintf(&b, "\n  %s", f.Unfixed)
	}
	f.tell(&b)
	if f.Token != "" {
		fmt.Fprintf(&b, "\n  replay: %s", f.Token)
	}
	return b.String()
}

// tell prints the history. Of a deadlock in which somebody polls, what they poll says more.
func (f *Finding) tell(b *strings.Builder) {
	switch {
	case f.Polls():
		return
	case f.Traced && len(f.History) == 0:
		b.WriteString("\n  its thread read nothing strong or of others ahead of that")
	case f.Traced:
		b.WriteString("\n  ahead of that its thread read:")
	}
	for i := range f.History {
		a := &f.History[i]
		fmt.Fprintf(b, "\n  %3d. %v", i+1, a)
		if a.Size <= 16 {
			fmt.Fprintf(b, " = %s", a.hex())
		}
		switch w := a.ReadFrom; {
		case w == nil:
		case w.Line == 0 && w.Text != "":
			b.WriteString("\n       from: what was there at the start")
		default:
			fmt.Fprintf(b, "\n       from: %v", w)
		}
		if a.Newer != nil {
			fmt.Fprintf(b, "\n       STALE: newer is %v = %s", a.Newer, a.Newer.hex())
		}
	}
	if f.Left > 0 {
		fmt.Fprintf(b, "\n  (and %d more such reads)", f.Left)
	}
}

// Polls is whether it is a deadlock in which somebody polls memory.
func (f *Finding) Polls() bool {
	return f.Kind == Stuck && len(f.Waiting) > 0 && f.Waiting[0].Buffer != ""
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
	PCT                        // random priorities that change at a few points; who goes round in loops for long falls behind the others
	Exhaustive                 // all, each class of equivalent ones once
)

// Options of a search. The zero value is a random one of 1000 executions.
type Options struct {
	Strategy   Strategy
	Seed       uint64
	Executions uint64 // at most; 0: 1000 at random, 1,000,000 when exhaustive
	Steps      uint64 // operations that one execution may take; 0: ten million. A systematic one may make two million choices, whatever this is
	MaxWrites  int    // writes remembered of one location; 0: 64
	Findings   int    // stop after so many different ones; 0: one
	Replay     string // run this token's execution alone; a token of another program is an error
	Progress   func(executions uint64)
	Cover      bool // fill in Result.Executed
	NoFix      bool // look neither for Finding.Fix nor for a shorter history, nor for what led to a wrong result

	budget uint64 // steps of all executions together, about; 0: any
}
