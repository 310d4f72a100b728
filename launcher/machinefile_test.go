package launcher

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/topo"
)

// four is a record of four devices, with the links given and nothing said of P2P.
func four(t *testing.T, links string) string {
	cells := strings.Fields(links)
	m := topo.Machine{Version: topo.FormatVersion, Devices: make([]topo.Device, 4), Pairs: make([][]topo.Pair, 4)}
	for i := range 4 {
		m.Devices[i] = topo.Device{Ordinal: i, UUID: "GPU-" + string(rune('0'+i))}
		m.Pairs[i] = make([]topo.Pair, 4)
		for j := range 4 {
			if i != j {
				m.Pairs[i][j].Link = cells[4*i+j]
			}
		}
	}
	var b bytes.Buffer
	require.NoError(t, m.WriteJSON(&b))
	return b.String()
}

const unlike = "X NV1 NV1 NV2 NV1 X NV2 SYS NV1 NV2 X PHB NV2 SYS PHB X"

// file writes a file and names it as a machine.
func file(t *testing.T, name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return filePrefix + path
}

func TestMachineFromFile(t *testing.T) {
	rt := must[*Runtime](t)(Open(Config{Machine: file(t, "four.json", four(t, unlike))}))
	defer func() { require.NoError(t, rt.Close()) }()
	require.True(t, rt.Info().Emulated)
	require.Contains(t, rt.Info().Detail, `"four.json"`)
	require.Contains(t, rt.Info().Why, "four.json")
	cells := strings.Fields("X NV1a1 NV1a1 NV2a0 NV1a1 X NV2a0 -SYS NV1a1 NV2a0 X PHB2 NV2a0 -SYS PHB2 X")
	for i := range 4 {
		for j := range 4 {
			if i == j {
				continue
			}
			info, err := rt.P2P(i, j)
			require.NoError(t, err)
			got := info.Link
			switch {
			case !info.Access:
				got = "-" + got
			case info.NativeAtomics:
				got += "a" + string(rune('0'+info.PerfRank))
			default:
				got += string(rune('0' + info.PerfRank))
			}
			require.Equal(t, cells[4*i+j], got, "%d→%d", i, j)
		}
	}

	two := must[*Runtime](t)(Open(Config{Backend: Emu, Machine: file(t, "four.json", four(t, unlike)), Devices: 2}))
	require.Equal(t, 2, len(two.Devices()))
	require.NoError(t, two.Close())
}

// TestMachineFromRecord: a machine saved as JSON is emulated with what it said.
func TestMachineFromRecord(t *testing.T) {
	d := must[gpu.Driver](t)(emu.Open(emu.Config{Machine: "dgx1-v100"}))
	m := must[*topo.Machine](t)(topo.FromDriver(d))
	require.NoError(t, d.Close())
	var b bytes.Buffer
	require.NoError(t, m.WriteJSON(&b))
	rt := must[*Runtime](t)(Open(Config{Machine: file(t, "saved.json", b.String())}))
	defer func() { require.NoError(t, rt.Close()) }()
	again := must[*topo.Machine](t)(topo.FromDriver(rt.d))
	require.Equal(t, m.Pairs, again.Pairs)
	for i, d := range again.Devices {
		was := m.Devices[i]
		require.Equal(t, []any{was.SM, was.SMs, was.PCI, was.NUMA}, []any{d.SM, d.SMs, d.PCI, d.NUMA})
	}
}

func TestMachineFileRefused(t *testing.T) {
	for name, machine := range map[string]string{
		"no such file": filePrefix + filepath.Join(t.TempDir(), "none.txt"),
		"no path":      filePrefix,
		"not a table":  file(t, "prose.txt", "The machine has two GPUs.\n"),
		"empty":        file(t, "empty.txt", ""),
		"foreign JSON": file(t, "foreign.json", `{"name": "x"}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(Config{Machine: machine})
			var ce *ConfigError
			require.ErrorAs(t, err, &ce)
			require.Equal(t, "Machine", ce.Field)
			require.Equal(t, machine, ce.Value)
			require.NotEmpty(t, ce.Msg)
			require.ErrorIs(t, err, ErrInvalidValue)
		})
	}
	_, err := Open(Config{Machine: file(t, "foreign.json", `{"name": "x"}`)})
	require.ErrorIs(t, err, topo.ErrFormat)
	_, err = Open(Config{Machine: filePrefix + "/no/such/file"})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Open(Config{Backend: CUDA, Machine: file(t, "four.json", four(t, unlike))})
	require.ErrorIs(t, err, ErrInvalidValue)
	_, err = Open(Config{Machine: file(t, "four.json", four(t, unlike)), Devices: 5})
	require.ErrorIs(t, err, ErrInvalidValue)
	require.ErrorContains(t, err, "1 to 4")
}

func TestEmulatePair(t *testing.T) {
	yes, no := topo.Yes, topo.No
	claim := func(atomics bool, rank int, link string) gpu.P2PInfo {
		return gpu.P2PInfo{Access: true, NativeAtomics: atomics, PerfRank: rank, Link: link}
	}
	for name, tt := range map[string]struct {
		pair topo.Pair
		want emu.Link
	}{
		"nvlink":             {topo.Pair{Link: "NV4"}, emu.Link{Claim: claim(true, 0, "NV4")}},
		"same switch":        {topo.Pair{Link: "PIX"}, emu.Link{Claim: claim(false, 0, "PIX")}},
		"same node":          {topo.Pair{Link: "NODE", PerfRank: 2}, emu.Link{Claim: claim(false, 2, "NODE")}},
		"across sockets":     {topo.Pair{Link: "SYS"}, emu.Absent("SYS")},
		"unknown":            {topo.Pair{}, emu.Absent("")},
		"across, but OK":     {topo.Pair{Link: "SYS", Read: yes}, emu.Link{Claim: claim(false, 0, "SYS")}},
		"nvlink, but no":     {topo.Pair{Link: "NV4", Read: no}, emu.Absent("NV4")},
		"neither":            {topo.Pair{Link: "PIX", Read: no, Write: no}, emu.Absent("PIX")},
		"writes only":        {topo.Pair{Link: "PHB", Read: no, Write: yes}, emu.Link{Claim: claim(false, 0, "PHB"), Loads: emu.Stalls}},
		"reads only":         {topo.Pair{Link: "PHB", Read: yes, Write: no}, emu.Link{Claim: claim(false, 0, "PHB"), Stores: emu.Vanishes}},
		"the driver refuses": {topo.Pair{Link: "NV4", Access: no, Read: yes, Write: yes}, emu.Absent("NV4")},
		"no native atomics":  {topo.Pair{Link: "NV4", NativeAtomics: no}, emu.Link{Claim: claim(false, 0, "NV4")}},
		"PCIe atomics":       {topo.Pair{Link: "PXB", NativeAtomics: yes}, emu.Link{Claim: claim(true, 0, "PXB")}},
	} {
		require.Equal(t, tt.want, emulatePair(tt.pair), name)
	}
}
