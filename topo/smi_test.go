package topo

import (
	"bytes"
	"os"
	"path/filepath"
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

// paths is the first matrix of a text as words, line by line.
func paths(text string) (lines [][]string) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			break
		}
		lines = append(lines, words)
	}
	return lines
}

// Real machines read, and render back to the same cells.
func TestRealTopologies(t *testing.T) {
	for name, text := range realTopologies(t) {
		t.Run(name, func(t *testing.T) {
			m, err := ParseSMI(name, text)
			require.NoError(t, err)
			var b bytes.Buffer
			require.NoError(t, m.WriteLinks(&b))
			require.Equal(t, paths(string(text)), paths(b.String()))

			again, err := ParseSMI("again", b.Bytes())
			require.NoError(t, err)
			for i := range m.Pairs { // P2P matrices are written apart
				for j := range m.Pairs[i] {
					require.Equal(t, m.Pairs[i][j].Link, again.Pairs[i][j].Link)
				}
			}
			require.Equal(t, m.Devices, again.Devices)
			require.Equal(t, m.NICs, again.NICs)
		})
	}
}

func TestP2PMatrix(t *testing.T) {
	texts := realTopologies(t)
	m, err := ParseSMI("two-5090", texts["two-5090-p2p-off.txt"])
	require.NoError(t, err)
	require.Equal(t, Pair{Link: "PHB", Read: No, ReadCode: CodeGNS}, m.Pairs[0][1])
	m, err = ParseSMI("epyc", texts["epyc-5gpu-node.txt"])
	require.NoError(t, err)
	require.Equal(t, Pair{Link: "PHB", Read: Yes, ReadCode: CodeOK}, m.Pairs[4][3])

	m, err = ParseSMI("both", []byte("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n"+
		"$ nvidia-smi topo -p2p w\n \tGPU0\tGPU1\t\n GPU0\tX\tNS\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"))
	require.NoError(t, err)
	require.Equal(t, Pair{Link: "NV4", Write: No, WriteCode: CodeNS}, m.Pairs[0][1])
	require.Equal(t, Yes, m.Pairs[1][0].Write)
	require.Equal(t, Unknown, m.Pairs[1][0].Read)
}

// What real pastes have been seen to contain.
func TestPasteTraps(t *testing.T) {
	for name, c := range map[string]struct {
		text     string
		affinity []Affinity
		nics     int
	}{
		"preamble":        {"76 NICs found in the topology, only displaying 56 in the matrix.\n\tGPU0\tGPU1\nGPU0\tX\tSYS\nGPU1\tSYS\tX\n", nil, 0},
		"glued affinity":  {"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\tX\tPIX\t0-55,112-1670               N/A\nGPU1\tPIX\tX\t56-111,168-2231               N/A\n", []Affinity{{"0-55,112-167", "0", "N/A"}, {"56-111,168-223", "1", "N/A"}}, 0},
		"glued header":    {"\tGPU0\tNIC10NIC11NIC12\tCPU Affinity\nGPU0\tX\tPIX\tSYS\tPHB\t0-3\n", []Affinity{{CPU: "0-3"}}, 3},
		"blank cells":     {"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tPIX\t\t\nGPU1\tPIX\tX\t0-3\t\n", []Affinity{{}, {CPU: "0-3"}}, 0},
		"NUMA list":       {"\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\tX\t0-7\t0,3-9,11-17\t\tN/A\n", []Affinity{{"0-7", "0,3-9,11-17", "N/A"}}, 0},
		"mlx names":       {"        GPU0    mlx5_0  mlx5_1  CPU Affinity\nGPU0     X      PIX     NODE    0-23\nmlx5_0  PIX      X      NODE\nmlx5_1  NODE    NODE     X\n\nLegend:\n\n  X   = Self\n", []Affinity{{CPU: "0-23"}}, 2},
		"old SOC legend":  {"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSOC\t0-7\nGPU1\tSOC\t X \t8-15\n\nLegend:\n\n  X   = Self\n  SOC = Path traverses a socket-level link\n", []Affinity{{CPU: "0-7"}, {CPU: "8-15"}}, 0},
		"trailing tabs":   {"\tGPU0\tGPU1\t\t\nGPU0\tX\tSYS\t\t\nGPU1\tSYS\tX\t\t\n", nil, 0},
		"escapes":         {"\t\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\tX\tSYS\t0-7\nGPU1\tSYS\tX\t0-7\n", []Affinity{{CPU: "0-7"}, {CPU: "0-7"}}, 0},
		"carriage return": {"\tGPU0\tGPU1\r\nGPU0\tX\tSYS\r\nGPU1\tSYS\tX\r\n", nil, 0},
		"leading spaces":  {"   \tGPU0\tGPU1\n  GPU0\tX\tSYS\n  GPU1\tSYS\tX\n", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := ParseSMI("paste", []byte(c.text))
			require.NoError(t, err)
			require.Len(t, m.NICs, c.nics)
			for i, a := range c.affinity {
				require.Equal(t, a, *m.Devices[i].Affinity)
			}
		})
	}
}

// What cannot be read for certain is refused, with its place.
func TestUnreadable(t *testing.T) {
	head := "\tGPU0\tGPU1\n"
	for text, want := range map[string]string{
		"":                           "t:0: no topology matrix: want the output of `nvidia-smi topo -m`",
		"hello\n":                    "t:1: no topology matrix",
		"GPU0\tX\n":                  "t:1:1: a row without a header line above it",
		head + "GPU0\tX\tNV\n":       `t:2:8: "NV" is no path or state of GPU0 to GPU1`,
		head + "GPU0\tX\n":           `t:2:7: "" is no path`,
		head + "GPU1\tX\tSYS\n":      `t:2:1: want the row of GPU0, got "GPU1\tX\tSYS"`,
		head + "GPU0\tSYS\tX\n":      `t:2:6: "SYS" where GPU0 meets GPU0`,
		head + "GPU0\tX\tSYS\n\n":    "t:3: 1 rows in a matrix of 2 GPUs and 2 columns",
		head + "GPU0\tX\tSYS\tSYS\n": `t:2:11: "SYS" behind the last column`,
		"\tGPU0\tGPU2\n":             "t:1: column GPU2 where GPU1 was expected",
		"\tGPU0\tGPU0\n":             "t:1: two columns GPU0",
		"\tGPU0\tNIC0\nGPU0\tX\tPIX\nNIC0\tSYS\tX\n":                                         "t:3: NIC0 is SYS from GPU0, which says PIX",
		"\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\tX\t0-3,9-2231        N/A\n": "may be a CPU list and a NUMA node run together, in 0 ways",
		"\tGPU0\tCPU Affinity\nGPU0\tX\tabc\n":                                               `"abc" is no list of CPUs`,
		head + "GPU0\tX\tSYS\nGPU1\tSYS\tX\n\n\tGPU0\nGPU0\tX\n":                             "t:5: a second matrix must be of the same 2 GPUs alone",
		head + "GPU0\tX\tSYS\nGPU1\tSYS\tX\n\nsomething else\n":                              `t:5:1: want a matrix, a legend or an empty line, got "something else"`,
		head + "GPU0\tX\tSYS\nGPU1\tSYS\tX\n\n" + head + "GPU0\tX\tNV4\nGPU1\tOK\tX\n":       `t:6:8: "NV4" is no path or state`,
	} {
		_, err := ParseSMI("t", []byte(text))
		require.ErrorIs(t, err, ErrText, "%q", text)
		require.ErrorContains(t, err, want, "%q", text)
	}
}

func FuzzParseSMI(f *testing.F) {
	for _, text := range realTopologies(f) {
		f.Add(text)
	}
	f.Add([]byte("\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\tX\tPIX\t0-55,112-1670   N/A\nNIC0\tPIX\tX\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseSMI("fuzz", text)
		if err != nil {
			require.ErrorIs(t, err, ErrText)
			return
		}
		var b bytes.Buffer
		require.NoError(t, m.WriteLinks(&b))
		if m.affinityColumns() != nil {
			return // odd affinities need not survive the narrow columns
		}
		again, err := ParseSMI("again", b.Bytes())
		require.NoError(t, err, "%s", b.String())
		require.Equal(t, m.NICs, again.NICs)
	})
}

func TestReadFile(t *testing.T) {
	m, err := ReadFile("testdata/dgx1-v100.txt")
	require.NoError(t, err)
	require.Len(t, m.Devices, 8)
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.json")
	require.NoError(t, os.WriteFile(bad, []byte(`{"version": 1`), 0o600))
	_, err = ReadFile(bad)
	require.ErrorIs(t, err, ErrFormat)
	require.ErrorContains(t, err, "bad.json")
	_, err = ReadFile(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
