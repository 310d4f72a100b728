package topo

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func realTopologies(t testing.TB) map[string][]byte {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.Len(t, files, 6)
	texts := map[string][]byte{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		texts[filepath.Base(f)] = text
	}
	return texts
}

// cells are the matrices of a text as words, line by line, without legends.
func cells(text string) (lines [][]string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Legend") {
			break
		}
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, words)
		}
	}
	return lines
}

// rendered is the machine as text again: paths, and the P2P matrices that are known.
func rendered(t *testing.T, m *Machine) (links, all string) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, m.WriteLinks(&b))
	links = b.String()
	for _, capability := range []string{"r", "w", "a", "n", "p"} {
		known := false
		for _, row := range m.Pairs {
			for _, p := range row {
				known = known || map[string]Code{"r": p.ReadCode, "w": p.WriteCode, "a": p.AtomicsCode, "n": p.NVLinkCode, "p": p.PropertyCode}[capability] != ""
			}
		}
		if known {
			b.WriteString("\n$ nvidia-smi topo -p2p " + capability + "\n")
			require.NoError(t, m.WriteP2P(&b, capability))
		}
	}
	return links, b.String()
}

// again is the machine after rendering and reading; what was noted of the first text is not told of the second.
func again(t *testing.T, m *Machine) {
	t.Helper()
	_, text := rendered(t, m)
	back, err := ParseSMI("again", []byte(text))
	require.NoError(t, err, text)
	want := *m
	want.Notes = nil
	require.Equal(t, &want, back, text)
}

// Real machines read, and render back to the same cells.
func TestRealTopologies(t *testing.T) {
	for name, text := range realTopologies(t) {
		t.Run(name, func(t *testing.T) {
			m, err := ParseSMI(name, text)
			require.NoError(t, err)
			again(t, m)
			links, _ := rendered(t, m)
			got := cells(links)
			if m.Pairs[0][1].ReadCode != "" {
				var b bytes.Buffer
				require.NoError(t, m.WriteP2P(&b, "r"))
				got = append(got, cells(b.String())...)
			}
			require.Equal(t, cells(string(text)), got)
			if name != "gb200-4gpu.txt" && m.Notes == nil { // that one has spaces for tabs
				require.Equal(t, strings.TrimLeft(string(text), " "), links[:strings.Index(links, "\nLegend")], "the very bytes")
			}
		})
	}
}

func TestP2PMatrix(t *testing.T) {
	texts := realTopologies(t)
	m, err := ParseSMI("two-5090", texts["two-5090-p2p-off.txt"])
	require.NoError(t, err)
	require.Equal(t, Pair{Link: "PHB", Read: No, ReadCode: CodeGNS}, m.Pairs[0][1])
	require.Equal(t, []string{"line 5: the P2P matrix does not say what it is of; it is taken for reading (-p2p r)"}, m.Notes)
	m, err = ParseSMI("epyc", texts["epyc-5gpu-node.txt"])
	require.NoError(t, err)
	require.Equal(t, Pair{Link: "PHB", Read: Yes, ReadCode: CodeOK}, m.Pairs[4][3])

	block := func(capability, there, back string) string {
		return "$ nvidia-smi topo -p2p " + capability + "\n \tGPU0\tGPU1\t\n GPU0\tX\t" + there + "\t\n GPU1\t" + back + "\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n\n"
	}
	links := "$ nvidia-smi topo -m\n\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n\n"
	blocks := block("w", "NS", "OK") + block("r", "OK", "CNS") + block("n", "OK", "OK") + block("a", "TNS", "DR") + block("p", "U", "NS")
	for _, text := range []string{links + blocks, blocks + links} { // in any order
		m, err = ParseSMI("all", []byte(text))
		require.NoError(t, err)
		require.Nil(t, m.Notes)
		require.Equal(t, Pair{Link: "NV4", Read: Yes, ReadCode: CodeOK, Write: No, WriteCode: CodeNS, NativeAtomics: No, AtomicsCode: CodeTNS, NVLinkCode: CodeOK, PropertyCode: CodeU}, m.Pairs[0][1])
		require.Equal(t, Pair{Link: "NV4", Read: No, ReadCode: CodeCNS, Write: Yes, WriteCode: CodeOK, NativeAtomics: No, AtomicsCode: CodeDR, NVLinkCode: CodeOK, PropertyCode: CodeNS}, m.Pairs[1][0])
		require.Equal(t, No, m.Pairs[1][0].Property())
		again(t, m)
	}
	for _, form := range []string{"--p2pstatus %", "--p2p_status %", "--p2pstatus=%", "-p2p=%", "--p2p_status  =  %"} { // nvidia-smi's other ways to say it
		other, err := ParseSMI("all", []byte(regexp.MustCompile(`-p2p (\w)`).ReplaceAllString(blocks+links, strings.Replace(form, "%", "$1", 1))))
		require.NoError(t, err, form)
		require.Equal(t, m, other, form)
	}
	var b bytes.Buffer
	require.NoError(t, m.WriteP2P(&b, "w"))
	require.True(t, strings.HasPrefix(b.String(), " \tGPU0\tGPU1\t\n GPU0\tX\tNS\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  X    = Self\n"), b.String())
	require.ErrorContains(t, m.WriteP2P(&b, "x"), `no capability "x"`)
	require.ErrorIs(t, m.WriteP2P(fullDisk{}, "r"), errFull)
	b.Reset()
	require.NoError(t, machine2(Pair{Access: No}, Pair{}).WriteP2P(&b, "r"))
	require.Contains(t, b.String(), "GPU0\tX\tNS\t\n GPU1\tU\tX\t\n")
	// A command that is no P2P matrix's takes the label away.
	m, err = ParseSMI("label", []byte("$ nvidia-smi topo -p2p w\n$ nvidia-smi topo -m\n"+links[strings.Index(links, "\n")+1:]+" \tGPU0\tGPU1\t\n GPU0\tX\tNS\t\n GPU1\tOK\tX\t\n"))
	require.NoError(t, err)
	require.Equal(t, CodeNS, m.Pairs[0][1].ReadCode)
}

// What real pastes have been seen to contain.
func TestPasteTraps(t *testing.T) {
	const three = "CPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
	const spaced = "        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
	for name, c := range map[string]struct {
		text     string
		affinity []Affinity
		nics     []string
	}{
		"preamble":             {"76 NICs found in the topology, only displaying 56 in the matrix.\n\tGPU0\tGPU1\nGPU0\tX\tSYS\nGPU1\tSYS\tX\n", nil, nil},
		"a table above":        {"+-----+\n| NVIDIA-SMI 535.113.01 |\n| N/A 31C P0 |\n+-----+\n\n\tGPU0\nGPU0\t X \n", nil, nil},
		"glued affinity":       {"\tGPU0\tGPU1\t" + three + "GPU0\tX\tPIX\t0-55,112-1670               N/A\nGPU1\tPIX\tX\t56-111,168-2231               N/A\n", []Affinity{{"0-55,112-167", "0", "N/A"}, {"56-111,168-223", "1", "N/A"}}, nil},
		"glued, spaces":        {spaced + "GPU0     X      PIX     0-55,112-1670               N/A\nGPU1    PIX      X      56-111,168-2231               N/A\n", []Affinity{{"0-55,112-167", "0", "N/A"}, {"56-111,168-223", "1", "N/A"}}, nil},
		"glued, node 12":       {spaced + "GPU0     X      PIX     0-55,112-16712              N/A\nGPU1    PIX      X      9-11,1-232               N/A\n", nil, nil},
		"glued, uneven ranges": {spaced + "GPU0     X      PIX     0-31,64-953               N/A\nGPU1    PIX      X      0,2,4-91               N/A\n", []Affinity{{"0-31,64-95", "3", "N/A"}, {"0,2,4-9", "1", "N/A"}}, nil},
		"glued header":         {"\tGPU0\tNIC10NIC11NIC12\tCPU Affinity\nGPU0\tX\tPIX\tSYS\tPHB\t0-3\n", []Affinity{{CPU: "0-3"}}, []string{"NIC10", "NIC11", "NIC12"}},
		"glued GPUs":           {"\tGPU0GPU1CPU AffinityNUMA Affinity\nGPU0\tX\tPIX\t0-3\t0\nGPU1\tPIX\tX\t0-3\t0\n", []Affinity{{CPU: "0-3", NUMA: "0"}, {CPU: "0-3", NUMA: "0"}}, nil},
		"blank cells":          {"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tPIX\t\t\nGPU1\tPIX\tX\t0-3\t\n", []Affinity{{}, {CPU: "0-3"}}, nil},
		"blank but the last":   {"\tGPU0\tGPU1\t" + three + "GPU0\t X \tPIX\t\t\t\tN/A\nGPU1\tPIX\t X \t0-3\t\t\tN/A\n", []Affinity{{GPUNUMAID: "N/A"}, {CPU: "0-3", GPUNUMAID: "N/A"}}, nil},
		"blank, spaces":        {spaced + "GPU0     X      PIX                             N/A\nGPU1    PIX      X      0-3                     N/A\n", []Affinity{{GPUNUMAID: "N/A"}, {CPU: "0-3", GPUNUMAID: "N/A"}}, nil},
		"blank CPUs":           {spaced + "GPU0     X      PIX             1               N/A\nGPU1    PIX      X              1               N/A\n", []Affinity{{"", "1", "N/A"}, {"", "1", "N/A"}}, nil},
		"blank, shifted":       {"  " + spaced + "  GPU0     X      PIX                             N/A\n  GPU1    PIX      X      0-3     1\n", []Affinity{{GPUNUMAID: "N/A"}, {CPU: "0-3", NUMA: "1"}}, nil},
		"all blank":            {"\tGPU0\t" + three + "GPU0\tX\n", []Affinity{{}}, nil},
		"one tab ahead of ID":  {"\tGPU0\t" + three + "GPU0\tX\t0-191\t0\tN/A\n", []Affinity{{"0-191", "0", "N/A"}}, nil},
		"single spaces":        {" GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X NODE 0-7 0 N/A\nGPU1 NODE X 8-15 1 2\n", []Affinity{{"0-7", "0", "N/A"}, {"8-15", "1", "2"}}, nil},
		"NUMA list":            {"\tGPU0\t" + three + "GPU0\tX\t0-7\t0,3-9,11-17\t\tN/A\n", []Affinity{{"0-7", "0,3-9,11-17", "N/A"}}, nil},
		"mlx names":            {"        GPU0    mlx5_0  mlx5_1  CPU Affinity\nGPU0     X      PIX     NODE    0-23\nmlx5_0  PIX      X      NODE\nmlx5_1  NODE    NODE     X\n\nLegend:\n\n  X   = Self\n", []Affinity{{CPU: "0-23"}}, []string{"mlx5_0", "mlx5_1"}},
		"other adapters":       {"\tGPU0\tmlx5_bond_0\tbnxt_re0\thfi1_0\nGPU0\tX\tPIX\tNODE\tSYS\n", nil, []string{"mlx5_bond_0", "bnxt_re0", "hfi1_0"}},
		"NIC rows, trailing":   {"\tGPU0\tNIC0\t" + three + "GPU0\t X \tPXB\t0-63\t0\t\tN/A\nNIC0\tPXB\t X \t\t\t\t\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_7\n  NIC1: mlx5_9\n", []Affinity{{"0-63", "0", "N/A"}}, []string{"NIC0"}},
		"old SOC legend":       {"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSOC\t0-7\nGPU1\tSOC\t X \t8-15\n\nLegend:\n\n  X   = Self\n  SOC = Path traverses a socket-level link\n", []Affinity{{CPU: "0-7"}, {CPU: "8-15"}}, nil},
		"trailing tabs":        {"\tGPU0\tGPU1\t\t\nGPU0\tX\tSYS\t\t\nGPU1\tSYS\tX\t\t\n", nil, nil},
		"escapes":              {"\t\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\tX\tSYS\t0-7\nGPU1\tSYS\tX\t0-7\n", []Affinity{{CPU: "0-7"}, {CPU: "0-7"}}, nil},
		"escapes cut":          {"\t[4mGPU0\tGPU1\tCPU Affinity[0m\nGPU0\tX\tSYS\t0-7\nGPU1\tSYS\tX\t0-7\n", []Affinity{{CPU: "0-7"}, {CPU: "0-7"}}, nil},
		"escapes spelled":      {"\t^[[4mGPU0\t^[[4mGPU1^[[0m\t^[[mCPU Affinity^[[0m^[[K\nGPU0\tX\tSYS\t0-7\nGPU1\tSYS\tX\t0-7\n", []Affinity{{CPU: "0-7"}, {CPU: "0-7"}}, nil},
		"carriage return":      {"\tGPU0\tGPU1\r\nGPU0\tX\tSYS\r\nGPU1\tSYS\tX\r\n\r\nLegend:\r\n", nil, nil},
		"leading spaces":       {"   \tGPU0\tGPU1\n  GPU0\tX\tSYS\n  GPU1\tSYS\tX\n", nil, nil},
		"no last newline":      {"\tGPU0\tGPU1\nGPU0\tX\tSYS\nGPU1\tSYS\tX", nil, nil},
		"a fence":              {"```\n\tGPU0\tGPU1\nGPU0\tX\tSYS\nGPU1\tSYS\tX\n\n```\n", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := ParseSMI("paste", []byte(c.text))
			if name == "glued, node 12" { // the second row's list falls
				require.ErrorContains(t, err, `paste:3:25: a cell is missing, and "9-11,1-232" is no CPU list run together with a NUMA node`)
				return
			}
			require.NoError(t, err)
			var nics []string
			for _, n := range m.NICs {
				nics = append(nics, n.Name)
			}
			require.Equal(t, c.nics, nics)
			for i, a := range c.affinity {
				require.Equal(t, a, *m.Devices[i].Affinity)
			}
			again(t, m)
		})
	}
}

func TestPasteDetails(t *testing.T) {
	m, err := ParseSMI("nics", []byte("\tGPU0\tNIC0\tNIC1\nGPU0\t X \tPXB\tSOC\nNIC0\tPXB\t X \tSOC\nNIC1\tSOC\tSOC\t X \n\nNIC Legend:\n\n  NIC0: mlx5_7\n  NIC9: mlx5_9\n"))
	require.NoError(t, err)
	require.Equal(t, []NIC{{Name: "NIC0", Device: "mlx5_7", GPUs: []string{"PXB"}, NICs: []string{"X", "SYS"}}, {Name: "NIC1", GPUs: []string{"SYS"}, NICs: []string{"SYS", "X"}}}, m.NICs)
	links, _ := rendered(t, m)
	require.Contains(t, links, "\nNIC1\tSOC\tSOC\t X \n")
	require.Contains(t, links, "\n  SOC  = Connection")
	require.Contains(t, links, "\nNIC Legend:\n\n  NIC0: mlx5_7\n")

	m, err = ParseSMI("nodes", []byte("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tSYS\t0-7\t1\nGPU1\tSYS\tX\t0-7\t0,3-9\n"))
	require.NoError(t, err)
	require.Equal(t, 1, *m.Devices[0].NUMA)
	require.Nil(t, m.Devices[1].NUMA, "a list names no one node")

	// Sixteen GPUs, adapters by name, no NUMA column, in spaces.
	var text strings.Builder
	names := []string{}
	for i := range 16 {
		names = append(names, fmt.Sprintf("GPU%d", i))
	}
	names = append(names, "mlx5_0", "mlx5_1")
	fmt.Fprintf(&text, "%8s", "")
	for _, n := range names {
		fmt.Fprintf(&text, "%-8s", n)
	}
	text.WriteString("CPU Affinity\n")
	for i, n := range names {
		fmt.Fprintf(&text, "%-8s", n)
		for j := range names {
			c := "NV12"
			switch {
			case i == j:
				c = " X "
			case max(i, j) > 15:
				c = "NODE"
			}
			fmt.Fprintf(&text, "%-8s", c)
		}
		if i < 16 {
			text.WriteString("0-47,96-143")
		}
		text.WriteString("\n")
	}
	m, err = ParseSMI("sixteen", []byte(text.String()))
	require.NoError(t, err)
	require.Len(t, m.Devices, 16)
	require.Len(t, m.NICs, 2)
	require.True(t, m.Mesh(nil))
	again(t, m)
}

// What cannot be read for certain is refused, with its place.
func TestUnreadable(t *testing.T) {
	const head = "\tGPU0\tGPU1\n"
	const links = head + "GPU0\tX\tSYS\nGPU1\tSYS\tX\n\n"
	const p2p = " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\n"
	const three = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
	const spaced = "        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
	for text, want := range map[string]string{
		"":                                    "t:0: no topology matrix: want the output of `nvidia-smi topo -m`",
		"hello\n":                             "t:1: no topology matrix",
		p2p:                                   "t:4: no topology matrix",
		"GPU0\tX\n":                           "t:1:1: a row without a header line above it",
		"  GPU0\tX\n":                         "t:1:3: a row without a header line above it",
		head + "GPU0\tX\tNV\n":                `t:2:8: "NV" is no path or state of GPU0 to GPU1`,
		head + "GPU0\tX\tNV0\n":               `t:2:8: "NV0" is no path or state`,
		head + "GPU0\tX\tNV180\n":             `t:2:8: "NV180" is no path or state`,
		head + "GPU0\tX\tNV18NV18\n":          `t:2:8: "NV18NV18" is no path or state`,
		head + "GPU0\tX\tN/A\n":               `t:2:8: "N/A" is no path or state`,
		head + "GPU0\tX\n":                    `t:2:7: the row of GPU0 ends before column GPU1`,
		head + "GPU1\tX\tSYS\n":               `t:2:1: want the row of GPU0, got "GPU1"`,
		head + "GPU0\tX\tSYS\nGPU0\tSYS\tX\n": `t:3:1: want the row of GPU1, got "GPU0"`,
		head + "GPU0\tSYS\tX\n":               `t:2:6: "SYS" where GPU0 meets GPU0`,
		head + "GPU0\tX\tX\n":                 `t:2:8: "X" where GPU0 meets GPU1`,
		head + "GPU0\tX\tSYS\n\n":             "t:3: the matrix of line 1 ends after 1 rows of 2 GPUs",
		head + "GPU0\tX\tSYS\nLegend:\n":      "t:3: the matrix of line 1 ends after 1 rows of 2 GPUs",
		head:                                  "t:1: the matrix of line 1 ends after 0 rows of 2 GPUs",
		head + "GPU0\tX\tSYS\tSYS\n":          `t:2:12: "SYS" behind the last column`,
		head + "GPU0\tX\tSYS\nGPU1\tOK\tX\n":  `t:3:6: "OK" is no path or state`,
		links[:len(links)-1] + "GPU2\tSYS\tSYS\n": "t:4:1: more rows than columns",
		"\tGPU0\tGPU2\n":                             "t:1:7: column GPU2 where GPU1 or a NIC was expected",
		"\tGPU0\tGPU0\n":                             "t:1:7: two columns GPU0",
		"\tGPU0\tNIC0\tGPU1\n":                       "t:1:12: column GPU1 where",
		"\tGPU0\tCPU Affinity\tGPU1\n":               "t:1:20: column GPU1 behind the affinities",
		"\tGPU0\tNUMA Affinity\tCPU Affinity\n":      "t:1:21: column CPU Affinity behind NUMA Affinity",
		"\tGPU0\tNIC0\nGPU0\tX\tPIX\nNIC0\tSYS\tX\n": "t:3:6: NIC0 is SYS from GPU0, whose row says PIX",
		head + "GPU0\tX\tNV18\nGPU1\tSYS\tX\n":       "t:3:6: GPU1 is SYS from GPU0, whose row says NV18",
		head + "GPU0\tX\tSOC\nGPU1\tNV4\tX\n":        "t:3:6: GPU1 is NV4 from GPU0, whose row says SOC",
		"\tGPU0\tNIC0\tNIC1\nGPU0\tX\tPIX\tSYS\nNIC0\tPIX\tX\tPXB\nNIC1\tSYS\tSYS\tX\n": "t:4:10: NIC1 is SYS from NIC0, whose row says PXB",
		"\tGPU0\tNIC0\tNIC1\nGPU0\tX\tPIX\tPIX\nNIC0\tPIX\tX\tPIX\n\n":                  "t:4: the matrix of line 1 ends after 2 rows of 3 GPUs and NICs",
		"\tGPU0\tCPU Affinity\nGPU0\tX\tabc\n":                                          `t:2:8: "abc" is no CPU Affinity`,
		"\tGPU0\tCPU Affinity\nGPU0\tX\t0-\n":                                           `t:2:8: "0-" is no CPU Affinity`,
		"\tGPU0\tCPU Affinity\nGPU0\tX\t0-3\t0\n":                                       `t:2:12: "0" behind the last column`,
		three + "GPU0\tX\tSYS\t0-3\t0\t\tx\n":                                           `t:2:19: "x" is no GPU NUMA ID`,
		three + "GPU0\tX\tSYS\t0-3\tN\t\tN/A\n":                                         `t:2:16: "N" is no NUMA Affinity`,
		three + "GPU0\tX\tSYS\t0-30\t\tN/A\n":                                           `t:2:18: "N/A" may belong to any of the columns`,
		spaced + "GPU0 X SYS 0-3 N/A\n":                                                 `t:2:12: "0-3" may belong to any of the columns CPU Affinity, NUMA Affinity, GPU NUMA ID: the columns do not line up`,
		spaced + "GPU0     X      SYS     0-3    1\n":                                   `t:2:32: "1" may belong to any of the columns`,
		spaced + "GPU0     X      SYS     0-3,9-2231            N/A\n":                  `t:2:25: a cell is missing, and "0-3,9-2231" is no CPU list run together`,
		spaced + "GPU0     X      SYS     0-3-51               N/A\n":                   `t:2:25: a cell is missing, and "0-3-51" is no CPU list run together`,
		spaced + "GPU0     X      SYS     0            N/A\n":                           `t:2:25: a cell is missing, and "0" is no CPU list run together`,
		links + "\tGPU0\nGPU0\tX\n":                                                     "t:5:2: a matrix of 1 GPUs, the one above has 2",
		links + "something else\n":                                                      `t:5:1: want a matrix, a legend or an empty line, got "something else"`,
		links + head + "GPU0\tX\tNV4\nGPU1\tNV4\tX\n":                                   "t:6:8: a second topology matrix, the first is in line 1",
		links + p2p + p2p:                                          "t:10:9: a second P2P matrix without its command, the first is in line 5: put a line such as `-p2p w` above each",
		links + p2p + "-p2p r\n" + p2p:                             "t:11:9: a second P2P matrix of reading, for one without its command is taken for -p2p r, the first is in line 5: put a line such as `-p2p w` above each",
		links + "-p2p r\n" + p2p + p2p:                             "t:11:9: a second P2P matrix of reading, for one without its command is taken for -p2p r, the first is in line 6",
		links + "-p2p r\n" + strings.ReplaceAll(p2p, "OK", "OK/U"): `t:7:9: "OK/U" is no path or state`,
		links + "-p2p w\n" + p2p + " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK/NS\tX\t\n":               `t:12:7: "OK/NS" of GPU1 to GPU0, of which a matrix above says something else`,
		links + "-p2p w\n" + p2p + " \tGPU0\tGPU1\t\n GPU0\tX\tNS\t\n GPU1\tOK/OK\tX\t\n":               `t:12:7: this matrix is of reading and writing, and one above says something else of GPU0 to GPU1`,
		"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tPXB\t0-27,56-830\nGPU1\tPXB\tX\t0-27\t0\n": `t:2:12: "0-27,56-830" may belong to any of the columns CPU Affinity, NUMA Affinity: the row ends behind it`,
		"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tSYS\t0\n":                                  `t:2:12: "0" may belong to any of the columns`,
		"        GPU0    GPU1    CPU Affinity    NUMA Affinity\nGPU0     X      PXB     0-27,56-830\n":  `t:2:25: "0-27,56-830" may belong to any of the columns`,
		"\tGPU0\tCPU Affinity\nGPU0\tX\t63-0\n":                                                         `t:2:8: "63-0" is no CPU Affinity`,
		"\tGPU0\tCPU Affinity\nGPU0\tX\t055,112-167\n":                                                  `t:2:8: "055,112-167" is no CPU Affinity`,
		"\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\tX\t0-3\t3,1\n":                                      `t:2:12: "3,1" is no NUMA Affinity`,
		links + "-p2p a\n" + p2p + "-p2p a\n" + p2p:                                                     "t:12:9: a second matrix of -p2p a, the first is in line 6",
		links + " $ nvidia-smi topo -p2p rw\n" + p2p:                                                    `t:5:25: no such capability of -p2p, "rw": want r, w, n, a or p`,
		links + "Legend:\n X = Self\n GPU0\tX\tOK\t\n":                                                  "t:7:2: a row without a header line above it",
		"\x1b[4m\tGPU0\tGPU1\x1b[0m\nGPU0\t\x1b[1mX\tNVX\n":                                             `t:2:12: "NVX" is no path or state`,
	} {
		_, err := ParseSMI("t", []byte(text))
		require.ErrorIs(t, err, ErrText, "%q", text)
		require.ErrorContains(t, err, want, "%q", text)
	}
}

// What WriteMatrix prints is of reading and writing together; a prompt's words are no options.
func TestOwnMatrix(t *testing.T) {
	const links = "\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n\n"
	matrix := func(there, back string) string {
		return "\tGPU0\tGPU1\nGPU0\t X \t" + there + "\nGPU1\t" + back + "\t X \n\n"
	}
	read := func(text string) *Machine {
		m, err := ParseSMI("own", []byte(text))
		require.NoError(t, err, text)
		return m
	}
	ok := Pair{Link: "NV4", Read: Yes, ReadCode: CodeOK, Write: Yes, WriteCode: CodeOK}
	half := Pair{Link: "NV4", Read: Yes, ReadCode: CodeOK}
	m := read(links + ownCaption + "\n" + matrix("U", "OK"))
	require.Equal(t, [][]Pair{{{}, {Link: "NV4"}}, {ok, {}}}, m.Pairs)
	require.Empty(t, m.Notes)
	require.Equal(t, [][]Pair{{{}, half}, {ok, {}}}, read(links+ownCaption+"\n"+matrix("OK/U", "OK")).Pairs)
	m = read(links + matrix("OK", "CNS/OK")) // a cell of both tells what all are of
	require.Equal(t, [][]Pair{{{}, ok}, {{Link: "NV4", Read: No, ReadCode: CodeCNS, Write: Yes, WriteCode: CodeOK}, {}}}, m.Pairs)
	require.Empty(t, m.Notes)
	// The same again by capability is no contradiction.
	m = read(links + ownCaption + "\n" + matrix("OK", "OK/U") + "-p2p r\n" + matrix("OK", "OK"))
	require.Equal(t, [][]Pair{{{}, ok}, {half, {}}}, m.Pairs)
	_, err := ParseSMI("own", []byte(links+ownCaption+"\n"+matrix("OK", "OK")+"-p2p w\n"+matrix("NS", "OK")))
	require.ErrorContains(t, err, "of which a matrix above says something else")

	read("me@gpu-p2p node:~$ nvidia-smi topo -m\n" + links)
	read("me@gpu -p2p x:~$ nvidia-smi topo -m\n" + links)
	require.Equal(t, CodeNS, read(links + "me@gpu-p2p node:~$ nvidia-smi topo --p2pstatus w\n" + matrix("NS", "OK")).Pairs[0][1].WriteCode)
	// A label is for the matrix below it, and for no other.
	m = read(links + "-p2p w\n" + matrix("NS", "NS") + matrix("OK", "OK"))
	require.Equal(t, []Code{CodeOK, CodeNS}, []Code{m.Pairs[0][1].ReadCode, m.Pairs[0][1].WriteCode})
	require.Len(t, m.Notes, 1)
	// What the legend calls an adapter reaches the terminal.
	m = read("\tGPU0\tNIC0\nGPU0\tX\tPIX\n\nNIC Legend:\n  NIC0: \x07evil\n")
	require.Empty(t, m.NICs[0].Device)
}

func FuzzParseSMI(f *testing.F) {
	for _, text := range realTopologies(f) {
		f.Add(text)
	}
	f.Add([]byte("\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\tX\tPIX\t0-55,112-1670   N/A\nNIC0\tPIX\tX\n"))
	f.Add([]byte("        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\nGPU0     X      PIX     0-55,112-1670               N/A\nGPU1    PIX      X                                      N/A\n"))
	f.Add([]byte("\t\x1b[4mGPU0GPU1\x1b[0m\nGPU0 X SOC\nGPU1 SOC X\n\n-p2p w\n GPU0 GPU1\n GPU0 X OK\n GPU1 CNS X\nNIC Legend:\n NIC0: x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseSMI("fuzz", text)
		if err != nil {
			require.ErrorIs(t, err, ErrText)
			return
		}
		again(t, m)
		require.NoError(t, m.validate())
		require.NoError(t, m.WriteSVG(io.Discard, nil))
	})
}

func TestReadFile(t *testing.T) {
	m, err := ReadFile("testdata/dgx1-v100.txt")
	require.NoError(t, err)
	require.Len(t, m.Devices, 8)
	dir := t.TempDir()
	long := filepath.Join(dir, "long")
	require.NoError(t, os.WriteFile(long, bytes.Repeat([]byte("x"), maxFile+1), 0o600))
	for _, read := range []func(string) error{
		func(p string) error { _, err := ReadFile(p); return err }, func(p string) error { _, err := ReadBaseline(p); return err },
	} {
		require.ErrorIs(t, read(long), ErrFormat)
		require.ErrorContains(t, read(long), "long: not a machine record: it is longer than 8 MiB")
	}
	bad := filepath.Join(dir, "bad.json")
	require.NoError(t, os.WriteFile(bad, []byte(`{"version": 1`), 0o600))
	_, err = ReadFile(bad)
	require.ErrorIs(t, err, ErrFormat)
	require.ErrorContains(t, err, "bad.json")
	_, err = ReadFile(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)

	paste, err := os.ReadFile("testdata/dgx1-v100.txt")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(bad, append([]byte("\xef\xbb\xbf"), paste...), 0o600))
	marked, err := ReadFile(bad)
	require.NoError(t, err)
	require.Equal(t, m, marked)
}

// Whatever this project writes that holds a machine is read, and of other JSON the error says what it is.
func TestReadDocuments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.json")
	want := fullBaseline().Machine
	var bare bytes.Buffer
	require.NoError(t, want.WriteJSON(&bare))
	require.NoError(t, fullBaseline().Save(path))
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	wrap := func(more string) string { return `{"version": 1, "machine": ` + bare.String() + more + "}" }
	for name, text := range map[string]string{
		"machine": bare.String(), "baseline": string(saved), "topo": wrap(`, "plan": {}`), "probe": wrap(`, "measurement": {}, "ok": true`),
		"marked": "\xef\xbb\xbf" + wrap(""),
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		m, err := ReadFile(path)
		require.NoError(t, err, name)
		require.Equal(t, want, m, name)
	}
	for text, says := range map[string]string{
		`{"backend": {}, "devices": [], "p2p": []}`: `this is JSON with the fields "backend", "devices", "p2p": want a machine, a file of demo topo --save, or what demo topo --json or demo probe --json prints`,
		`{}`:                           "this is JSON with no fields: want a machine",
		`[1]`:                          "this is JSON, and no object: want a machine",
		`{"kind": "fenceline-probes"}`: `this is a record of kind "fenceline-probes": want a machine`,
		`{"kind": "fenceline-baseline", "version": 1}`:            "no machine",
		`{"version": 1, "machine": {"version": 2}}`:               "version 2, this build reads version 1: use a newer build",
		`{"version": 1, "machine": {"version": 1, "devices": 8}}`: "cannot unmarshal",
		string(saved[:500]):    "the text is cut off: it ends at byte 500: save it again",
		string(saved) + "tail": `there is something behind the record: it ends at byte`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := ReadFile(path)
		require.ErrorIs(t, err, ErrFormat, text)
		require.ErrorContains(t, err, says, text)
		require.Equal(t, 1, strings.Count(err.Error(), path), err)
	}
}
