package probe

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fenceline/fenceline/topo"
)

// WriteChecks prints a table of the checks: a line for each pair that was probed, and below the table what is
// behind the cells that are not ok, once for all those of which the same is to be said.
func WriteChecks(w io.Writer, m *topo.Machine, found *topo.Measurement) error {
	if err := fits(m, found); err != nil {
		return err
	}
	var b strings.Builder
	var all notes
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "pair\tread\twrite\tflags\tatomics")
	for i, row := range found.Pairs {
		for j, r := range row {
			if r == (topo.Measured{}) {
				continue
			}
			fmt.Fprintf(tw, "%d→%d", i, j)
			checks := []topo.Check{r.Read, r.Write, r.Flags, r.Atomics}
			for _, c := range checks {
				fmt.Fprintf(tw, "\t%s", cell(c))
			}
			all.add(Pair{i, j}, checks)
			fmt.Fprintln(tw)
		}
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write checks: %w", err)
	}
	if len(all.list) > 0 {
		b.WriteByte('\n')
	}
	for _, n := range all.list {
		fmt.Fprintln(&b, n)
	}
	return put(w, "checks", b.String())
}

// checkNames are the columns of WriteChecks.
var checkNames = []string{"read", "write", "flags", "atomics"}

// note is what is to be said of some checks of some pairs.
type note struct {
	pairs        []string
	checks, text string // checks is "" for all of them
}

func (n *note) String() string {
	const most = 8
	pairs := strings.Join(n.pairs[:min(len(n.pairs), most)], ", ")
	if more := len(n.pairs) - most; more > 0 {
		pairs += fmt.Sprintf(" and %d more", more)
	}
	if n.checks != "" {
		pairs += " " + n.checks
	}
	return pairs + ": " + n.text
}

type notes struct{ list []*note }

// add notes the checks of a pair that are not good.
func (all *notes) add(p Pair, checks []topo.Check) {
	var texts []string
	names := map[string][]string{}
	for k, c := range checks {
		if c.Answer == topo.Yes || c.Answer == topo.Unknown && c.Detail == "" {
			continue
		}
		text := c.String()
		if names[text] == nil {
			texts = append(texts, text)
		}
		names[text] = append(names[text], checkNames[k])
	}
	for _, text := range texts {
		of := strings.Join(names[text], ", ")
		if len(names[text]) == len(checkNames) {
			of = ""
		}
		k := slices.IndexFunc(all.list, func(n *note) bool { return n.checks == of && n.text == text })
		if k < 0 {
			k, all.list = len(all.list), append(all.list, &note{checks: of, text: text})
		}
		all.list[k].pairs = append(all.list[k].pairs, p.String())
	}
}

func cell(c topo.Check) string {
	switch c.Answer {
	case topo.Yes:
		return "ok"
	case topo.No:
		return "FAIL"
	}
	return "-"
}

// matrix is one of the tables of numbers.
type matrix struct {
	title, corner string
	value         func(topo.Measured) float64
}

func micro(ns float64) float64 { return ns / 1000 }

// The first four are p2pBandwidthLatencyTest's own; the corner of its latencies names who measures.
var matrices = []matrix{
	{"Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)", `D\D`, func(m topo.Measured) float64 { return m.CopyNoP2P }},
	{"Unidirectional P2P=Enabled Bandwidth (P2P Reads, copy engine) Matrix (GB/s)", `D\D`, func(m topo.Measured) float64 { return m.CopyRate }},
	{"Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)", `D\D`, func(m topo.Measured) float64 { return m.BothNoP2P }},
	{"Bidirectional P2P=Enabled Bandwidth (P2P Reads, copy engine) Matrix (GB/s)", `D\D`, func(m topo.Measured) float64 { return m.CopyBoth }},
	{"Unidirectional P2P=Enabled Bandwidth (P2P Reads, kernel) Matrix (GB/s)", `D\D`, func(m topo.Measured) float64 { return m.KernelRate }},
	{"Bidirectional P2P=Enabled Bandwidth (P2P Reads, kernel) Matrix (GB/s)", `D\D`, func(m topo.Measured) float64 { return m.KernelBoth }},
	{"P2P=Enabled Latency (one dependent load) Matrix (us)", "GPU", func(m topo.Measured) float64 { return micro(m.LoadLatency) }},
	{"P2P=Enabled Latency (P2P Writes, one flag one way) Matrix (us)", "GPU", func(m topo.Measured) float64 { return micro(m.FlagLatency) }},
}

// WriteNumbers prints the numbers in the form of p2pBandwidthLatencyTest: the connectivity that the driver claims, then
// a matrix for each number, in GB/s (10^9 bytes) and µs. A dash is what was not measured. Memory of one
// device counts as read and as written. A matrix of which nothing was measured is left out.
//
// There is no kernel's bandwidth and no latency with P2P=Disabled: both are of loads and stores that a kernel makes, which
// without peer access reach the device's own memory only, and those are the diagonal of the matrices with P2P=Enabled.
// p2pBandwidthLatencyTest has such matrices, of copies that the driver takes through the host, as CopyNoP2P does.
func WriteNumbers(w io.Writer, m *topo.Machine, found *topo.Measurement) error {
	if err := fits(m, found); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n")
	if m.Emulated {
		b.WriteString("EMULATED: no GPU executed anything, and the numbers below say nothing about any.\n")
	}
	for i, d := range m.Devices {
		fmt.Fprintf(&b, "Device: %d, %s, pciBusID: %s\n", i, d.Name, cmp.Or(d.PCI, "-"))
	}
	for i := range m.Devices {
		for j := range m.Devices {
			if i != j {
				fmt.Fprintf(&b, "Device=%d %s Access Peer Device=%d\n", i, can(m.Pairs[i][j].Access), j)
			}
		}
	}
	b.WriteString("\nP2P Connectivity Matrix\n     D\\D")
	for j := range m.Devices {
		fmt.Fprintf(&b, "%6d", j)
	}
	b.WriteByte('\n')
	for i := range m.Devices {
		fmt.Fprintf(&b, "%6d\t", i)
		for j := range m.Devices {
			fmt.Fprintf(&b, "%6s", connected(i == j, m.Pairs[i][j].Access))
		}
		b.WriteByte('\n')
	}
	written := false
	for _, x := range matrices {
		written = x.write(&b, found) || written
	}
	if !written {
		b.WriteString("No numbers were taken.\n")
	}
	return put(w, "numbers", b.String())
}

// write prints one matrix, unless it is empty.
func (x *matrix) write(b *strings.Builder, found *topo.Measurement) bool {
	any := false
	for _, row := range found.Pairs {
		for _, r := range row {
			any = any || x.value(r) > 0
		}
	}
	if !any {
		return false
	}
	fmt.Fprintf(b, "%s\n%6s", x.title, x.corner)
	for j := range found.Pairs {
		fmt.Fprintf(b, " %6d", j)
	}
	b.WriteByte('\n')
	for i, row := range found.Pairs {
		fmt.Fprintf(b, "%6d", i)
		for _, r := range row {
			if v := x.value(r); v > 0 {
				fmt.Fprintf(b, " %6.02f", v)
			} else {
				fmt.Fprintf(b, " %6s", "-")
			}
		}
		b.WriteByte('\n')
	}
	return true
}

func can(t topo.Tri) string {
	switch t {
	case topo.Yes:
		return "CAN"
	case topo.No:
		return "CANNOT"
	}
	return "MAY OR MAY NOT"
}

func connected(same bool, t topo.Tri) string {
	switch {
	case same || t == topo.Yes:
		return "1"
	case t == topo.No:
		return "0"
	}
	return "?"
}

// fits refuses a measurement of another machine.
func fits(m *topo.Machine, found *topo.Measurement) error {
	if len(found.Pairs) != len(m.Devices) {
		return fmt.Errorf("%w: measurement of %d devices, machine of %d", ErrOptions, len(found.Pairs), len(m.Devices))
	}
	return nil
}

func put(w io.Writer, what, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}
