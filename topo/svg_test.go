package topo

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// draw is the drawing, after checking that it is well-formed and the same twice.
func draw(t *testing.T, name string, m *Machine, measured *Measurement) string {
	t.Helper()
	var b, again bytes.Buffer
	require.NoError(t, m.WriteSVG(&b, measured))
	require.NoError(t, m.WriteSVG(&again, measured))
	require.Equal(t, b.String(), again.String())
	for dec := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	if dir := os.Getenv("FENCELINE_TEST_SVG"); dir != "" { // to look at them
		require.NoError(t, os.WriteFile(dir+"/"+name+".svg", b.Bytes(), 0o600))
	}
	return b.String()
}

// even is a measurement with one rate for every pair, and one failure.
func even(n int, rate float64) *Measurement {
	m := &Measurement{Version: FormatVersion, Pairs: make([][]Measured, n)}
	for i := range m.Pairs {
		m.Pairs[i] = make([]Measured, n)
		for j := range m.Pairs[i] {
			m.Pairs[i][j] = Measured{Read: Check{Answer: Yes}, CopyRate: rate}
		}
	}
	m.Pairs[0][1].Read = Check{Answer: No, Detail: "timed out"}
	return m
}

func TestDrawing(t *testing.T) {
	for name, text := range realTopologies(t) {
		t.Run(name, func(t *testing.T) {
			m, err := ParseSMI(name, text)
			require.NoError(t, err)
			plain := draw(t, name, m, nil)
			measured := draw(t, name+"-measured", m, even(len(m.Devices), 43.21))
			require.False(t, strings.Contains(plain, ">43.2<"))
			require.Contains(t, measured, ">read fails</text>")
			// Every ordered pair that works has its rate in the matrix.
			n := len(m.Devices)
			bad := 1 // the one that failed its probe, and those without access by claim
			for i, row := range m.Pairs {
				for j, p := range row {
					if i != j && !(i == 0 && j == 1) && p.CanRead() == No {
						bad++
					}
				}
			}
			require.Equal(t, n*(n-1)-bad, strings.Count(measured, ">43.2</text>"))
			for i := range m.Devices {
				require.Equal(t, 3, strings.Count(plain, fmt.Sprintf(">GPU%d</text>", i)), "a box, a row and a column")
			}
			for _, nic := range m.NICs {
				require.Equal(t, 1, strings.Count(plain, ">"+nic.Name+"</text>"))
			}
		})
	}
	for name, want := range map[string][]string{
		"dgx1-v100.txt":                {">CPUs 0-19,40-59 · at most PHB inside<", ">PIX<"},
		"hgx-h100-nv18-nics.txt":       {">NV18 between every two<", ">NUMA node 1 · at most NODE inside<"},
		"gb200-4gpu.txt":               {">NV18 between every two<"},
		"two-5090-p2p-off.txt":         {">read GNS<", ">PHB<"},
		"two-socket-pcie-switches.txt": {">NUMA node 0<", ">PXB<", ">PIX<", ">SYS<"},
		"epyc-5gpu-node.txt":           {">NUMA node 0 · at most NODE inside<"},
	} {
		m, err := ReadFile("testdata/" + name)
		require.NoError(t, err)
		text := draw(t, name, m, nil)
		for _, w := range want {
			require.Contains(t, text, w, name)
		}
	}
	// DGX-1 has 16 NVLink paths, each its own line.
	m, err := ReadFile("testdata/dgx1-v100.txt")
	require.NoError(t, err)
	require.Equal(t, 16, strings.Count(draw(t, "dgx1", m, nil), "<path "))
}

func TestDrawingOfAnything(t *testing.T) {
	odd := machine2(Pair{Link: "NV4"}, Pair{Link: "NV4"})
	odd.Devices[0].Name = "<&\"'\x00\xff> a name that is far too long for its box"
	odd.Driver.Detail = "a <b> & c"
	text := draw(t, "odd", odd, nil)
	require.Contains(t, text, "&lt;&amp;")
	require.Contains(t, text, ">NV4</text>")

	unknown := machine2(Pair{}, Pair{Access: No})
	text = draw(t, "unknown", unknown, nil)
	require.Contains(t, text, ">?</text>")
	require.Contains(t, text, ">NS</text>")

	one := &Machine{Version: FormatVersion, Devices: make([]Device, 1), Pairs: [][]Pair{{{}}}}
	draw(t, "one", one, nil)
	require.ErrorIs(t, odd.WriteSVG(io.Discard, even(3, 1)), ErrFormat)
	require.ErrorIs(t, odd.WriteSVG(fullDisk{}, nil), errFull)

	// Three sockets with links within and across, and sixteen devices on four.
	for _, c := range []struct{ n, nodes int }{{6, 3}, {16, 4}} {
		m := &Machine{Version: FormatVersion, Devices: make([]Device, c.n)}
		for i := range c.n {
			node := i % c.nodes
			m.Devices[i] = Device{Ordinal: i, NUMA: &node}
			m.Pairs = append(m.Pairs, make([]Pair, c.n))
			for j := range c.n {
				m.Pairs[i][j].Link = "SYS"
				if i != j && (i+j)%3 == 0 {
					m.Pairs[i][j].Link = "NV2"
				}
			}
		}
		text := draw(t, fmt.Sprintf("nodes-%d", c.nodes), m, nil)
		require.Positive(t, strings.Count(text, "<path "))
		requireClear(t, text)
	}
}

// requireClear: no line passes behind the box of a device that it does not end at.
func requireClear(t *testing.T, svg string) {
	t.Helper()
	var boxes [][4]int // the device's corners, one pixel inside
	for line := range strings.Lines(svg) {
		var x, y int
		if n, _ := fmt.Sscanf(line, `<rect x="%d" y="%d"`, &x, &y); n == 2 && strings.Contains(line, fmt.Sprintf(`width="%d" height="%d"`, deviceW, deviceH)) {
			boxes = append(boxes, [4]int{x + 1, y + 1, x + deviceW - 1, y + deviceH - 1})
		}
	}
	require.NotEmpty(t, boxes)
	for line := range strings.Lines(svg) {
		path, ok := strings.CutPrefix(line, `<path d="M `)
		if !ok || strings.Contains(line, " C ") { // arcs stay above their row
			continue
		}
		path, _, _ = strings.Cut(path, `"`)
		var at []point
		for _, p := range strings.Split(path, " L ") {
			var q point
			_, err := fmt.Sscanf(p, "%d %d", &q.x, &q.y)
			require.NoError(t, err, line)
			at = append(at, q)
		}
		for k := range len(at) - 1 {
			for step := range 1001 {
				x := at[k].x + (at[k+1].x-at[k].x)*step/1000
				y := at[k].y + (at[k+1].y-at[k].y)*step/1000
				for _, b := range boxes {
					require.False(t, x > b[0] && x < b[2] && y > b[1] && y < b[3], "%s passes behind the device at %v", line, b)
				}
			}
		}
	}
}

// sketch is sockets in short: devices, and NICs as n0, in brackets by switch, sockets apart by bars.
func sketch(m *Machine) string {
	var rows []string
	for _, s := range m.sockets() {
		var groups []string
		for _, g := range s.switches {
			var parts []string
			for _, i := range g.devices {
				parts = append(parts, fmt.Sprint(i))
			}
			for _, k := range g.nics {
				parts = append(parts, fmt.Sprintf("n%d", k))
			}
			text := g.class.String() + "(" + strings.Join(parts, " ") + ")"
			for _, b := range g.bridges {
				text += fmt.Sprint(b)
			}
			groups = append(groups, text)
		}
		rows = append(rows, strings.Join(groups, " "))
	}
	return strings.Join(rows, " | ")
}

func TestSockets(t *testing.T) {
	for name, want := range map[string]string{
		"dgx1-v100.txt":                "PIX(0 1 n0) PIX(2 3 n2) | PIX(4 5 n1) PIX(6 7 n3)",
		"hgx-h100-nv18-nics.txt":       "PIX(0 1 n0 n1) PIX(2 3 n2 n3) | PIX(4 5 n4 n5) PIX(6 7 n6 n7)",
		"gb200-4gpu.txt":               "X(0) X(1) | X(2) X(3)",
		"two-socket-pcie-switches.txt": "PXB(0 1) | PIX(2 3)",
		"epyc-5gpu-node.txt":           "X(0) X(1) X(2) X(3) X(4)",
		"two-5090-p2p-off.txt":         "X(0) X(1)",
	} {
		m, err := ReadFile("testdata/" + name)
		require.NoError(t, err)
		require.Equal(t, want, sketch(m), name)
	}
	// Two bridges below one switch, their devices numbered in turn.
	below := &Machine{Devices: make([]Device, 5), Pairs: make([][]Pair, 5)}
	for i := range below.Pairs {
		below.Pairs[i] = make([]Pair, 5)
		for j := range below.Pairs[i] {
			below.Pairs[i][j].Link = "PXB"
			if i%2 == j%2 && max(i, j) < 4 {
				below.Pairs[i][j].Link = "PIX"
			}
		}
	}
	require.Equal(t, "PXB(0 2 1 3 4)[0 2][1 3]", sketch(below))
	draw(t, "below", below, nil)
	link := func(l string) *Machine { return machine2(Pair{Link: l}, Pair{Link: l}) }
	require.Equal(t, "X(0) | X(1)", sketch(link("SYS")), "no NUMA node, and yet it is plain")
	require.Equal(t, "X(0) X(1)", sketch(link("NV2")), "NVLink hides where they are: together")
	require.Equal(t, "X(0) X(1)", sketch(link("")))
	require.Equal(t, "X(0) X(1)", sketch(link("NODE")))
	require.Equal(t, "PIX(0 1)", sketch(link("PIX")))
}
