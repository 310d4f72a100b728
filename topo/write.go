package topo

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// meaning explains one word of a matrix, in nvidia-smi's terms where it has them.
type meaning struct{ word, text string }

var p2pLegend = []meaning{
	{"X", "Self"},
	{"OK", "Status Ok"},
	{"CNS", "Chipset not supported"},
	{"GNS", "GPU not supported"},
	{"TNS", "Topology not supported"},
	{"NS", "Not supported"},
	{"DR", "Disabled by regkey"},
	{"U", "Unknown"},
}

var linkLegend = []meaning{
	{"X", "Self"},
	{"SYS", "Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)"},
	{"NODE", "Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node"},
	{"PHB", "Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)"},
	{"PXB", "Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)"},
	{"PIX", "Connection traversing at most a single PCIe bridge"},
	{"NV#", "Connection traversing a bonded set of # NVLinks"},
	{"U", "Unknown"},
}

// WriteMatrix prints the peer access matrix in the form of `nvidia-smi topo -p2p`, with its
// legend: the row's device reaches the column's memory. A cell is the status of reading and writing together,
// or "read/write" where they differ.
func (m *Machine) WriteMatrix(w io.Writer) error { return m.writeMatrix(w, true) }

// WriteBareMatrix is WriteMatrix without the legend.
func (m *Machine) WriteBareMatrix(w io.Writer) error { return m.writeMatrix(w, false) }

func (m *Machine) writeMatrix(w io.Writer, explained bool) error {
	split := false
	legend := p2pLegend
	var b strings.Builder
	m.grid(&b, func(p Pair) string {
		r, wr := status(p.CanRead(), p.ReadCode), status(p.CanWrite(), p.WriteCode)
		if r == wr {
			return r
		}
		split = true
		return r + "/" + wr
	})
	if split {
		legend = append(legend[:len(legend):len(legend)], meaning{"A/B", "reading is A, writing is B"})
	}
	if explained {
		writeLegend(&b, legend)
	}
	return flush(w, "P2P matrix", b.String())
}

// WriteLinks prints the path of each pair in the form of `nvidia-smi topo -m`, with its legend: GPUs, then NICs and
// affinities where they are known.
func (m *Machine) WriteLinks(w io.Writer) error { return m.writeLinks(w, true) }

// WriteBareLinks is WriteLinks without the legends.
func (m *Machine) WriteBareLinks(w io.Writer) error { return m.writeLinks(w, false) }

func (m *Machine) writeLinks(w io.Writer, explained bool) error {
	var b strings.Builder
	for i := range m.Devices {
		fmt.Fprintf(&b, "\tGPU%d", i)
	}
	for _, n := range m.NICs {
		b.WriteString("\t" + n.Name)
	}
	columns := m.affinityColumns()
	for _, c := range columns {
		b.WriteString("\t" + c)
	}
	b.WriteByte('\n')
	for i := range m.Devices {
		m.linkRow(&b, i, columns)
	}
	for k, n := range m.NICs {
		if n.NICs == nil {
			continue
		}
		b.WriteString(n.Name)
		for _, c := range n.GPUs {
			b.WriteString("\t" + m.word(c))
		}
		for j, c := range n.NICs {
			if j == k {
				c = " X "
			}
			b.WriteString("\t" + m.word(c))
		}
		b.WriteByte('\n')
	}
	if explained {
		legend := slices.Clone(linkLegend)
		for k := range legend {
			legend[k].word = m.word(legend[k].word)
		}
		writeLegend(&b, legend)
		m.nicLegend(&b)
	}
	return flush(w, "link matrix", b.String())
}

// nicLegend tells what the NICs are, where that is known.
func (m *Machine) nicLegend(b *strings.Builder) {
	head := "\nNIC Legend:\n\n"
	for _, n := range m.NICs {
		if n.Device != "" {
			fmt.Fprintf(b, "%s  %s: %s\n", head, n.Name, n.Device)
			head = ""
		}
	}
}

// affinityColumns are those that the matrix had, else those that some device has a cell for.
func (m *Machine) affinityColumns() []string {
	if m.Columns != nil {
		return m.Columns
	}
	var columns []string
	for k, name := range affinityNames {
		if slices.ContainsFunc(m.Devices, func(d Device) bool { return d.Affinity != nil && d.Affinity.cells()[k] != "" }) {
			columns = append(columns, name)
		}
	}
	return columns
}

func (a *Affinity) cells() [3]string { return [3]string{a.CPU, a.NUMA, a.GPUNUMAID} }

// linkRow writes the row of device i.
func (m *Machine) linkRow(b *strings.Builder, i int, columns []string) {
	fmt.Fprintf(b, "GPU%d", i)
	for j, p := range m.Pairs[i] {
		switch {
		case i == j:
			b.WriteString("\t X ")
		case p.Link == "":
			b.WriteString("\t" + string(CodeU))
		default:
			b.WriteString("\t" + m.word(p.Link))
		}
	}
	for _, n := range m.NICs {
		b.WriteString("\t" + m.word(n.GPUs[i]))
	}
	if a := m.Devices[i].Affinity; a != nil {
		for k, name := range columns {
			if name == "GPU NUMA ID" && k > 0 {
				b.WriteByte('\t') // as nvidia-smi lines them up
			}
			b.WriteString("\t" + a.cells()[slices.Index(affinityNames[:], name)])
		}
	}
	b.WriteByte('\n')
}

// word is a path as the source wrote it.
func (m *Machine) word(link string) string {
	if m.SOC && link == "SYS" {
		return "SOC"
	}
	return link
}

// WriteP2P prints one peer capability of each ordered pair as `nvidia-smi topo -p2p` does: "r" reading, "w" writing,
// "a" atomics, "n" NVLink, "p" proprietary access. Only NVML and pasted text know the codes; without them the driver's
// answer stands.
func (m *Machine) WriteP2P(w io.Writer, capability string) error {
	cell, ok := p2pCells[capability]
	if !ok {
		return fmt.Errorf("write P2P matrix: no capability %q: want r, w, a, n or p", capability)
	}
	var b strings.Builder
	b.WriteString(" \t")
	for i := range m.Devices {
		fmt.Fprintf(&b, "GPU%d\t", i)
	}
	for i, row := range m.Pairs {
		fmt.Fprintf(&b, "\n GPU%d", i)
		for j, p := range row {
			c := "X"
			if i != j {
				c = cell(p)
			}
			b.WriteString("\t" + c)
		}
		b.WriteByte('\t')
	}
	b.WriteByte('\n')
	writeLegend(&b, p2pLegend)
	return flush(w, "P2P matrix", b.String())
}

var p2pCells = map[string]func(p Pair) string{
	"r": func(p Pair) string { return status(p.CanRead(), p.ReadCode) },
	"w": func(p Pair) string { return status(p.CanWrite(), p.WriteCode) },
	"a": func(p Pair) string { return status(p.NativeAtomics, p.AtomicsCode) },
	"n": func(p Pair) string { return status(p.NVLinkCode.Tri(), p.NVLinkCode) },
	"p": func(p Pair) string { return status(p.Property(), p.PropertyCode) },
}

// status is the word for one direction of one capability. The driver's refusal stands even where NVML says OK,
// and NVML's reason is kept where it gave one.
func status(t Tri, c Code) string {
	if c != "" && c.Tri() == t {
		return string(c)
	}
	switch t {
	case Yes:
		return string(CodeOK)
	case No:
		return string(CodeNS)
	}
	return string(CodeU)
}

// grid writes the header and one row for each device; cells are separated by tabs, as nvidia-smi's are.
func (m *Machine) grid(b *strings.Builder, cell func(Pair) string) {
	for i := range m.Devices {
		fmt.Fprintf(b, "\tGPU%d", i)
	}
	b.WriteByte('\n')
	for i, row := range m.Pairs {
		fmt.Fprintf(b, "GPU%d", i)
		for j, p := range row {
			if i == j {
				b.WriteString("\t X ")
				continue
			}
			b.WriteString("\t" + cell(p))
		}
		b.WriteByte('\n')
	}
}

func writeLegend(b *strings.Builder, legend []meaning) {
	b.WriteString("\nLegend:\n\n")
	for _, l := range legend {
		fmt.Fprintf(b, "  %-4s = %s\n", l.word, l.text)
	}
}

// WriteDevices prints one line for each device: ordinal, name, compute capability, SMs, memory,
// PCI address, NUMA node and UUID. A dash stands for unknown.
func (m *Machine) WriteDevices(w io.Writer) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "GPU\tName\tSM\tSMs\tMemory\tPCI\tNUMA\tUUID")
	for _, d := range m.Devices {
		numa := "-"
		if d.NUMA != nil {
			numa = strconv.Itoa(*d.NUMA)
		}
		fmt.Fprintf(tw, "%d\t%s\tsm_%d\t%d\t%s\t%s\t%s\t%s\n", d.Ordinal, d.Name, d.SM, d.SMs,
			memory(d.TotalMem), dash(d.PCI), numa, d.UUID)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write device table: %w", err)
	}
	return flush(w, "device table", b.String())
}

// memory writes bytes in the unit that keeps a digit before the point: emulated devices are small.
func memory(n uint64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func flush(w io.Writer, what, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}
