package kernels

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed ptx/*.lines
var lineFiles embed.FS

// A .lines file says where in the CUDA sources each line of a PTX file came from. After a comment come the names of the
// sources, "a oneshot_pull.cu", and then runs of PTX lines in order: "3b87" is three lines that come from line 87 of the
// source b, "3-" three that come from none. "3b87<2" says that they were inlined through the calls of row "<2 b197 a104": by
// line 197 of b, and that by line 104 of a. mkptx writes it; the PTX itself says nothing of lines.

// LineRun is Count lines of PTX that come from one line of a source; from none when Source is empty.
type LineRun struct {
	Count  int
	Source string
	Line   int
	Calls  string // the calls through which it was inlined, innermost first: "fenceline.cuh:197 oneshot_pull.cu:104"
}

// lineMap is a .lines file in a form that is quick to search.
type lineMap struct {
	first []int // the first PTX line of each run, from 1
	runs  []LineRun
}

// Lines says where line number line of the shipped PTX file came from: in which source of this folder, on which line. Of
// functions that were inlined it is the innermost.
func Lines(file string, line int) (source string, sourceLine int, ok bool) {
	r := runAt(file, line)
	return r.Source, r.Line, r.Source != ""
}

// Calls are the calls through which line number line of the shipped PTX file was inlined into its kernel, the innermost
// first, each as "fenceline.cuh:197"; none for code that the kernel holds itself.
func Calls(file string, line int) []string { return strings.Fields(runAt(file, line).Calls) }

// runAt is the run that holds a line; the zero value where there is none.
func runAt(file string, line int) LineRun {
	m := lineMapOf(path.Base(file))
	if m == nil {
		return LineRun{}
	}
	i, exact := slices.BinarySearch(m.first, line)
	if !exact {
		i--
	}
	if i < 0 || line >= m.first[i]+m.runs[i].Count {
		return LineRun{}
	}
	return m.runs[i]
}

var lineMaps sync.Map // file name → *lineMap

// lineMapOf is the map of a shipped PTX file, nil for others.
func lineMapOf(file string) *lineMap {
	if m, ok := lineMaps.Load(file); ok {
		return m.(*lineMap)
	}
	m := new(lineMap)
	parts := joinedParts(file)
	if parts == nil {
		parts = []string{file}
	}
	at := 1
	for _, part := range parts {
		text, err := lineFiles.ReadFile("ptx/" + LinesFile(part))
		if err != nil {
			return nil // not one of ours
		}
		runs, err := ParseLines(text)
		if err != nil {
			return nil // that ours can be read is tested
		}
		for _, r := range runs {
			m.first, m.runs, at = append(m.first, at), append(m.runs, r), at+r.Count
		}
	}
	lineMaps.Store(file, m)
	return m
}

// LinesFile is the name of the file that holds a PTX file's lines.
func LinesFile(ptx string) string { return strings.TrimSuffix(ptx, ".ptx") + ".lines" }

const (
	linesHead  = "# Lines of PTX and where they came from; kernels/lines.go says how to read them.\n"
	linesWidth = 110
)

// FormatLines writes runs as a .lines file. It takes no more than 26 sources.
func FormatLines(runs []LineRun) ([]byte, error) {
	var head, calls, body strings.Builder
	head.WriteString(linesHead)
	letters, chains := map[string]byte{}, map[string]int{}
	place := func(source, line string) (string, error) {
		letter, ok := letters[source]
		if !ok {
			letter = 'a' + byte(len(letters))
			if letter > 'z' {
				return "", fmt.Errorf("lines of PTX: more than 26 sources")
			}
			letters[source] = letter
			fmt.Fprintf(&head, "%c %s\n", letter, source)
		}
		return string(letter) + line, nil
	}
	column := 0
	for _, r := range runs {
		token := strconv.Itoa(r.Count) + "-"
		if r.Source != "" {
			at, err := place(r.Source, strconv.Itoa(r.Line))
			if err != nil {
				return nil, err
			}
			token = strconv.Itoa(r.Count) + at
		}
		if r.Calls != "" {
			n, ok := chains[r.Calls]
			if !ok {
				n = len(chains)
				chains[r.Calls] = n
				fmt.Fprintf(&calls, "<%d", n)
				for _, c := range strings.Fields(r.Calls) {
					source, line, _ := strings.Cut(c, ":")
					at, err := place(source, line)
					if err != nil {
						return nil, err
					}
					calls.WriteString(" " + at)
				}
				calls.WriteByte('\n')
			}
			token += fmt.Sprintf("<%d", n)
		}
		switch {
		case column+len(token) >= linesWidth:
			body.WriteByte('\n')
			column = 0
		case column > 0:
			body.WriteByte(' ')
			column++
		}
		body.WriteString(token)
		column += len(token)
	}
	return []byte(head.String() + calls.String() + body.String() + "\n"), nil
}

// lineReader is what a .lines file has said so far.
type lineReader struct {
	names  map[byte]string
	chains map[string]string
	runs   []LineRun
}

// ParseLines reads a .lines file.
func ParseLines(text []byte) ([]LineRun, error) {
	r := &lineReader{names: map[byte]string{}, chains: map[string]string{}}
	for n, line := range strings.Split(string(text), "\n") {
		if err := r.row(line); err != nil {
			return nil, fmt.Errorf("lines of PTX: line %d: %w", n+1, err)
		}
	}
	return r.runs, nil
}

func (r *lineReader) row(line string) error {
	switch {
	case strings.HasPrefix(line, "#"):
		return nil
	case strings.HasPrefix(line, "<"):
		f := strings.Fields(line)
		var calls []string
		for _, c := range f[1:] {
			source, n, err := r.place(c)
			if err != nil {
				return err
			}
			calls = append(calls, fmt.Sprintf("%s:%d", source, n))
		}
		r.chains[f[0][1:]] = strings.Join(calls, " ")
		return nil
	case len(line) > 2 && line[1] == ' ' && line[0] >= 'a' && line[0] <= 'z':
		r.names[line[0]] = line[2:]
		return nil
	}
	for _, token := range strings.Fields(line) {
		if err := r.run(token); err != nil {
			return err
		}
	}
	return nil
}

func (r *lineReader) run(token string) (err error) {
	var run LineRun
	body, chain, called := strings.Cut(token, "<")
	at := strings.IndexFunc(body, func(c rune) bool { return c < '0' || c > '9' })
	if at < 0 {
		return fmt.Errorf("%q names no source", token)
	}
	if run.Count, err = strconv.Atoi(body[:at]); err != nil || run.Count < 1 {
		return fmt.Errorf("%q has no count", token)
	}
	if body[at:] != "-" {
		if run.Source, run.Line, err = r.place(body[at:]); err != nil {
			return err
		}
	}
	if called {
		var ok bool
		if run.Calls, ok = r.chains[chain]; !ok {
			return fmt.Errorf("%q names calls that are not listed", token)
		}
	}
	r.runs = append(r.runs, run)
	return nil
}

// place is a source's letter and a line.
func (r *lineReader) place(token string) (source string, line int, err error) {
	source, ok := r.names[token[0]]
	if !ok {
		return "", 0, fmt.Errorf("%q names a source that is not listed", token)
	}
	if line, err = strconv.Atoi(token[1:]); err != nil {
		return "", 0, fmt.Errorf("%q has no line", token)
	}
	return source, line, nil
}
