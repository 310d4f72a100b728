package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Spec is a text that says how kernels are to be checked: the memory they are given, what launches them, and what must be
// there in the end. examples/README.md teaches it; this is the reference. A line is a statement, # starts a comment.
//
//	world N                          ranks, each on a device of its own; --set world=3 changes it
//	devices N                        fewer devices: rank r is on device r % N
//	param NAME = EXPR                a number that --set changes
//	param NAME = WORD | WORD | …     a word of those; the first unless --set says otherwise. {NAME} anywhere is replaced by it
//	let NAME = EXPR                  an abbreviation, worked out anew at each use
//	buffer NAME size EXPR [each call] [host] [on EXPR] [align EXPR] [guard EXPR] [fill FILL]
//	word NAME at EXPR = EXPR [for i < EXPR]      32-bit words of its contents at the start
//	arg …                            ahead of the first launch: of every launch
//	launch ENTRY [grid G] [block B] [shared EXPR] [RANKS] [stream EXPR] [times EXPR] [resident EXPR] [dependent | ordinary]
//	                                 grid and block: one block of 32 threads where nothing is said
//	                                 resident: so many blocks of this launch are there at once, whatever others are; the rest
//	                                 wait, and start in any order
//	                                 dependent: it may start when the launch ahead lets it, or as late as at that one's end
//	arg …                            after a launch: of that launch
//	write NAME FILL [RANKS]      a copy in the rank's stream fills a buffer anew; payloads differ each time
//	sync                             all streams wait for all
//	repeat EXPR … end                the steps between, several times
//	expect NAME [at EXPR] [count EXPR] TYPE sum NAME [at EXPR] [RANKS]
//	expect NAME [at EXPR] [count EXPR] TYPE = EXPR [RANKS]
//	expect NAME unchanged [RANKS]
//	giveup                           those that poll in vain, when nothing else can go on, poll until they give up; otherwise
//	                                 that is a deadlock
//
// A buffer exists once for each rank (with on: for that rank alone), and with "each call" once for each launch, so that
// calls have inputs and outputs of their own. Kernels that leave it are a fault; guard adds bytes behind it that
// kernels may reach and must not change. An expect behind the last step judges what is left; one before another step
// what is there when the stream comes to it. Without an expect only races, deadlocks, faults and their like are found, which
// reports then say. sum adds the other buffer's contents, as the host wrote them, in the order
// of the ranks, in fp32, and rounds once, as the library does.
//
//	RANKS  on EXPR,… for these ranks; where EXPR for those for which it is not 0
//	FILL   payload TYPE | TYPE = EXPR of i | a byte
//	G, B   EXPR, or EXPR x EXPR x EXPR
//	TYPE   u8 u16 u32 u64 f16 bf16 f32
//	arg N KIND …         N: which parameter; or
//	arg at EXPR KIND …   bytes from the start of all parameters
//	KIND   ptr NAME [+ EXPR]     the rank's own buffer
//	       ptrs NAME [+ EXPR]    every rank's, one after the other
//	       TYPE EXPR, or TYPEs EXPR: one for each value of peer
//
// An EXPR has numbers, C's operators, names and functions: min, max, align(x, a), bytes(TYPE), pick(k, a, b, …), which
// is a when k is 0, b when it is 1, and in arguments addr(NAME) and addr(NAME, RANK). Names are params, lets, and rank,
// world, call (how many launches this rank made before), i (the element) and peer. Numbers are 64 bits wide, and signed.
type Spec struct {
	Name   string
	Params []SpecParam

	text  string
	entry string // that is launched instead
	*specBody
}

// SpecParam is something that --set can change.
type SpecParam struct {
	Name    string
	Default string
	Choices []string // nil: a number
}

// SpecError is a place in a spec that cannot be used. Msg ends with what to do.
type SpecError struct {
	File      string
	Line, Col int // from 1; 0: the whole
	Msg       string
}

func (e *SpecError) Error() string {
	switch {
	case e.Line == 0:
		return fmt.Sprintf("%s: %s", e.File, e.Msg)
	case e.Col == 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
}

// specBody is what a spec says once its params have values.
type specBody struct {
	file    string
	values  map[string]int64 // params that are numbers, and world
	words   map[string]string
	lets    map[string]specLet
	world   int
	devices int
	giveUp  bool
	buffers []*specBuffer
	inits   []*specWord
	args    []*specArg
	steps   []*specStep
}

// specLet is an abbreviation, and how much it stands for.
type specLet struct {
	x    expr
	cost int
}

type specBuffer struct {
	name         string
	at           place
	size         expr
	align, guard expr // nil: none
	on           expr // nil: every rank
	host, calls  bool
	fill         *specFill
}

// specFill is contents: a type with values, or with a payload when value is nil.
type specFill struct {
	typ   *elemType
	value expr
	at    place
	cost  int // of value
}

type specWord struct {
	at                   place
	buffer               *specBuffer
	offset, value, count expr
	cost                 int // of offset and value
}

type specArg struct {
	at     place
	number int // of the parameter; -1: offset says where
	offset expr
	typ    *elemType
	value  expr
	peers  bool
}

type stepKind uint8

const (
	stepLaunch stepKind = iota
	stepWrite
	stepSync
	stepRepeat
	stepExpect
)

type specStep struct {
	kind  stepKind
	at    place
	on    []expr // ranks; nil: all, or
	where expr   // those for which it is not 0

	entry                           string
	grid, block                     [3]expr
	shared, stream, times, resident expr
	dependent                       bool
	args                            []*specArg

	buffer *specBuffer // write, expect
	fill   *specFill
	expect *specExpect
	body   []*specStep // repeat, times times
}

// specExpect is what a buffer must hold: its start (all nil), values, or a sum.
type specExpect struct {
	typ           *elemType
	offset, count expr
	value         expr
	cost          int // of value
	sum           *specBuffer
	sumOffset     expr
}

// ParseSpec reads a spec. name is for messages. The error is a *SpecError.
func ParseSpec(name, text string) (*Spec, error) {
	s := &Spec{Name: name, text: text}
	var err error
	s.specBody, s.Params, err = parseSpec(name, text, nil)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// with is the spec's body for these values of its params.
func (s *Spec) with(set map[string]string) (*specBody, error) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		i := slices.IndexFunc(s.Params, func(p SpecParam) bool { return p.Name == name })
		if i < 0 {
			var known []string
			for _, p := range s.Params {
				known = append(known, p.Name)
			}
			return nil, &SpecError{File: s.Name, Msg: fmt.Sprintf("nothing is called %q that could be set: there are %s", name, strings.Join(known, ", "))}
		}
		if c := s.Params[i].Choices; c != nil && !slices.Contains(c, set[name]) {
			return nil, &SpecError{File: s.Name, Msg: fmt.Sprintf("%s cannot be %q: use one of %s", name, set[name], strings.Join(c, ", "))}
		}
	}
	body, _, err := parseSpec(s.Name, s.text, set)
	if err == nil && s.entry != "" {
		renameLaunches(body.steps, s.entry)
	}
	return body, err
}

func renameLaunches(steps []*specStep, entry string) {
	for _, st := range steps {
		if st.kind == stepLaunch {
			st.entry = entry
		}
		renameLaunches(st.body, entry)
	}
}

// Launching is the spec with another kernel in the place of the one it launches.
func (s *Spec) Launching(entry string) (*Spec, error) {
	launched, err := s.Entries(nil)
	if err != nil {
		return nil, err
	}
	if len(launched) > 1 {
		return nil, &SpecError{File: s.Name, Msg: fmt.Sprintf("it launches %s, and %s can stand for one only: name kernels in the spec", strings.Join(launched, " and "), entry)}
	}
	other := *s
	other.entry = entry
	return &other, nil
}

// Entries are the kernels that the spec launches with these values of its params, each once.
func (s *Spec) Entries(set map[string]string) ([]string, error) {
	b, err := s.with(set)
	if err != nil {
		return nil, err
	}
	var list []string
	var add func([]*specStep)
	add = func(steps []*specStep) {
		for _, st := range steps {
			if st.kind == stepLaunch && !slices.Contains(list, st.entry) {
				list = append(list, st.entry)
			}
			add(st.body)
		}
	}
	add(b.steps)
	return list, nil
}
