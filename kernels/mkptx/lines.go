package main

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/kernels"
)

// lineFlag makes the compiler say where each line came from, and changes nothing else.
const lineFlag = "-gline-directives-only"

var (
	fileDirective = regexp.MustCompile(`^\s*\.file\s+(\d+)\s+"([^"]*)"`)
	locDirective  = regexp.MustCompile(`^\s*\.loc\s+(\d+)\s+(\d+)\s`)
	// What else that flag adds: labels that only debuggers use, and an empty section.
	debugLine = regexp.MustCompile(`^(\$L__(tmp|func_begin|func_end)\d+:|\s*\.section\s+\.debug_loc\s*\{\s*\})$`)
)

// lines compiles a source once more with directives for lines, and maps the lines of text, which was compiled without.
// It is an error if the two compilations differ in anything else, for then the map would say what is not so.
func lines(dir, clang, src string, sm, ptxVersion int, text []byte) ([]byte, error) {
	marked, _, err := compile(dir, clang, src, sm, ptxVersion, lineFlag)
	if err != nil {
		return nil, err
	}
	plain, runs, err := stripLines(marked)
	if err != nil {
		return nil, fmt.Errorf("%s for sm_%d: %w", src, sm, err)
	}
	if !bytes.Equal(plain, text) {
		return nil, fmt.Errorf("%s for sm_%d: %s changes the code at line %d, so its lines are not those of the PTX",
			src, sm, lineFlag, differ(plain, text))
	}
	return kernels.FormatLines(runs)
}

// stripLines takes the directives out of PTX and says where each line that is left came from.
func stripLines(marked []byte) (plain []byte, runs []kernels.LineRun, err error) {
	rows := strings.SplitAfter(string(marked), "\n")
	sources := map[string]string{}
	for _, row := range rows {
		if m := fileDirective.FindStringSubmatch(row); m != nil {
			sources[m[1]] = path.Base(m[2]) // all lie in one folder
		}
	}
	var now kernels.LineRun
	for _, row := range rows {
		switch bare := strings.TrimRight(row, "\n"); {
		case bare == "" && row == "", fileDirective.MatchString(bare), debugLine.MatchString(bare):
			continue
		case locDirective.MatchString(bare):
			m := locDirective.FindStringSubmatch(bare)
			now = kernels.LineRun{}
			if n, _ := strconv.Atoi(m[2]); n > 0 { // digits; line 0 is code that no line stands for
				if sources[m[1]] == "" {
					return nil, nil, fmt.Errorf(".loc names file %s, which is not declared", m[1])
				}
				now.Source, now.Line = sources[m[1]], n
			}
			continue
		}
		plain = append(plain, row...)
		if strings.HasPrefix(row, "}") { // the end of a function
			now = kernels.LineRun{}
		}
		if last := len(runs) - 1; last >= 0 && runs[last].Source == now.Source && runs[last].Line == now.Line {
			runs[last].Count++
			continue
		}
		runs = append(runs, kernels.LineRun{Count: 1, Source: now.Source, Line: now.Line})
	}
	return plain, runs, nil
}

// differ is the number of the first line in which two texts differ.
func differ(a, b []byte) int {
	x, y := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range x {
		if i >= len(y) || !bytes.Equal(x[i], y[i]) {
			return i + 1
		}
	}
	return len(x)
}
