package check

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
)

var (
	fileDirective = regexp.MustCompile(`(?m)^\s*\.file\s+(\d+)\s+"([^"]*)"`)
	locDirective  = regexp.MustCompile(`(?m)^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:\s*,\s*function_name\s+[^,\n]+,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?`)
)

// sourceLines are the .loc directives of a PTX file.
type sourceLines struct {
	name    string
	sources map[string]string // by number
	locs    []sourceLoc
}

// sourceLoc is one directive. Code that was inlined also names the place of the call, for which there is a directive ahead.
type sourceLoc struct {
	at           int // line of the PTX
	here, caller sourcePlace
}

type sourcePlace struct {
	file         string // its number; "": none
	line, column int
}

// LinesOf reads .loc directives, as `clang -gline-directives-only` and `nvcc -lineinfo` leave them in PTX, for Program.Lines and
// Program.Calls. Both are nil where there are none.
func LinesOf(name string, text []byte) (lines func(file string, line int) (source string, sourceLine int, ok bool), calls func(file string, line int) []string) {
	s := &sourceLines{name: name, sources: map[string]string{}}
	for _, m := range fileDirective.FindAllSubmatch(text, -1) {
		s.sources[string(m[1])] = path.Base(string(m[2]))
	}
	line, counted := 1, 0
	for _, m := range locDirective.FindAllSubmatchIndex(text, -1) {
		line += bytes.Count(text[counted:m[2]], []byte("\n"))
		counted = m[2]
		place := func(i int) (p sourcePlace) {
			if m[i] >= 0 {
				p.file = string(text[m[i]:m[i+1]])
				p.line, _ = strconv.Atoi(string(text[m[i+2]:m[i+3]])) // digits
				p.column, _ = strconv.Atoi(string(text[m[i+4]:m[i+5]]))
			}
			return p
		}
		s.locs = append(s.locs, sourceLoc{line, place(2), place(8)})
	}
	if len(s.locs) == 0 {
		return nil, nil
	}
	return s.line, s.calls
}

// of is the index of the directive that a line of the PTX belongs to, -1 if there is none that says anything.
func (s *sourceLines) of(file string, line int) int {
	i, exact := slices.BinarySearchFunc(s.locs, line, func(l sourceLoc, line int) int { return l.at - line })
	if !exact {
		i--
	}
	if file != s.name || i < 0 || s.locs[i].here.line == 0 || s.sources[s.locs[i].here.file] == "" {
		return -1
	}
	return i
}

func (s *sourceLines) line(file string, line int) (source string, sourceLine int, ok bool) {
	i := s.of(file, line)
	if i < 0 {
		return "", 0, false
	}
	return s.sources[s.locs[i].here.file], s.locs[i].here.line, true
}

// calls are those through which a line was inlined, the innermost first.
func (s *sourceLines) calls(file string, line int) (list []string) {
	for i := s.of(file, line); i >= 0; {
		at := s.locs[i].caller
		if at.line == 0 || s.sources[at.file] == "" {
			break
		}
		list = append(list, fmt.Sprintf("%s:%d", s.sources[at.file], at.line))
		for i--; i >= 0 && s.locs[i].here != at; i-- {
		}
	}
	return list
}
