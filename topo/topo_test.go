package topo

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

// fakeDriver answers only what FromDriver asks; any other call is a nil dereference.
type fakeDriver struct {
	gpu.Driver
	devices []gpu.DeviceInfo
	pair    func(i, j int) (gpu.P2PInfo, error)
	broken  error // what DeviceInfo of the last device answers
}

func (f *fakeDriver) Info() gpu.DriverInfo {
	return gpu.DriverInfo{Name: "emu", Emulated: true, Version: 13000, Detail: "one-way"}
}
func (f *fakeDriver) DeviceCount() int { return len(f.devices) }
func (f *fakeDriver) DeviceInfo(i int) (gpu.DeviceInfo, error) {
	if f.broken != nil && i == len(f.devices)-1 {
		return gpu.DeviceInfo{}, f.broken
	}
	return f.devices[i], nil
}
func (f *fakeDriver) P2P(i, j int) (gpu.P2PInfo, error) { return f.pair(i, j) }

func fakeDevices(n int) []gpu.DeviceInfo {
	ds := make([]gpu.DeviceInfo, n)
	for i := range ds {
		ds[i] = gpu.DeviceInfo{Ordinal: i, Name: "Emulated H100", UUID: [16]byte{0xfe, 15: byte(i + 1)},
			PCI: "0000:0" + string(rune('1'+i)) + ":00.0", Major: 9, SMs: 132, TotalMem: 80 << 30}
	}
	return ds
}

// oneWay lets the lower ordinal reach the higher one only.
func oneWay(i, j int) (gpu.P2PInfo, error) {
	if i < j {
		return gpu.P2PInfo{Access: true, NativeAtomics: true, PerfRank: j - i}, nil
	}
	return gpu.P2PInfo{}, nil
}

func TestFromDriver(t *testing.T) {
	m, err := FromDriver(&fakeDriver{devices: fakeDevices(3), pair: oneWay})
	require.NoError(t, err)
	require.Equal(t, Driver{Name: "emu", API: 13000, Detail: "one-way"}, m.Driver)
	require.True(t, m.Emulated)
	require.Equal(t, Device{Ordinal: 2, UUID: "GPU-fe000000-0000-0000-0000-000000000003", Name: "Emulated H100",
		PCI: "0000:03:00.0", SM: 90, SMs: 132, TotalMem: 80 << 30}, m.Devices[2])
	require.Equal(t, Pair{Access: Yes, NativeAtomics: Yes, PerfRank: 2}, m.Pairs[0][2])
	require.Equal(t, Pair{Access: No, NativeAtomics: No}, m.Pairs[2][0])
	require.Equal(t, Pair{}, m.Pairs[1][1])

	d, ok := m.Device("GPU-fe000000-0000-0000-0000-000000000002")
	require.True(t, ok)
	require.Equal(t, 1, d.Ordinal)
	_, ok = m.Device("GPU-ff000000-0000-0000-0000-000000000002")
	require.False(t, ok)
}

func TestFromDriverErrors(t *testing.T) {
	_, err := FromDriver(&fakeDriver{})
	require.ErrorIs(t, err, ErrNoDevices)

	lost := &gpu.Error{Op: "cuDeviceGetName", Device: 1, Kind: gpu.ErrUnknown}
	_, err = FromDriver(&fakeDriver{devices: fakeDevices(2), pair: oneWay, broken: lost})
	require.ErrorIs(t, err, gpu.ErrUnknown)
	require.ErrorContains(t, err, "device 1")

	_, err = FromDriver(&fakeDriver{devices: fakeDevices(2), pair: func(i, j int) (gpu.P2PInfo, error) {
		if i == 1 {
			return gpu.P2PInfo{}, gpu.ErrUnknown
		}
		return gpu.P2PInfo{Access: true}, nil
	}})
	require.ErrorIs(t, err, gpu.ErrUnknown)
	require.ErrorContains(t, err, "device 1 reaches device 0")
}

func TestTri(t *testing.T) {
	for _, c := range []struct{ a, b, want Tri }{
		{Unknown, Unknown, Unknown}, {Unknown, Yes, Yes}, {Unknown, No, No},
		{Yes, Yes, Yes}, {Yes, No, No}, {No, No, No},
	} {
		require.Equal(t, c.want, c.a.And(c.b), "%v and %v", c.a, c.b)
		require.Equal(t, c.want, c.b.And(c.a), "%v and %v", c.b, c.a)
	}
	for _, v := range []Tri{Unknown, No, Yes} {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		require.Equal(t, `"`+v.String()+`"`, string(b))
		var back Tri
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, v, back)
	}
	var v Tri
	for _, bad := range []string{`"maybe"`, `"YES"`, `""`, `1`, `true`} {
		require.Error(t, json.Unmarshal([]byte(bad), &v), bad)
	}
	_, err := json.Marshal(Tri(7))
	require.Error(t, err)
	require.Equal(t, "Tri(7)", Tri(7).String())
}

func TestCode(t *testing.T) {
	for c, want := range map[Code]Tri{
		CodeOK: Yes, CodeCNS: No, CodeGNS: No, CodeTNS: No, CodeDR: No, CodeNS: No,
		CodeU: Unknown, "": Unknown, "XYZ": Unknown,
	} {
		require.Equal(t, want, c.Tri(), "code %q", c)
	}
}

// machine2 is two devices; forward and back are their pairs.
func machine2(forward, back Pair) *Machine {
	m, err := FromDriver(&fakeDriver{devices: fakeDevices(2), pair: oneWay})
	if err != nil {
		panic(err)
	}
	m.Pairs[0][1], m.Pairs[1][0] = forward, back
	return m
}

func TestWriteMatrixCells(t *testing.T) {
	for _, c := range []struct {
		name string
		pair Pair
		want string
	}{
		{"driver only, yes", Pair{Access: Yes}, "OK"},
		{"driver only, no", Pair{Access: No}, "NS"},
		{"nobody asked", Pair{}, "U"},
		{"both agree", Pair{Access: Yes, Read: Yes, ReadCode: CodeOK, Write: Yes, WriteCode: CodeOK}, "OK"},
		{"NVML gives the reason", Pair{Access: No, Read: No, ReadCode: CodeGNS, Write: No, WriteCode: CodeGNS}, "GNS"},
		{"driver refuses what NVML allows", Pair{Access: No, Read: Yes, ReadCode: CodeOK, Write: Yes, WriteCode: CodeOK}, "NS"},
		{"write only", Pair{Access: Yes, Read: No, ReadCode: CodeCNS, Write: Yes, WriteCode: CodeOK}, "CNS/OK"},
		{"read only", Pair{Access: Yes, Read: Yes, ReadCode: CodeOK, Write: No, WriteCode: CodeTNS}, "OK/TNS"},
		{"NVML does not know", Pair{Access: Yes, ReadCode: CodeU, WriteCode: CodeU}, "OK"},
		{"NVML only, does not know", Pair{ReadCode: CodeU, WriteCode: CodeU}, "U"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, machine2(c.pair, Pair{Access: Yes}).WriteMatrix(&b))
			lines := strings.Split(b.String(), "\n")
			require.Equal(t, "\tGPU0\tGPU1", lines[0])
			require.Equal(t, "GPU0\t X \t"+c.want, lines[1])
			require.Equal(t, "GPU1\tOK\t X ", lines[2])
			require.Equal(t, strings.Contains(c.want, "/"), strings.Contains(b.String(), "reading is A"),
				"the legend explains A/B exactly when a cell uses it")
		})
	}
}

func TestWriteMatrixGolden(t *testing.T) {
	m, err := FromDriver(&fakeDriver{devices: fakeDevices(3), pair: oneWay})
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, m.WriteMatrix(&b))
	require.Equal(t, `	GPU0	GPU1	GPU2
GPU0	 X 	OK	OK
GPU1	NS	 X 	OK
GPU2	NS	NS	 X 

Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  DR   = Disabled by regkey
  U    = Unknown
`, b.String())
}

func TestWriteLinks(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, machine2(Pair{Link: "NV18"}, Pair{}).WriteLinks(&b))
	require.True(t, strings.HasPrefix(b.String(), "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tU\t X \n\nLegend:\n"), b.String())
}

func TestWriteDevices(t *testing.T) {
	m := machine2(Pair{}, Pair{})
	one := 1
	m.Devices[0].NUMA = &one
	m.Devices[1].PCI, m.Devices[1].TotalMem = "", 64<<20
	var b bytes.Buffer
	require.NoError(t, m.WriteDevices(&b))
	require.Equal(t, ""+
		"GPU  Name           SM     SMs  Memory    PCI           NUMA  UUID\n"+
		"0    Emulated H100  sm_90  132  80.0 GiB  0000:01:00.0  1     GPU-fe000000-0000-0000-0000-000000000001\n"+
		"1    Emulated H100  sm_90  132  64.0 MiB  -             -     GPU-fe000000-0000-0000-0000-000000000002\n", b.String())
}

// Without a legend it is the same text up to there.
func TestBare(t *testing.T) {
	m := machine2(Pair{Link: "NV18", Access: Yes}, Pair{Link: "NV18"})
	m.NICs = []NIC{{Name: "NIC0", Device: "mlx5_0", GPUs: []string{"PIX", "SYS"}}}
	for _, f := range [][2]func(io.Writer) error{{m.WriteMatrix, m.WriteBareMatrix}, {m.WriteLinks, m.WriteBareLinks}} {
		var full, bare bytes.Buffer
		require.NoError(t, f[0](&full))
		require.NoError(t, f[1](&bare))
		matrix, _, found := strings.Cut(full.String(), "\nLegend:")
		require.True(t, found)
		require.Equal(t, matrix, bare.String())
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestWritersReportTheirError(t *testing.T) {
	m := machine2(Pair{}, Pair{})
	require.ErrorIs(t, m.WriteMatrix(fullDisk{}), errFull)
	require.ErrorIs(t, m.WriteLinks(fullDisk{}), errFull)
	require.ErrorIs(t, m.WriteDevices(fullDisk{}), errFull)
	require.ErrorIs(t, m.WriteJSON(fullDisk{}), errFull)
}

func TestJSONRoundTrip(t *testing.T) {
	zero := 0
	m := machine2(
		Pair{Access: Yes, Read: No, Write: Yes, NativeAtomics: Yes, PerfRank: 1, ReadCode: CodeCNS, WriteCode: CodeOK, AtomicsCode: CodeOK, Link: "NV4"},
		Pair{Access: No})
	m.Devices[1].NUMA, m.Devices[1].MIG, m.Devices[1].NVLinks = &zero, No, &zero
	m.Devices[0].BAR1, m.Devices[0].Slice = 64<<30, &Slice{GPU: "GPU-1", GPUInstance: 2, ComputeInstance: 1}
	m.Pairs[0][1].NVLinkCode, m.Pairs[0][1].PropertyCode, m.Pairs[0][1].NVLinkVersion = CodeOK, CodeNS, "4.0"
	m.NICs, m.Columns, m.SOC = []NIC{{Name: "NIC0", Device: "mlx5_0", GPUs: []string{"PIX", "SYS"}}}, []string{"CPU Affinity"}, true
	m.Devices[0].Affinity = &Affinity{CPU: "0-7"}
	m.Note("seen %d", 1)
	m.Note("seen %d", 1)
	require.Equal(t, []string{"seen 1"}, m.Notes)

	var b bytes.Buffer
	require.NoError(t, m.WriteJSON(&b))
	require.Contains(t, b.String(), `"read": "no"`)
	text := b.String()
	back, err := ReadJSON(&b)
	require.NoError(t, err)
	require.Equal(t, m, back)
	back, err = ReadJSON(strings.NewReader("\xef\xbb\xbf" + text))
	require.NoError(t, err)
	require.Equal(t, m, back)
}

func TestReadJSONRefuses(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, machine2(Pair{Access: Yes}, Pair{Access: Yes}).WriteJSON(&b))
	good := b.String()
	edit := func(old, with string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, with, 1)
	}
	for _, c := range []struct{ name, text, says string }{
		{"empty", "", "it is empty"},
		{"cut off", good[:500], "the text is cut off: it ends at byte 500: save it again"},
		{"foreign", `{"name":"x"}`, "version 0"},
		{"not JSON", "GPU0 X", "at byte"},
		{"later version", edit(`"version": 1`, `"version": 2`), "version 2, this build reads version 1: use a newer build"},
		{"later version, other fields", `{"version": 2, "devices": "eight"}`, "use a newer build"},
		{"older version", edit(`"version": 1`, `"version": 0`), "save the machine again"},
		{"version as text", `{"version": "1"}`, "cannot unmarshal"},
		{"two records", good + good, "there is something behind the record"},
		{"bad answer", edit(`"access": "yes"`, `"access": "perhaps"`), "perhaps"},
		{"ordinals", edit(`"ordinal": 1`, `"ordinal": 7`), "ordinal 7"},
		{"same device twice", edit(`000000000002"`, `000000000001"`), "share uuid"},
		{"no uuid", edit(`"uuid": "GPU-fe000000-0000-0000-0000-000000000002"`, `"uuid": ""`), "no uuid"},
		{"NIC of other devices", edit(`"version": 1`, `"version": 1, "nics": [{"name": "NIC0", "gpus": ["PIX"]}]`), "nics[0] has paths to 1 devices"},
		{"unknown column", edit(`"version": 1`, `"version": 1, "columns": ["Mood"]`), `no affinity column is called "Mood"`},
		{"link with an escape", edit(`"access": "yes"`, `"access": "yes", "link": "\u001b[2J"`), "control character"},
		{"negative link", edit(`"access": "yes"`, `"access": "yes", "link": "NV-3"`), `has the link "NV-3": want NV1 to NV99, PIX, PXB, PHB, NODE or SYS, or none`},
		{"too many links", edit(`"access": "yes"`, `"access": "yes", "link": "NV999999"`), "NV999999"},
		{"old link", edit(`"access": "yes"`, `"access": "yes", "link": "SOC"`), "SOC"},
		{"NIC link", edit(`"version": 1`, `"version": 1, "nics": [{"name": "NIC0", "gpus": ["PIX", "x"]}]`), `nics[0] has the link "x"`},
		{"unknown field", edit(`"access": "yes"`, `"access": "yes", "colour": 1`), `unknown field "colour"`},
		{"escape in a name", edit(`"name": "emu"`, `"name": "e\u001b]0;x"`), `a text with the control character '\x1b'`},
		{"direction override", edit(`"name": "emu"`, `"name": "\u202eume"`), `control character '\u202e'`},
		{"syntax", `{"version" 1}`, "save it again, or name another file"},
		{"too long", `"` + strings.Repeat("x", maxFile) + `"`, "it is longer than 8 MiB"},
		{"no devices", `{"version":1,"devices":[],"pairs":[]}`, "no devices"},
		{"no pairs", `{"version":1,"devices":[{"uuid":"GPU-1"}]}`, "0 rows"},
		{"short row", `{"version":1,"devices":[{"uuid":"GPU-1"}],"pairs":[[]]}`, "0 cells"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ReadJSON(strings.NewReader(c.text))
			require.ErrorIs(t, err, ErrFormat)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func FuzzReadJSON(f *testing.F) {
	var b bytes.Buffer
	if err := machine2(Pair{Access: Yes, Link: "PIX"}, Pair{}).WriteJSON(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := ReadJSON(bytes.NewReader(in))
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		// Whatever is accepted must print, and come back the same.
		var text, again bytes.Buffer
		require.NoError(t, m.WriteMatrix(&text))
		require.NoError(t, m.WriteLinks(&text))
		require.NoError(t, m.WriteDevices(&text))
		require.NoError(t, m.WriteP2P(&text, "p"))
		require.NoError(t, m.WriteSVG(&text, nil))
		m.Mesh(nil)
		require.NoError(t, m.WriteJSON(&again))
		_, err = ReadJSON(&again)
		require.NoError(t, err)
	})
}
