package check

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strconv"
)

var (
	fileDirective = regexp.MustCompile(`(?m)^\s*\.file\s+(\d+)\s+"([^"]*)"`)
	locDirective  = regexp.MustCompile(`(?m)^\s*\.loc\s+(\d+)\s+(\d+)\s`)
)

// LinesOf reads .loc directives, as `clang -gline-directives-only` and `nvcc -lineinfo` leave them in PTX, for Program.Lines.
// It is nil where there are none.
func LinesOf(name string, text []byte) func(file string, line int) (source string, sourceLine int, ok bool) {
	type loc struct {
		at, line int
		source   string
	}
	sources := map[string]string{}
	for _, m := range fileDirective.FindAllSubmatch(text, -1) {
		sources[string(m[1])] = path.Base(string(m[2]))
	}
	var locs []loc
	line, counted := 1, 0
	for _, m := range locDirective.FindAllSubmatchIndex(text, -1) {
		line += bytes.Count(text[counted:m[2]], []byte("\n"))
		counted = m[2]
		n, _ := strconv.Atoi(string(text[m[4]:m[5]])) // digits
		locs = append(locs, loc{line, n, sources[string(text[m[2]:m[3]])]})
	}
	if len(locs) == 0 {
		return nil
	}
	return func(file string, line int) (string, int, bool) {
		i, exact := slices.BinarySearchFunc(locs, line, func(l loc, line int) int { return l.at - line })
		if !exact {
			i--
		}
		if file != name || i < 0 || locs[i].line == 0 || locs[i].source == "" {
			return "", 0, false
		}
		return locs[i].source, locs[i].line, true
	}
}
