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
// source b, "3-" three that come from none. mkptx writes it; the PTX itself says nothing of lines.

// LineRun is Count lines of PTX that come from one line of a source; from none when Source is empty.
type LineRun struct {
	Count  int
	Source string
	Line   int
}

// lineMap is a .lines file in a form that is quick to search.
type lineMap struct {
	first []int // the first PTX line of each run, from 1
	runs  []LineRun
}

// Lines says where line number line of the shipped PTX file came from: in which source of this folder, on which line. Of
// functions that were inlined it is the innermost.
func Lines(file string, line int) (source string, sourceLine int, ok bool) {
	m := lineMapOf(path.Base(file))
	if m == nil {
		return "", 0, false
	}
	i, exact := slices.BinarySearch(m.first, line)
	if !exact {
		i--
	}
	if i < 0 || m.runs[i].Source == "" || line >= m.first[i]+m.runs[i].Count {
		return "", 0, false
	}
	return m.runs[i].Source, m.runs[i].Line, true
}

var lineMaps sync.Map // file name → *lineMap

// lineMapOf is the map of a shipped PTX file, nil for others.
func lineMapOf(file string) *lineMap {
	if m, ok := lineMaps.Load(file); ok {
		return m.(*lineMap)
	}
	m := new(lineMap)
	text, err := lineFiles.ReadFile("ptx/" + LinesFile(file))
	if err == nil {
		var runs []LineRun
		if runs, err = ParseLines(text); err == nil {
			at := 1
			for _, r := range runs {
				m.first, m.runs, at = append(m.first, at), append(m.runs, r), at+r.Count
			}
		}
	}
	if err != nil { // not one of ours; that ours can be read is tested
		return nil
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
	var b, body strings.Builder
	b.WriteString(linesHead)
	letters := map[string]byte{}
	column := 0
	for _, r := range runs {
		token := fmt.Sprintf("%d-", r.Count)
		if r.Source != "" {
			letter, ok := letters[r.Source]
			if !ok {
				letter = 'a' + byte(len(letters))
				if letter > 'z' {
					return nil, fmt.Errorf("lines of PTX: more than 26 sources")
				}
				letters[r.Source] = letter
				fmt.Fprintf(&b, "%c %s\n", letter, r.Source)
			}
			token = fmt.Sprintf("%d%c%d", r.Count, letter, r.Line)
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
	return []byte(b.String() + body.String() + "\n"), nil
}

// ParseLines reads a .lines file.
func ParseLines(text []byte) ([]LineRun, error) {
	names := map[byte]string{}
	var runs []LineRun
	for n, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if len(line) > 2 && line[1] == ' ' && line[0] >= 'a' && line[0] <= 'z' {
			names[line[0]] = line[2:]
			continue
		}
		for _, token := range strings.Fields(line) {
			r, err := parseRun(token, names)
			if err != nil {
				return nil, fmt.Errorf("lines of PTX: line %d: %w", n+1, err)
			}
			runs = append(runs, r)
		}
	}
	return runs, nil
}

func parseRun(token string, names map[byte]string) (r LineRun, err error) {
	at := strings.IndexFunc(token, func(c rune) bool { return c < '0' || c > '9' })
	if at < 0 {
		return r, fmt.Errorf("%q names no source", token)
	}
	if r.Count, err = strconv.Atoi(token[:at]); err != nil || r.Count < 1 {
		return r, fmt.Errorf("%q has no count", token)
	}
	if token[at:] == "-" {
		return r, nil
	}
	name, ok := names[token[at]]
	if !ok {
		return r, fmt.Errorf("%q names a source that is not listed", token)
	}
	r.Source = name
	if r.Line, err = strconv.Atoi(token[at+1:]); err != nil {
		return r, fmt.Errorf("%q has no line", token)
	}
	return r, nil
}
