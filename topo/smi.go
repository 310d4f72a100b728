package topo

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrText matches a *TextError.
var ErrText = errors.New("unreadable topology text")

// TextError is topology text that cannot be read: where, and what stood there.
type TextError struct {
	Name   string // of the file
	Line   int    // from 1
	Column int    // bytes, from 1; 0 when the whole line is meant
	Msg    string
}

func (e *TextError) Error() string {
	if e.Column == 0 {
		return fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Column, e.Msg)
}

// Unwrap gives ErrText.
func (e *TextError) Unwrap() error { return ErrText }

// NIC is a network adapter of the topology matrix.
type NIC struct {
	Name   string   `json:"name"`             // as the matrix names it: "NIC0", "mlx5_0"
	Device string   `json:"device,omitempty"` // what the NIC legend calls it: "mlx5_0"
	GPUs   []string `json:"gpus"`             // path to each GPU
	NICs   []string `json:"nics,omitempty"`   // path to each NIC, "X" to itself; where the matrix has rows for NICs
}

// Affinity is the columns behind the topology matrix, as nvidia-smi printed them; empty where a cell is blank.
type Affinity struct {
	CPU       string `json:"cpu,omitempty"`      // "0-55,112-167"
	NUMA      string `json:"numa,omitempty"`     // "0", "0,3-9"
	GPUNUMAID string `json:"gpu_numa,omitempty"` // "N/A"
}

// ParseSMI reads the output of `nvidia-smi topo -m`, with or without matrices of `-p2p` beside it; name is for
// messages. A line that shows the command (`nvidia-smi topo -p2p w`, or --p2pstatus) says which capability the matrix
// below it is of. One P2P matrix may lack that: it is taken for -p2p r, and noted. What WriteLinks and WriteMatrix print
// is read as well, cells such as "OK/CNS" included. The devices have no UUID, and nothing is known of the driver. The
// older word SOC becomes SYS. What cannot be read for certain is a *TextError.
func ParseSMI(name string, text []byte) (*Machine, error) {
	r := &smiReader{name: name, done: map[string]int{}, m: &Machine{Version: FormatVersion, Driver: Driver{Name: pastedName}}}
	for line := range strings.Lines(string(bytes.TrimPrefix(text, byteOrderMark))) {
		r.line++
		// Of the same length, so that columns stay what they are.
		line = escapes.ReplaceAllStringFunc(line, func(s string) string { return strings.Repeat(" ", len(s)) })
		if err := r.read(strings.TrimRight(line, "\r\n")); err != nil {
			return nil, err
		}
	}
	if err := r.complete(); err != nil {
		return nil, err
	}
	if r.done["m"] == 0 {
		return nil, r.fail(0, "no topology matrix: want the output of `nvidia-smi topo -m`")
	}
	return r.m, nil
}

var (
	// Terminal escapes, also where a paste lost or spelled out the escape character.
	escapes = regexp.MustCompile(`(?:\x1b|␛|\^\[)\[[0-9;]*[A-Za-z]|\x1b\([0-9A-B]|\[[0-9]+(?:;[0-9]+)*m`)

	gpuName = regexp.MustCompile(`^GPU(\d{1,3})$`)
	// Names that may run into the next one come first. Any other adapter's name ends at a space.
	colName  = regexp.MustCompile(`^(?:GPU\d{1,3}|NIC\d{1,3}|mlx\d+_\d+|CPU Affinity|NUMA Affinity|GPU NUMA ID)`)
	nicName  = regexp.MustCompile(`^[a-z][a-z0-9_]*\d(?:[ \t]|$)`)
	rowStart = regexp.MustCompile(`^(?:GPU\d{1,3}|NIC\d{1,3}|mlx\d+_\d+)(?:[ \t]|$)`)
	p2pFlag  = regexp.MustCompile(`(?:^|[ \t])--?p2p(?:_?status)?(?:[ \t]*=[ \t]*|[ \t]+)(\S+)`)
	nicEntry = regexp.MustCompile(`^(NIC\d{1,3}):[ \t]*([!-~]+)[ \t]*$`)
)

// affinityNames are the columns behind the matrix, in their order.
var affinityNames = [...]string{"CPU Affinity", "NUMA Affinity", "GPU NUMA ID"}

// pastedName is the driver of a machine that was read from pasted text.
const pastedName = "nvidia-smi"

// ownCaption stands above what WriteMatrix prints. A matrix below it is of reading and writing together: "rw".
const ownCaption = "P2P: can the row's device reach the column's memory?"

// byteOrderMark is what some editors put ahead of UTF-8.
var byteOrderMark = []byte("\xef\xbb\xbf")

// smiReader reads pasted nvidia-smi text line by line.
type smiReader struct {
	name   string
	line   int
	m      *Machine
	legend bool
	label  string         // capability that a command line announced: "r", "w" …, "rw" below ownCaption; "" none
	done   map[string]int // line at which a matrix of each kind began; "m" is that of paths, "" a P2P matrix without a label
	twice  bool           // the matrix being read says again what one of kind "rw" said, and must say the same

	// Of the matrix being read.
	columns []string // names of its GPUs and NICs; nil outside a matrix
	gpus    int
	extra   []string // its affinity columns
	rows    int      // read so far
	begun   int      // line of its header
	kind    string   // key in done, once a cell has told paths from states; "?" before
}

func (r *smiReader) fail(column int, format string, args ...any) error {
	return &TextError{Name: r.name, Line: r.line, Column: column, Msg: fmt.Sprintf(format, args...)}
}

// read takes one line, without escapes.
func (r *smiReader) read(line string) error {
	body := strings.TrimLeft(line, " \t")
	at := len(line) - len(body) + 1
	command := max(0, strings.LastIndex(body, "nvidia-smi")) // a prompt ahead of it may contain anything
	flag := p2pFlag.FindStringSubmatchIndex(body[command:])
	at += command
	switch {
	case strings.TrimSpace(body) == "":
		return r.complete()
	case strings.HasPrefix(body, "Legend:"), strings.HasPrefix(body, "NIC Legend:"):
		r.legend = true
		return r.complete()
	case flag != nil:
		if r.label = body[command:][flag[2]:flag[3]]; len(r.label) != 1 || !strings.Contains("rwnap", r.label) {
			return r.fail(at+flag[2], "no such capability of -p2p, %q: want r, w, n, a or p", clip(r.label))
		}
		label := r.label
		err := r.complete()
		r.legend, r.label = false, label
		return err
	case strings.HasPrefix(body, ownCaption):
		err := r.complete()
		r.legend, r.label = false, "rw"
		return err
	case strings.Contains(body, "nvidia-smi") && !rowStart.MatchString(body): // another command
		err := r.complete()
		r.legend, r.label = false, ""
		return err
	case r.columns != nil:
		return r.row(line)
	}
	at -= command
	if names, at := header(line); names != nil {
		r.legend = false
		return r.begin(names, at)
	}
	switch entry := nicEntry.FindStringSubmatch(body); {
	case rowStart.MatchString(body):
		return r.fail(at, "a row without a header line above it")
	case r.legend && entry != nil:
		for i := range r.m.NICs { // the legend has NICs that the matrix had no room for
			if r.m.NICs[i].Name == entry[1] {
				r.m.NICs[i].Device = entry[2]
			}
		}
		return nil
	case r.legend, len(r.done) == 0, strings.HasPrefix(body, "```"):
		return nil // the legend, what a terminal shows ahead of the matrix, a fence around it
	}
	return r.fail(at, "want a matrix, a legend or an empty line, got %q", clip(body))
}

// header splits a header line into column names, which may run into one another, and their places. Nil for other lines.
func header(line string) (names []string, at []int) {
	for rest := line; ; {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			break
		}
		n := colName.FindString(rest)
		if n == "" {
			n = strings.TrimRight(nicName.FindString(rest), " \t")
		}
		if n == "" {
			return nil, nil
		}
		names, at = append(names, n), append(at, len(line)-len(rest)+1)
		rest = rest[len(n):]
	}
	// A row of a matrix starts with a name as well, but goes on with cells.
	if len(names) == 0 || names[0] != "GPU0" {
		return nil, nil
	}
	return names, at
}

// begin starts a matrix.
func (r *smiReader) begin(names []string, at []int) error {
	r.columns, r.extra, r.rows, r.gpus, r.kind, r.begun = nil, nil, 0, 0, "?", r.line
	for k, n := range names {
		place := slices.Index(affinityNames[:], n)
		switch {
		case slices.Contains(names[:k], n):
			return r.fail(at[k], "two columns %s", n)
		case place >= 0 && len(r.extra) > 0 && place < slices.Index(affinityNames[:], r.extra[len(r.extra)-1]):
			return r.fail(at[k], "column %s behind %s", n, r.extra[len(r.extra)-1])
		case place >= 0:
			r.extra = append(r.extra, n)
		case r.extra != nil:
			return r.fail(at[k], "column %s behind the affinities", n)
		default:
			if g := gpuName.FindStringSubmatch(n); g != nil {
				if g[1] != strconv.Itoa(r.gpus) || len(r.columns) != r.gpus {
					return r.fail(at[k], "column %s where GPU%d or a NIC was expected", n, r.gpus)
				}
				r.gpus++
			}
			r.columns = append(r.columns, n)
		}
	}
	if r.m.Devices != nil && r.gpus != len(r.m.Devices) {
		return r.fail(at[0], "a matrix of %d GPUs, the one above has %d", r.gpus, len(r.m.Devices))
	}
	if r.m.Devices == nil {
		for i := range r.gpus {
			r.m.Devices = append(r.m.Devices, Device{Ordinal: i, Name: "unknown"})
			r.m.Pairs = append(r.m.Pairs, make([]Pair, r.gpus))
		}
	}
	if len(r.columns) > r.gpus || r.extra != nil || r.gpus == 1 && r.done["m"] == 0 {
		return r.found("m", at[0])
	}
	return nil
}

// found settles what the matrix is of: "m" for paths, a capability, "rw" for reading and writing, or "" for one that is
// not named.
func (r *smiReader) found(kind string, column int) error {
	r.twice = false
	for other, first := range r.done {
		switch {
		case kind == other && kind == "m":
			return r.fail(column, "a second topology matrix, the first is in line %d", first)
		case kind == other && kind == "":
			return r.fail(column, "a second P2P matrix without its command, the first is in line %d: put a line such as `-p2p w` above each", first)
		case kind == other:
			return r.fail(column, "a second matrix of -p2p %s, the first is in line %d", kind, first)
		case !overlap(kind, other):
		case kind == "" || other == "":
			return r.fail(column, "a second P2P matrix of reading, for one without its command is taken for -p2p r, the first is in line %d: put a line such as `-p2p w` above each", first)
		default:
			r.twice = true
		}
	}
	r.kind, r.done[kind] = kind, r.begun
	switch kind {
	case "m":
		r.m.Columns = r.extra
		for _, n := range r.columns[r.gpus:] {
			r.m.NICs = append(r.m.NICs, NIC{Name: n, GPUs: make([]string, r.gpus)})
		}
	}
	return nil
}

// overlap is whether two kinds of matrix state one and the same thing.
func overlap(a, b string) bool {
	if a == "m" || b == "m" {
		return false
	}
	return strings.ContainsAny(reading(a), reading(b))
}

// reading is a kind of P2P matrix, one without a name as what it is taken for.
func reading(kind string) string {
	if kind == "" {
		return "r"
	}
	return kind
}

// split makes a matrix that is not named one of reading and writing, for one of its cells has both.
func (r *smiReader) split(column int) error {
	delete(r.done, "")
	if err := r.found("rw", column); err != nil {
		return err
	}
	for i := range r.rows { // whose cells stood for both
		for j := range r.gpus {
			p := &r.m.Pairs[i][j]
			before := *p
			if p.Write, p.WriteCode = p.Read, p.ReadCode; r.twice && !before.agrees(*p) {
				return r.fail(column, "this matrix is of reading and writing, and one above says something else of GPU%d to GPU%d", i, j)
			}
		}
	}
	return nil
}

// complete ends a matrix, which must have a row for every GPU, and for all NICs or none.
func (r *smiReader) complete() error {
	if r.columns != nil {
		if r.rows < r.gpus {
			return r.fail(0, "the matrix of line %d ends after %d rows of %d GPUs", r.begun, r.rows, r.gpus)
		}
		if r.rows > r.gpus && r.rows < len(r.columns) {
			return r.fail(0, "the matrix of line %d ends after %d rows of %d GPUs and NICs", r.begun, r.rows, len(r.columns))
		}
		if r.kind == "" {
			r.m.Note("line %d: the P2P matrix does not say what it is of; it is taken for reading (-p2p r)", r.begun)
		}
		r.columns, r.label = nil, ""
	}
	return nil
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
