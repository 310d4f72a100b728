package topo

import (
	"fmt"
	"io"
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
func (m *Machine) WriteMatrix(w io.Writer) error {
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
	writeLegend(&b, legend)
	return flush(w, "P2P matrix", b.String())
}

// WriteLinks prints the path of each pair in the form of `nvidia-smi topo -m`, with its legend.
func (m *Machine) WriteLinks(w io.Writer) error {
	var b strings.Builder
	m.grid(&b, func(p Pair) string {
		if p.Link == "" {
			return string(CodeU)
		}
		return p.Link
	})
	writeLegend(&b, linkLegend)
	return flush(w, "link matrix", b.String())
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
