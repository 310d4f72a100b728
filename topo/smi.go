package topo

import (
	"errors"
	"fmt"
	"regexp"
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
	Name string   `json:"name"`           // as the matrix names it: "NIC0", "mlx5_0"
	GPUs []string `json:"gpus"`           // path to each GPU
	NICs []string `json:"nics,omitempty"` // path to each NIC, "X" to itself; where the matrix has rows for NICs
}

// Affinity is the three columns behind the topology matrix, as nvidia-smi printed them.
type Affinity struct {
	CPU       string `json:"cpu,omitempty"`      // "0-55,112-167"
	NUMA      string `json:"numa,omitempty"`     // "0", "0,3-9"
	GPUNUMAID string `json:"gpu_numa,omitempty"` // "N/A"
}

// smiReader reads pasted nvidia-smi text line by line.
type smiReader struct {
	name    string
	line    int
	m       *Machine
	columns []string // names of the matrix being read; nil before and between matrices
	gpus    int
	extra   []string // the affinity columns it has
	rows    int
	p2p     string // which capability the next P2P matrix is of: "r", "w", "a" …
	legend  bool
	paths   bool // the matrix of paths has been read
}

// ParseSMI reads the output of `nvidia-smi topo -m`, with or without matrices of `-p2p` behind it; name is for
// messages. A P2P matrix is of reads unless a line with the command (`-p2p w`) stands before it. The devices have no
// UUID, and nothing is known of the driver. What cannot be read for certain is a *TextError.
func ParseSMI(name string, text []byte) (*Machine, error) {
	r := &smiReader{name: name, p2p: "r", m: &Machine{Version: FormatVersion, Driver: Driver{Name: "nvidia-smi"}}}
	for line := range strings.Lines(string(text)) {
		r.line++
		clean := strings.TrimRight(escapes.ReplaceAllString(line, ""), "\r\n")
		if err := r.read(clean); err != nil {
			return nil, err
		}
	}
	if err := r.complete(); err != nil {
		return nil, err
	}
	if !r.paths {
		return nil, r.fail(0, "no topology matrix: want the output of `nvidia-smi topo -m`")
	}
	return r.m, nil
}

var (
	escapes  = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	gpuName  = regexp.MustCompile(`^GPU(\d{1,3})$`)
	colName  = regexp.MustCompile(`^(?:GPU\d{1,3}|NIC\d{1,3}|mlx\d+_(?:bond_)?\d+|CPU Affinity|NUMA Affinity|GPU NUMA ID)`)
	linkCell = regexp.MustCompile(`^(?:X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC)$`)
	p2pCell  = regexp.MustCompile(`^(?:X|OK|CNS|GNS|TNS|DR|NS|U)$`)
	p2pFlag  = regexp.MustCompile(`-p2p\s+([rwnap])\b`)
	rowStart = regexp.MustCompile(`^(GPU\d{1,3}|NIC\d{1,3}|mlx\d+_(?:bond_)?\d+)(?:\s|$)`)
	affinity = map[string]bool{"CPU Affinity": true, "NUMA Affinity": true, "GPU NUMA ID": true}
	wide     = regexp.MustCompile(` {2,}`)
	cpuList  = regexp.MustCompile(`^\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$`)
)

func (r *smiReader) fail(column int, format string, args ...any) error {
	return &TextError{Name: r.name, Line: r.line, Column: column, Msg: fmt.Sprintf(format, args...)}
}

// read takes one line, without escapes.
func (r *smiReader) read(line string) error {
	body := strings.TrimLeft(line, " \t")
	switch {
	case body == "":
		return r.complete()
	case strings.HasPrefix(body, "Legend:"), strings.HasPrefix(body, "NIC Legend:"):
		r.legend = true
		return r.complete()
	case p2pFlag.MatchString(body) && !rowStart.MatchString(body):
		r.p2p, r.legend = p2pFlag.FindStringSubmatch(body)[1], false
		return r.complete()
	}
	if r.columns != nil {
		return r.row(line)
	}
	if names, ok := header(body); ok {
		r.legend = false
		return r.begin(names)
	}
	switch {
	case r.legend, len(r.m.Devices) == 0 && !rowStart.MatchString(body):
		return nil // the legend, and what a terminal shows ahead of the matrix
	case rowStart.MatchString(body):
		return r.fail(1, "a row without a header line above it")
	}
	return r.fail(1, "want a matrix, a legend or an empty line, got %q", clip(body))
}

// header splits a header line into column names; names may be glued together. ok is false for other lines.
func header(body string) (names []string, ok bool) {
	for rest := strings.TrimRight(body, " \t"); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		n := colName.FindString(rest)
		if n == "" {
			return nil, false
		}
		names, rest = append(names, n), rest[len(n):]
	}
	// A row of the matrix starts with a name as well, but goes on with cells.
	return names, len(names) > 0 && names[0] == "GPU0"
}

// begin starts a matrix.
func (r *smiReader) begin(names []string) error {
	r.columns, r.extra, r.rows, r.gpus = nil, nil, 0, 0
	seen := map[string]bool{}
	for _, n := range names {
		switch {
		case seen[n]:
			return r.fail(0, "two columns %s", n)
		case affinity[n]:
			r.extra = append(r.extra, n)
		case r.extra != nil:
			return r.fail(0, "column %s behind the affinities", n)
		default:
			if g := gpuName.FindStringSubmatch(n); g != nil {
				if g[1] != strconv.Itoa(r.gpus) || len(r.columns) != r.gpus {
					return r.fail(0, "column %s where GPU%d was expected", n, r.gpus)
				}
				r.gpus++
			}
			r.columns = append(r.columns, n)
		}
		seen[n] = true
	}
	if r.m.Devices != nil {
		if r.gpus != len(r.m.Devices) || len(r.columns) != r.gpus || r.extra != nil {
			return r.fail(0, "a second matrix must be of the same %d GPUs alone", len(r.m.Devices))
		}
		return nil
	}
	for i := range r.gpus {
		r.m.Devices = append(r.m.Devices, Device{Ordinal: i, Name: "unknown"})
		r.m.Pairs = append(r.m.Pairs, make([]Pair, r.gpus))
	}
	for _, n := range r.columns[r.gpus:] {
		r.m.NICs = append(r.m.NICs, NIC{Name: n, GPUs: make([]string, r.gpus)})
	}
	return nil
}

// complete ends a matrix, which must have a row for every GPU, and for all NICs or none.
func (r *smiReader) complete() error {
	if r.columns != nil && r.rows != len(r.columns) && r.rows != r.gpus {
		return r.fail(0, "%d rows in a matrix of %d GPUs and %d columns", r.rows, r.gpus, len(r.columns))
	}
	r.columns = nil
	return nil
}

// row reads one line of the matrix.
func (r *smiReader) row(line string) error {
	rest := strings.TrimLeft(line, " \t")
	at := func() int { return len(line) - len(rest) + 1 }
	if r.rows == len(r.columns) {
		return r.fail(1, "more rows than columns")
	}
	want := r.columns[r.rows]
	if !strings.HasPrefix(rest, want) || len(rest) == len(want) || !strings.ContainsRune(" \t", rune(rest[len(want)])) {
		return r.fail(at(), "want the row of %s, got %q", want, clip(rest))
	}
	rest = rest[len(want):]
	links := make([]string, len(r.columns))
	p2p := r.isP2P()
	for j := range r.columns {
		rest = strings.TrimLeft(rest, " \t")
		end := strings.IndexAny(rest, " \t")
		if end < 0 {
			end = len(rest)
		}
		cell := rest[:end]
		if p2p && !p2pCell.MatchString(cell) || !p2p && !linkCell.MatchString(cell) {
			return r.fail(at(), "%q is no path or state of %s to %s", clip(cell), want, r.columns[j])
		}
		if (cell == "X") != (j == r.rows) {
			return r.fail(at(), "%q where %s meets %s", cell, want, r.columns[j])
		}
		links[j], rest = cell, rest[end:]
	}
	if err := r.store(links, p2p); err != nil {
		return err
	}
	if err := r.affinities(rest, at()); err != nil {
		return err
	}
	r.rows++
	return nil
}

// isP2P: every matrix behind the first.
func (r *smiReader) isP2P() bool {
	return r.rows < len(r.m.Devices) && r.extra == nil && len(r.columns) == len(r.m.Devices) && r.paths
}

// store keeps a row's cells.
func (r *smiReader) store(cells []string, p2p bool) error {
	i := r.rows
	switch {
	case p2p:
		for j, c := range cells {
			if i != j {
				r.m.Pairs[i][j].state(r.p2p, Code(c))
			}
		}
	case i < r.gpus:
		for j := range r.gpus {
			if i != j {
				r.m.Pairs[i][j].Link = cells[j]
			}
		}
		for k := range r.m.NICs {
			r.m.NICs[k].GPUs[i] = cells[r.gpus+k]
		}
		r.paths = r.paths || i == r.gpus-1
	default:
		nic := &r.m.NICs[i-r.gpus]
		for j, c := range nic.GPUs {
			if cells[j] != c {
				return r.fail(0, "%s is %s from GPU%d, which says %s", nic.Name, cells[j], j, c)
			}
		}
		nic.NICs = cells[r.gpus:]
	}
	return nil
}

// state notes one cell of a P2P matrix of a capability.
func (p *Pair) state(capability string, c Code) {
	switch capability {
	case "r":
		p.Read, p.ReadCode = c.Tri(), c
	case "w":
		p.Write, p.WriteCode = c.Tri(), c
	case "a":
		p.NativeAtomics, p.AtomicsCode = c.Tri(), c
	case "n":
		p.NVLinkCode = c
	case "p":
		p.PropertyCode = c
	}
}

// affinities reads what stands behind a row's cells.
func (r *smiReader) affinities(rest string, column int) error {
	cells := splitWide(rest)
	if len(r.extra) == 0 || r.rows >= r.gpus {
		if strings.TrimSpace(rest) != "" && (len(r.extra) == 0 || r.rows >= r.gpus) {
			return r.fail(column, "%q behind the last column", clip(strings.TrimSpace(rest)))
		}
		return nil
	}
	a := Affinity{}
	place := map[string]*string{"CPU Affinity": &a.CPU, "NUMA Affinity": &a.NUMA, "GPU NUMA ID": &a.GPUNUMAID}
	cells, err := r.unglue(cells, column)
	if err != nil {
		return err
	}
	if len(cells) > len(r.extra) {
		return r.fail(column, "%d cells for the columns %s", len(cells), strings.Join(r.extra, ", "))
	}
	for k, c := range cells {
		*place[r.extra[k]] = c
	}
	for what, list := range map[string]string{"CPU": a.CPU, "NUMA": a.NUMA} {
		if list != "" && list != "N/A" && !cpuList.MatchString(list) {
			return r.fail(column, "%q is no list of %ss", clip(list), what)
		}
	}
	d := &r.m.Devices[r.rows]
	d.Affinity = &a
	if n, err := strconv.Atoi(a.NUMA); err == nil {
		d.NUMA = &n
	}
	return nil
}

// splitWide splits cells at tabs and wide spaces, or where there are no tabs at any space.
func splitWide(s string) []string {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	if strings.Contains(s, "\t") {
		var cells []string
		for _, c := range strings.Split(strings.TrimRight(strings.TrimLeft(s, " "), " \t"), "\t") {
			cells = append(cells, wide.Split(strings.TrimSpace(c), -1)...)
		}
		if len(cells) > 0 && cells[0] == "" {
			cells = cells[1:] // the tab behind the last path
		}
		return squeeze(cells)
	}
	return strings.Fields(s)
}

// squeeze drops the second of two tabs that only line columns up: nvidia-smi puts two ahead of GPU NUMA ID.
func squeeze(cells []string) []string {
	if len(cells) == 4 && cells[2] == "" {
		return append(cells[:2:2], cells[3])
	}
	return cells
}

// unglue separates a CPU list and a NUMA node that a narrow column ran together ("56-111,168-2231" is "56-111,168-223"
// and "1"). It is certain only when exactly one split makes all ranges equally long, as hyperthreads are.
func (r *smiReader) unglue(cells []string, column int) ([]string, error) {
	if len(cells) == 0 || len(cells) >= len(r.extra) || len(r.extra) < 2 || r.extra[1] != "NUMA Affinity" {
		return cells, nil
	}
	cpu := cells[0]
	if !cpuList.MatchString(cpu) || len(cells) == 1 && len(r.extra) == 2 && evenRanges(cpu) {
		return cells, nil
	}
	if evenRanges(cpu) { // the NUMA cell is blank
		return append([]string{cpu, ""}, cells[1:]...), nil
	}
	var found []string
	for k := len(cpu) - 1; k > 0 && cpu[k] >= '0' && cpu[k] <= '9'; k-- {
		if cpuList.MatchString(cpu[:k]) && evenRanges(cpu[:k]) {
			found = append(found, cpu[:k])
		}
	}
	if len(found) != 1 {
		return nil, r.fail(column, "%q may be a CPU list and a NUMA node run together, in %d ways", clip(cpu), len(found))
	}
	return append([]string{found[0], cpu[len(found[0]):]}, cells[1:]...), nil
}

// evenRanges: every range of a CPU list is as long as the first.
func evenRanges(list string) bool {
	length := -1
	for _, part := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || b < a || length >= 0 && b-a != length {
			return false
		}
		length = b - a
	}
	return true
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
