package probe

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/fenceline/fenceline/topo"
)

// WriteChecks prints a table of the checks: a line for each pair that was probed, and below the table what is
// behind each cell that is not ok.
func WriteChecks(w io.Writer, m *topo.Machine, found *topo.Measurement) error {
	if err := fits(m, found); err != nil {
		return err
	}
	var b, notes strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "pair\tread\twrite\tflags\tatomics")
	for i, row := range found.Pairs {
		for j, r := range row {
			if r == (topo.Measured{}) {
				continue
			}
			fmt.Fprintf(tw, "%d→%d", i, j)
			for _, c := range []struct {
				name string
				topo.Check
			}{{"read", r.Read}, {"write", r.Write}, {"flags", r.Flags}, {"atomics", r.Atomics}} {
				fmt.Fprintf(tw, "\t%s", cell(c.Check))
				if c.Answer != topo.Yes && c.Detail != "" {
					fmt.Fprintf(&notes, "%d→%d %s: %s\n", i, j, c.name, c.Detail)
				}
			}
			fmt.Fprintln(tw)
		}
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write checks: %w", err)
	}
	if notes.Len() > 0 {
		b.WriteString("\n" + notes.String())
	}
	return put(w, "checks", b.String())
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
