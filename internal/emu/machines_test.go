package emu_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
)

// claims writes what a driver says of its pairs: the path, or "?", in front "-" without access, and behind "a"
// with native atomics, and the performance rank where there is access.
func claims(t *testing.T, d gpu.Driver) (rows []string) {
	for dev := range d.DeviceCount() {
		var row []string
		for peer := range d.DeviceCount() {
			if dev == peer {
				row = append(row, "X")
				continue
			}
			info, err := d.P2P(dev, peer)
			require.NoError(t, err)
			cell := info.Link
			if cell == "" {
				cell = "?"
			}
			if !info.Access {
				require.Equal(t, 9, info.PerfRank)
				require.False(t, info.NativeAtomics)
				row = append(row, "-"+cell)
				continue
			}
			if info.NativeAtomics {
				cell += "a"
			}
			row = append(row, cell+":"+string(rune('0'+info.PerfRank)))
		}
		rows = append(rows, strings.Join(row, " "))
	}
	return rows
}

// TestMachines pins what each machine claims of each ordered pair.
func TestMachines(t *testing.T) {
	bridge := []string{"X PHB:1 PHB:1", "PHB:1 X PHB:1", "PHB:1 PHB:1 X"}
	nvlink := []string{"X NV18a:0 NV18a:0", "NV18a:0 X NV18a:0", "NV18a:0 NV18a:0 X"}
	tests := map[string][]string{
		"nvlink":       nvlink,
		"nvlink-8":     nvlink,
		"pcie":         {"X PIX:1 PXB:1", "PIX:1 X PXB:1", "PXB:1 PXB:1 X"},
		"one-way":      {"X PHBa:0 PHBa:0", "-PHB X PHBa:0", "-PHB -PHB X"},
		"no-p2p":       {"X -PHB -PHB", "-PHB X -PHB", "-PHB -PHB X"},
		"mig":          {"X -? -?", "-? X -?", "-? -? X"},
		"write-only":   bridge,
		"read-garbage": bridge,
		"lying":        {"X PHBa:1 PHBa:1", "PHBa:1 X PHBa:1", "PHBa:1 PHBa:1 X"},
		"dgx1-v100":    {"X NV1a:1 NV1a:1", "NV1a:1 X NV2a:0", "NV1a:1 NV2a:0 X"},
		"pcie-2socket": {"X PIX:1 -SYS", "PIX:1 X -SYS", "-SYS -SYS X"},
	}
	for _, machine := range emu.Machines() {
		d := open(t, emu.Config{Machine: machine, Devices: 3})
		require.Equal(t, tests[machine], claims(t, d), machine)
		require.NoError(t, d.Close())
		require.NotEmpty(t, emu.Describe(machine))
	}
	require.Len(t, tests, len(emu.Machines()))
}

// TestBigMachines pins the machines that are copies of real ones, whole.
func TestBigMachines(t *testing.T) {
	for machine, want := range map[string]struct{ cells, numa string }{
		// The rows of `nvidia-smi topo -m` on a DGX-1.
		"dgx1-v100": {`
			X NV1 NV1 NV2 NV2 SYS SYS SYS
			NV1 X NV2 NV1 SYS NV2 SYS SYS
			NV1 NV2 X NV2 SYS SYS NV1 SYS
			NV2 NV1 NV2 X SYS SYS SYS NV1
			NV2 SYS SYS SYS X NV1 NV1 NV2
			SYS NV2 SYS SYS NV1 X NV2 NV1
			SYS SYS NV1 SYS NV1 NV2 X NV2
			SYS SYS SYS NV1 NV2 NV1 NV2 X`, "00001111"},
		"pcie-2socket": {`
			X PIX PXB PXB SYS SYS SYS SYS
			PIX X PXB PXB SYS SYS SYS SYS
			PXB PXB X PIX SYS SYS SYS SYS
			PXB PXB PIX X SYS SYS SYS SYS
			SYS SYS SYS SYS X PIX PXB PXB
			SYS SYS SYS SYS PIX X PXB PXB
			SYS SYS SYS SYS PXB PXB X PIX
			SYS SYS SYS SYS PXB PXB PIX X`, "00001111"},
	} {
		d := open(t, emu.Config{Machine: machine})
		cells := strings.Fields(want.cells)
		require.Equal(t, 8, d.DeviceCount())
		for i := range 8 {
			info, err := d.DeviceInfo(i)
			require.NoError(t, err)
			require.NotNil(t, info.NUMA)
			require.Equal(t, int(want.numa[i]-'0'), *info.NUMA)
			for j := range 8 {
				if i == j {
					continue
				}
				p, err := d.P2P(i, j)
				require.NoError(t, err)
				require.Equal(t, cells[8*i+j], p.Link, "%s %d→%d", machine, i, j)
				require.Equal(t, p.Link != "SYS", p.Access)
				err = d.EnablePeerAccess(i, j)
				if p.Access {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, gpu.ErrPeerAccess)
				}
			}
		}
		require.NoError(t, d.Close())
	}
	// Cut down, the two sockets stay two.
	d := open(t, emu.Config{Machine: "pcie-2socket", Devices: 4})
	require.Equal(t, []string{"X PIX:1 -SYS -SYS", "PIX:1 X -SYS -SYS", "-SYS -SYS X PIX:1", "-SYS -SYS PIX:1 X"}, claims(t, d))
	require.NoError(t, d.Close())
}

// TestIdentity: a machine has the same devices every time, and no two machines share one.
func TestIdentity(t *testing.T) {
	seen := map[[16]byte]string{}
	devices := 0
	for _, machine := range emu.Machines() {
		n := 16
		if machine == "dgx1-v100" {
			n = 8
		}
		devices += n
		for range 2 {
			d := open(t, emu.Config{Machine: machine, Devices: n, Seed: uint64(len(seen))})
			for dev := range n {
				info, err := d.DeviceInfo(dev)
				require.NoError(t, err)
				who := machine + info.PCI
				require.Contains(t, []string{"", who}, seen[info.UUID])
				seen[info.UUID] = who
			}
			require.NoError(t, d.Close())
		}
	}
	require.Len(t, seen, devices)
}

// TestArchitectures: devices are what their machine says, and launches are held to it.
func TestArchitectures(t *testing.T) {
	b := newBench(t, emu.Config{Machine: "dgx1-v100"})
	info, err := b.d.DeviceInfo(7)
	b.NoError(err)
	b.Equal(70, info.SM())
	b.Equal(80, info.SMs)
	b.Equal(96<<10, info.SharedPerBlock)
	b.Equal("0000:8a:00.0", info.PCI)
	b.False(info.MIG)
	newer := strings.Replace(string(emuPTX), ".target sm_70", ".target sm_80", 1)
	_, err = b.d.ModuleLoad(7, "new.ptx", []byte(newer))
	b.ErrorIs(err, gpu.ErrInvalidPTX)
	b.ErrorContains(err, "sm_70")
	f := b.kernel(7, "store")
	for shared, want := range map[uint32]int{0: 32, 96 << 10: 1, 48 << 10: 2, 32 << 10: 3, 96<<10 + 1: 0} {
		n, err := b.d.MaxActiveBlocks(7, f, 32, shared)
		b.NoError(err)
		b.Equal(want, n, "%d bytes", shared)
	}
	s, p := b.stream(7), b.alloc(7, 4)
	cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}, Shared: 96<<10 + 1}
	args := make([]byte, 8)
	for i := range args {
		args[i] = byte(p >> (8 * i))
	}
	b.ErrorIs(b.d.Launch(7, s, f, &cfg, args), gpu.ErrInvalidValue)
	cfg.Shared--
	b.NoError(b.d.Launch(7, s, f, &cfg, args))
	b.wait(7, s)

	m := newBench(t, emu.Config{Machine: "mig"})
	var pci []string
	for dev := range 4 {
		info, err := m.d.DeviceInfo(dev)
		m.NoError(err)
		m.True(info.MIG)
		m.Equal(60, info.SMs)
		m.Equal(90, info.SM())
		pci = append(pci, info.PCI)
	}
	m.Equal([]string{"0000:10:00.0", "0000:10:00.0", "0000:11:00.0", "0000:11:00.0"}, pci)
}

// custom is a machine of two unlike devices, whose pairs differ by direction.
func custom() *emu.Machine {
	node := 1
	claim := gpu.P2PInfo{Access: true, PerfRank: 3, Link: "NODE"}
	return &emu.Machine{
		Name: "mine", Description: "made here",
		Devices: []emu.Device{{}, {SM: 80, SMs: 7, PCI: "0001:aa:00.0", NUMA: &node, MIG: true}, {}},
		Links: [][]emu.Link{
			{{}, {Claim: claim, Loads: emu.Ones}, emu.Absent("SYS")},
			{{Claim: claim, Stores: emu.Vanishes}, {}, emu.Absent("SYS")},
			{emu.Absent("SYS"), emu.Absent("SYS"), {}},
		},
	}
}

func TestCustom(t *testing.T) {
	m := custom()
	b := newBench(t, emu.Config{Custom: m})
	b.Equal(3, b.d.DeviceCount())
	b.Contains(b.d.Info().Detail, `"mine" (made here), 3 devices`)
	info, err := b.d.DeviceInfo(1)
	b.NoError(err)
	b.Equal("Emulated GPU (mine)", info.Name)
	b.Equal("0001:aa:00.0", info.PCI)
	b.Equal([]any{80, 7, true, 1}, []any{info.SM(), info.SMs, info.MIG, *info.NUMA})
	b.Equal([]string{"X NODE:3 -SYS", "NODE:3 X -SYS", "-SYS -SYS X"}, claims(t, b.d))
	b.Equal(custom(), m, "it is left as it was")

	two := newBench(t, emu.Config{Custom: m, Devices: 2})
	b.Equal([]string{"X NODE:3", "NODE:3 X"}, claims(t, two.d))
	b.Equal([]outcome{{reads: 0xffffffff, wrote: 1}, {reads: 5, wrote: 5}}, []outcome{two.kernels(0, 1), two.kernels(1, 0)})
}

func TestCustomRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(c *emu.Config)
		says  string
	}{
		"two machines":     {func(c *emu.Config) { c.Machine = "nvlink" }, "both"},
		"too many devices": {func(c *emu.Config) { c.Devices = 4 }, "1 to 3"},
		"no name":          {func(c *emu.Config) { c.Custom.Name = "" }, "no name"},
		"no devices":       {func(c *emu.Config) { c.Custom.Devices = nil }, "0 devices"},
		"seventeen":        {func(c *emu.Config) { c.Custom.Devices = make([]emu.Device, 17) }, "17 devices"},
		"rows":             {func(c *emu.Config) { c.Custom.Links = c.Custom.Links[:2] }, "2 rows"},
		"cells":            {func(c *emu.Config) { c.Custom.Links[1] = nil }, "0 links of device 1"},
		"unknown SM":       {func(c *emu.Config) { c.Custom.Devices[2].SM = 91 }, "sm_91; emulated are [70 75 80 86 89 90]"},
		"SMs":              {func(c *emu.Config) { c.Custom.Devices[2].SMs = -1 }, "-1 SMs"},
		"loads vanish":     {func(c *emu.Config) { c.Custom.Links[0][1].Loads = emu.Vanishes }, "0→1"},
		"stores give ones": {func(c *emu.Config) { c.Custom.Links[1][0].Stores = emu.Ones }, "1→0"},
		"no such outcome":  {func(c *emu.Config) { c.Custom.Links[1][0].Stores = 99 }, "1→0"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := emu.Config{Custom: custom()}
			tt.spoil(&cfg)
			d, err := emu.Open(cfg)
			require.Nil(t, d)
			require.ErrorIs(t, err, gpu.ErrInvalidValue)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func TestCanBe(t *testing.T) {
	for sm, want := range map[int]bool{0: false, 60: false, 70: true, 90: true, 100: false} {
		require.Equal(t, want, emu.CanBe(sm), "sm_%d", sm)
	}
}
