package topo

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	linkCell = regexp.MustCompile(`^(?:NV[1-9]\d?|PIX|PXB|PHB|NODE|SYS|SOC)$`)
	p2pCell  = regexp.MustCompile(`^(?:OK|CNS|GNS|TNS|DR|NS|U)$`)
	bothCell = regexp.MustCompile(`^(OK|CNS|GNS|TNS|DR|NS|U)/(OK|CNS|GNS|TNS|DR|NS|U)$`) // reading, writing: WriteMatrix
	idList   = regexp.MustCompile(`^` + id + `(?:-` + id + `)?(?:,` + id + `(?:-` + id + `)?)*$`)
	number1  = regexp.MustCompile(`^` + id + `$`)
)

// id is a number as nvidia-smi writes it. A zero ahead of it is what is left of a cell that ran into it.
const id = `(?:0|[1-9]\d*)`

// word is a cell and where it stands in its line.
type word struct {
	text  string
	start int // bytes, from 0
}

func (w word) end() int    { return w.start + len(w.text) }
func (w word) column() int { return w.start + 1 }

// words splits a line at spaces and tabs.
func words(line string) (all []word) {
	for k := 0; k < len(line); {
		n := strings.IndexAny(line[k:], " \t")
		if n < 0 {
			n = len(line) - k
		}
		if n > 0 {
			all = append(all, word{line[k : k+n], k})
		}
		k += n + 1
	}
	return all
}

// row reads one line of the matrix.
func (r *smiReader) row(line string) error {
	all := words(line)
	if r.rows == len(r.columns) {
		return r.fail(all[0].column(), "more rows than columns")
	}
	want := r.columns[r.rows]
	if all[0].text != want {
		return r.fail(all[0].column(), "want the row of %s, got %q", want, clip(all[0].text))
	}
	for j, column := range r.columns {
		if j+1 >= len(all) {
			return r.fail(len(line)+1, "the row of %s ends before column %s", want, column)
		}
		w := all[j+1]
		if (w.text == "X") != (j == r.rows) {
			return r.fail(w.column(), "%q where %s meets %s", clip(w.text), want, column)
		}
		if w.text == "X" {
			continue
		}
		both := bothCell.MatchString(w.text)
		link, state := linkCell.MatchString(w.text), both || p2pCell.MatchString(w.text)
		if r.kind == "?" && (link || state) {
			kind := "m"
			if state {
				kind = r.label
			}
			if err := r.found(kind, w.column()); err != nil {
				return err
			}
		}
		if both && r.kind == "" {
			if err := r.split(w.column()); err != nil {
				return err
			}
		}
		if !link && (r.kind == "m" || !state) || !state && r.kind != "m" || both && r.kind != "rw" {
			return r.fail(w.column(), "%q is no path or state of %s to %s", clip(w.text), want, column)
		}
	}
	if err := r.store(all[1 : 1+len(r.columns)]); err != nil {
		return err
	}
	behind := all[1+len(r.columns):]
	if len(behind) > 0 && (r.extra == nil || r.rows >= r.gpus) {
		return r.fail(behind[0].column(), "%q behind the last column", clip(behind[0].text))
	}
	if r.extra != nil && r.rows < r.gpus {
		if err := r.affinities(line, all[:1+len(r.columns)], behind); err != nil {
			return err
		}
	}
	r.rows++
	return nil
}

// store keeps a row's cells.
func (r *smiReader) store(cells []word) error {
	i := r.rows
	path := func(w word) string {
		if w.text == "SOC" {
			r.m.SOC = true
			return "SYS"
		}
		return w.text
	}
	switch {
	case r.kind != "m":
		for j := range r.gpus {
			if i == j {
				continue
			}
			p := &r.m.Pairs[i][j]
			before := *p
			p.state(r.kind, cells[j].text)
			if r.twice && !before.agrees(*p) {
				return r.fail(cells[j].column(), "%q of GPU%d to GPU%d, of which a matrix above says something else", cells[j].text, i, j)
			}
		}
	case i < r.gpus:
		for j := range r.gpus {
			if i == j {
				continue
			}
			if back := r.m.Pairs[j][i].Link; j < i && path(cells[j]) != back {
				return r.fail(cells[j].column(), "GPU%d is %s from GPU%d, whose row says %s", i, cells[j].text, j, r.m.word(back))
			}
			r.m.Pairs[i][j].Link = path(cells[j])
		}
		for k := range r.m.NICs {
			r.m.NICs[k].GPUs[i] = path(cells[r.gpus+k])
		}
	default:
		nic := &r.m.NICs[i-r.gpus]
		for j, c := range nic.GPUs {
			if path(cells[j]) != c {
				return r.fail(cells[j].column(), "%s is %s from GPU%d, whose row says %s", nic.Name, cells[j].text, j, c)
			}
		}
		for k, c := range cells[r.gpus:] {
			if k < i-r.gpus {
				if other := r.m.NICs[k]; other.NICs[i-r.gpus] != path(c) {
					return r.fail(c.column(), "%s is %s from %s, whose row says %s", nic.Name, c.text, other.Name, r.m.word(other.NICs[i-r.gpus]))
				}
			}
			nic.NICs = append(nic.NICs, path(c))
		}
	}
	return nil
}

// state notes one cell of a P2P matrix of a capability. A U of WriteMatrix is what nothing states.
func (p *Pair) state(capability, cell string) {
	c := Code(cell)
	switch capability {
	case "rw":
		read, write, split := strings.Cut(cell, "/")
		if !split {
			write = read
		}
		if c := Code(read); c != CodeU {
			p.Read, p.ReadCode = c.Tri(), c
		}
		if c := Code(write); c != CodeU {
			p.Write, p.WriteCode = c.Tri(), c
		}
	case "r", "":
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

// agrees is whether q says of reading and writing what p says, if p says anything.
func (p Pair) agrees(q Pair) bool {
	same := func(a, b Code) bool { return a == "" || a == b }
	return same(p.ReadCode, q.ReadCode) && same(p.WriteCode, q.WriteCode)
}

// affinities reads what stands behind a row's paths.
func (r *smiReader) affinities(line string, paths, cells []word) error {
	placed, err := r.place(line, paths, cells)
	if err != nil {
		return err
	}
	a := &Affinity{}
	for k, name := range r.extra {
		w := placed[k]
		to, form := &a.CPU, idList
		switch name {
		case "NUMA Affinity":
			to = &a.NUMA
		case "GPU NUMA ID":
			to, form = &a.GPUNUMAID, number1
		}
		if w.text != "" && w.text != "N/A" && (!form.MatchString(w.text) || !rising(w.text)) {
			return r.fail(w.column(), "%q is no %s", clip(w.text), name)
		}
		*to = w.text
	}
	d := &r.m.Devices[r.rows]
	d.Affinity = a
	if n, err := strconv.Atoi(a.NUMA); err == nil {
		d.NUMA = &n
	}
	return nil
}

// place finds the column of each affinity cell. As many cells as columns are one each. With fewer, some are blank, or
// two have run together, and only the tabs that nvidia-smi wrote tell which: one ahead of each column, and two ahead of
// GPU NUMA ID. A terminal may have turned them into spaces, each up to the next multiple of eight.
func (r *smiReader) place(line string, paths, cells []word) ([]word, error) {
	placed := make([]word, len(r.extra))
	switch {
	case len(cells) == len(r.extra):
		copy(placed, cells)
		return placed, nil
	case len(cells) > len(r.extra):
		w := cells[len(r.extra)]
		return nil, r.fail(w.column(), "%q behind the last column", clip(w.text))
	case len(cells) == 0:
		return placed, nil
	}
	base, aligned := tabBase(line, paths)
	tabs, from := 0, paths[len(paths)-1].end()
	for k, w := range cells {
		between := line[from:w.start]
		spaces := len(between)
		step := strings.Count(between, "\t")
		if step == 0 {
			if step = (spaces + 7) / 8; !aligned {
				return nil, r.fail(w.column(), "%q may belong to any of the columns %s: the columns do not line up, and one is blank", clip(w.text), strings.Join(r.extra, ", "))
			}
		}
		tabs += step
		at, ok := r.column(tabs)
		last := k == len(cells)-1
		if glued := last && k == 1 && len(r.extra) == 3 && tabs == 3 && !strings.Contains(between, "\t"); glued {
			cpu, numa, ok := unglue(cells[0], spaces)
			if !ok {
				return nil, r.fail(cells[0].column(), "a cell is missing, and %q is no CPU list run together with a NUMA node", clip(cells[0].text))
			}
			placed[0], placed[1], placed[2] = cpu, numa, w
			return placed, nil
		}
		if !ok || placed[at].text != "" || !strings.Contains(between, "\t") && (shown(line, w.start)-base)%8 != 0 {
			return nil, r.fail(w.column(), "%q may belong to any of the columns %s: it stands under none, and one is blank", clip(w.text), strings.Join(r.extra, ", "))
		}
		placed[at], from = w, w.end()
	}
	// A CPU list that ends its row may be one run together with the node behind it, or that node alone. Only white space
	// behind it tells that the node is blank.
	rest := line[from:]
	if placed[0].text != "" && len(cells) == 1 && !strings.Contains(rest, "\t") && (rest == "" || !aligned || (shown(line, len(line))-base)%8 != 0) {
		w := cells[0]
		return nil, r.fail(w.column(), "%q may belong to any of the columns %s: the row ends behind it", clip(w.text), strings.Join(r.extra, ", "))
	}
	return placed, nil
}

// column is the index in extra of the affinity column that so many tabs lead to.
func (r *smiReader) column(tabs int) (int, bool) {
	at := 0
	for k, name := range r.extra {
		if at++; name == "GPU NUMA ID" && k > 0 {
			at++
		}
		if at == tabs {
			return k, true
		}
	}
	return 0, false
}

// shown is the terminal's column of a place in a line, from 0.
func shown(line string, place int) int {
	column := 0
	for _, c := range []byte(line[:place]) {
		if column++; c == '\t' {
			column = (column + 7) / 8 * 8
		}
	}
	return column
}

// tabBase is where a row's paths start, if all start at multiples of eight from one another, as tabs put them.
func tabBase(line string, paths []word) (base int, ok bool) {
	start := func(w word) int {
		if w.text == "X" && w.start > 0 && line[w.start-1] == ' ' {
			return shown(line, w.start-1) // nvidia-smi writes " X "
		}
		return shown(line, w.start)
	}
	base = start(paths[1])
	for _, w := range paths[2:] {
		if (start(w)-base)%8 != 0 {
			return 0, false
		}
	}
	return base, true
}

// unglue separates a CPU list and a NUMA node that a paste ran together: "56-111,168-2231" and 15 spaces ahead of the
// next cell. The spaces are two tabs that start behind the NUMA node, so they tell how long it is.
func unglue(w word, spaces int) (cpu, numa word, ok bool) {
	cut := len(w.text) - (16 - spaces)
	if cut <= 0 || cut >= len(w.text) {
		return cpu, numa, false
	}
	cpu, numa = word{w.text[:cut], w.start}, word{w.text[cut:], w.start + cut}
	return cpu, numa, idList.MatchString(cpu.text) && number1.MatchString(numa.text) && rising(cpu.text)
}

// rising is whether every range of a list ends no lower than it starts, and starts above the one before.
func rising(list string) bool {
	before := -1
	for _, part := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if isRange && err == nil {
			b, err = strconv.Atoi(to)
		}
		if err != nil || a <= before || b < a {
			return false
		}
		before = b
	}
	return true
}
