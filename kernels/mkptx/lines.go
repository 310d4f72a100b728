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

// lineFlags make the compiler say where each line came from and what was inlined, and change nothing else.
var lineFlags = []string{"-gline-directives-only", "-Xclang", "-debug-info-kind=line-tables-only"}

var (
	fileDirective = regexp.MustCompile(`^\s*\.file\s+(\d+)\s+"([^"]*)"`)
	locDirective  = regexp.MustCompile(`^\s*\.loc\s+(\d+)\s+(\d+)\s`)
	debugLabel    = regexp.MustCompile(`^(\$L__(?:tmp|func_begin|func_end)\d+):$`) // that only debuggers use
)

// lines compiles a source once more with debug information, and maps the lines of text, which was compiled without. It is
// an error if the two compilations differ in anything else, for then the map would say what is not so. read gives a source.
func lines(dir, clang, src string, sm, ptxVersion int, text []byte, read func(string) ([]byte, error)) ([]byte, error) {
	marked, _, err := compile(dir, clang, src, sm, ptxVersion, lineFlags...)
	if err != nil {
		return nil, err
	}
	plain, runs, err := stripLines(marked, read)
	if err != nil {
		return nil, fmt.Errorf("%s for sm_%d: %w", src, sm, err)
	}
	if !bytes.Equal(plain, text) {
		return nil, fmt.Errorf("%s for sm_%d: %s changes the code at line %d, so its lines are not those of the PTX",
			src, sm, strings.Join(lineFlags, " "), differ(plain, text))
	}
	return kernels.FormatLines(runs)
}

// stripLines takes the debug information out of PTX and says where each line that is left came from.
func stripLines(marked []byte, read func(string) ([]byte, error)) (plain []byte, runs []kernels.LineRun, err error) {
	rows := strings.SplitAfter(string(marked), "\n")
	sources := map[string]string{}
	for _, row := range rows {
		if m := fileDirective.FindStringSubmatch(row); m != nil {
			sources[m[1]] = path.Base(m[2]) // all lie in one folder
		}
	}
	labels := map[string]int{}
	var now kernels.LineRun
	for i, row := range rows {
		bare := strings.TrimRight(row, "\n")
		if strings.HasPrefix(strings.TrimSpace(bare), ".section") {
			return finish(plain, runs, rows[i:], labels, sources, read)
		}
		switch {
		case row == "", fileDirective.MatchString(bare):
			continue
		case debugLabel.MatchString(bare):
			labels[debugLabel.FindStringSubmatch(bare)[1]] = len(runs) + 1
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
		case strings.HasPrefix(bare, ".target"):
			row = strings.Replace(row, ", debug", "", 1)
		}
		plain = append(plain, row...)
		if strings.HasPrefix(row, "}") { // the end of a function
			now = kernels.LineRun{}
		}
		runs = append(runs, kernels.LineRun{Count: 1, Source: now.Source, Line: now.Line})
	}
	return finish(plain, runs, nil, labels, sources, read)
}

// finish adds the calls to runs of one line each, and joins those that are alike.
func finish(plain []byte, single []kernels.LineRun, debug []string, labels map[string]int, sources map[string]string,
	read func(string) ([]byte, error)) ([]byte, []kernels.LineRun, error) {
	all, err := readInlined(debug, labels, sources)
	if err != nil {
		return nil, nil, err
	}
	sorted(all)
	of := map[string][]string{}
	var runs []kernels.LineRun
	for i, r := range single {
		if r.Source != "" && len(all) > 0 {
			if of[r.Source] == nil {
				text, err := read(r.Source)
				if err != nil {
					return nil, nil, err
				}
				of[r.Source] = functions(text)
			}
			if r.Line <= len(of[r.Source]) {
				r.Calls = caller(all, i+1, of[r.Source][r.Line-1])
			}
		}
		if last := len(runs) - 1; last >= 0 && runs[last].Source == r.Source && runs[last].Line == r.Line && runs[last].Calls == r.Calls {
			runs[last].Count++
			continue
		}
		runs = append(runs, r)
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
