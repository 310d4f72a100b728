package topo

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClassOf(t *testing.T) {
	for link, want := range map[string]Class{
		"X": ClassSelf, "NV1": ClassNVLink, "NV18": ClassNVLink, "PIX": ClassPIX, "PXB": ClassPXB, "PHB": ClassPHB,
		"NODE": ClassNODE, "SYS": ClassSYS, "SOC": ClassSYS, "": ClassUnknown, "NV": ClassUnknown, "NV#": ClassUnknown, "NVL": ClassUnknown, "sys": ClassUnknown,
	} {
		require.Equal(t, want, ClassOf(link), "%q", link)
	}
	require.Less(t, ClassNVLink, ClassPIX)
	require.Less(t, ClassNODE, ClassSYS)
	require.Equal(t, "NODE", ClassNODE.String())
	require.Equal(t, "unknown", Class(99).String())
}

func TestMesh(t *testing.T) {
	texts := realTopologies(t)
	read := func(name string) *Machine {
		m, err := ParseSMI(name, texts[name])
		require.NoError(t, err)
		return m
	}
	dgx1 := read("dgx1-v100.txt")
	for _, c := range []struct {
		name     string
		m        *Machine
		devices  []int
		mesh     bool
		class    Class
		from, to int
	}{
		{"dgx1", dgx1, nil, false, ClassSYS, 0, 5},
		{"dgx1, one socket", dgx1, []int{0, 1, 2, 3}, true, ClassNVLink, 0, 1},
		{"dgx1, the other", dgx1, []int{7, 5, 6, 4}, true, ClassNVLink, 7, 5},
		{"dgx1, across, joined", dgx1, []int{0, 4}, true, ClassNVLink, 0, 4},
		{"dgx1, across, not joined", dgx1, []int{0, 1, 4}, false, ClassSYS, 1, 4},
		{"hgx", read("hgx-h100-nv18-nics.txt"), nil, true, ClassNVLink, 0, 1},
		{"gb200", read("gb200-4gpu.txt"), nil, true, ClassNVLink, 0, 1},
		{"switches", read("two-socket-pcie-switches.txt"), nil, false, ClassSYS, 0, 2},
		{"switches, one", read("two-socket-pcie-switches.txt"), []int{1, 0}, false, ClassPXB, 1, 0},
		{"epyc", read("epyc-5gpu-node.txt"), []int{3, 4, 0}, false, ClassNODE, 3, 0},
		{"ranks on one device", dgx1, []int{5, 5}, true, ClassSelf, 5, 5},
		{"nothing known", machine2(Pair{}, Pair{}), nil, false, ClassUnknown, 0, 1},
		{"one way", machine2(Pair{Link: "NV4"}, Pair{Link: "SYS"}), nil, false, ClassSYS, 1, 0},
		{"no such device", dgx1, []int{0, 8}, false, ClassUnknown, 0, 8},
		{"no such device first", dgx1, []int{-1, 0}, false, ClassUnknown, -1, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.mesh, c.m.Mesh(c.devices))
			class, from, to := c.m.Farthest(c.devices)
			require.Equal(t, c.class, class)
			require.Equal(t, []int{c.from, c.to}, []int{from, to})
		})
	}
}

func TestNVLinks(t *testing.T) {
	for link, want := range map[string]struct {
		n     int
		known bool
	}{"NV18": {18, true}, "NV1": {1, true}, "SYS": {0, true}, "": {0, false}} {
		n, known := Pair{Link: link}.NVLinks()
		require.Equal(t, want.n, n, link)
		require.Equal(t, want.known, known, link)
	}
}
