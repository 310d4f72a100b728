package topo

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fullBaseline is of two devices with all that can be known of them.
func fullBaseline() *Baseline {
	m := machine2(
		Pair{Access: Yes, Read: Yes, ReadCode: CodeOK, Write: Yes, WriteCode: CodeOK, NativeAtomics: Yes, AtomicsCode: CodeOK, NVLinkCode: CodeOK,
			PropertyCode: CodeNS, PerfRank: 1, Link: "NV4", NVLinkVersion: "4.0"},
		Pair{Access: No, Read: No, ReadCode: CodeGNS, Write: Yes, Link: "SYS"})
	zero, four := 0, 4
	m.NICs = []NIC{{Name: "NIC0", Device: "mlx5_0", GPUs: []string{"PIX", "SYS"}, NICs: []string{"X", "PXB"}}, {Name: "NIC1", Device: "mlx5_1", GPUs: []string{"PXB", "SYS"}, NICs: []string{"PXB", "X"}}}
	m.Devices[0].Affinity, m.Devices[1].Slice = &Affinity{CPU: "0-7", NUMA: "0"}, &Slice{"GPU-1", 1, 0}
	m.Devices[0].NUMA, m.Devices[0].NVLinks, m.Devices[0].MIG, m.Devices[0].BAR1 = &zero, &four, No, 64<<30
	meas := measured2()
	k := Key{UUIDs: []string{m.Devices[0].UUID, m.Devices[1].UUID}, Driver: "580", Kernel: "6.1", BootID: "a"}
	meas.Key = k
	return NewBaseline(k, m, meas)
}

func TestBaselineRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "base.json")
	b := fullBaseline()
	require.NoError(t, b.Save(path))
	back, err := ReadBaseline(path)
	require.NoError(t, err)
	require.Equal(t, b, back)
	require.Empty(t, back.Check(fullBaseline(), 0))

	pasted, err := ReadFile("testdata/hgx-h100-nv18-nics.txt") // no UUIDs
	require.NoError(t, err)
	p := NewBaseline(Key{}, pasted, nil)
	require.NoError(t, p.Save(path))
	back, err = ReadBaseline(path)
	require.NoError(t, err)
	require.Equal(t, p, back)
	require.Empty(t, back.Check(p, 0))
}

func TestCheck(t *testing.T) {
	swap := func(b *Baseline) { // the same machine seen in another order
		d, p, m := b.Machine.Devices, b.Machine.Pairs, b.Measurement.Pairs
		d[0], d[1] = d[1], d[0]
		for _, n := range b.Machine.NICs {
			n.GPUs[0], n.GPUs[1] = n.GPUs[1], n.GPUs[0]
		}
		d[0].Ordinal, d[1].Ordinal = 0, 1
		p[0][1], p[1][0] = p[1][0], p[0][1]
		m[0][1], m[1][0] = m[1][0], m[0][1]
		m[0][0], m[1][1] = m[1][1], m[0][0]
	}
	one := 1
	for name, c := range map[string]struct {
		edit func(b *Baseline)
		want []Difference
	}{
		"same":                {func(*Baseline) {}, nil},
		"another boot":        {func(b *Baseline) { b.Key.BootID = "z" }, nil},
		"another order":       {swap, nil},
		"driver":              {func(b *Baseline) { b.Key.Driver = "590" }, []Difference{{"driver", "580", "590"}}},
		"driver API":          {func(b *Baseline) { b.Machine.Driver.API = 12080 }, []Difference{{"driver API", "13000", "12080"}}},
		"a rank of no access": {func(b *Baseline) { b.Machine.Pairs[1][0].PerfRank = 3 }, nil},
		"a GPU at last":       {func(b *Baseline) { b.Machine.Emulated = false }, []Difference{{"emulated", "true", "false"}}},
		"another slice":       {func(b *Baseline) { b.Machine.Devices[1].Slice = &Slice{"GPU-1", 2, 0} }, []Difference{{"GPU1: MIG slice", "MIG-GPU-1/1/0", "MIG-GPU-1/2/0"}}},
		"no slice":            {func(b *Baseline) { b.Machine.Devices[1].Slice = nil }, []Difference{{"GPU1: MIG slice", "MIG-GPU-1/1/0", "-"}}},
		"other CPUs":          {func(b *Baseline) { b.Machine.Devices[0].Affinity = &Affinity{CPU: "0-3", NUMA: "1"} }, []Difference{{"GPU0: CPU Affinity", "0-7", "0-3"}, {"GPU0: NUMA Affinity", "0", "1"}}},
		"no affinity":         {func(b *Baseline) { b.Machine.Devices[0].Affinity = nil }, []Difference{{"GPU0: CPU Affinity", "0-7", "-"}, {"GPU0: NUMA Affinity", "0", "-"}}},
		"a NIC moved":         {func(b *Baseline) { b.Machine.NICs[0].GPUs = []string{"SYS", "SYS"} }, []Difference{{"NIC0 (mlx5_0) to GPU0: path", "PIX", "SYS"}}},
		"a NIC gone":          {func(b *Baseline) { b.Machine.NICs = b.Machine.NICs[1:]; b.Machine.NICs[0].NICs = nil }, []Difference{{"NIC0 (mlx5_0)", "present", "absent"}}},
		"a NIC more": {func(b *Baseline) {
			b.Machine.NICs = append([]NIC{{Name: "NIC0", Device: "mlx5_9", GPUs: []string{"SYS", "SYS"}}}, b.Machine.NICs...)
			b.Machine.NICs[1].Name, b.Machine.NICs[1].NICs = "NIC1", []string{"SYS", "X", "PXB"}
			b.Machine.NICs[2].Name, b.Machine.NICs[2].NICs = "NIC2", []string{"SYS", "PXB", "X"}
		}, []Difference{{"a further NIC, NIC0 (mlx5_9)", "absent", "present"}}},
		"NICs apart":          {func(b *Baseline) { b.Machine.NICs[0].NICs = []string{"X", "SYS"} }, []Difference{{"NIC0 (mlx5_0) to NIC1 (mlx5_1): path", "PXB", "SYS"}}},
		"kernel":              {func(b *Baseline) { b.Key.Kernel = "6.8" }, []Difference{{"kernel", "6.1", "6.8"}}},
		"backend":             {func(b *Baseline) { b.Machine.Driver.Name = "cuda" }, []Difference{{"backend", "emu", "cuda"}}},
		"another device":      {func(b *Baseline) { b.Machine.Devices[1].UUID = "GPU-9" }, []Difference{{"GPU1", "GPU-fe000000-0000-0000-0000-000000000002", "absent"}, {"a further device, GPU1", "absent", "GPU-9"}}},
		"BAR1 shrank":         {func(b *Baseline) { b.Machine.Devices[0].BAR1 = 256 << 20 }, []Difference{{"GPU0: BAR1", "64.0 GiB (68719476736 bytes)", "256.0 MiB (268435456 bytes)"}}},
		"BAR1 unknown":        {func(b *Baseline) { b.Machine.Devices[0].BAR1 = 0 }, []Difference{{"GPU0: BAR1", "64.0 GiB (68719476736 bytes)", "-"}}},
		"moved":               {func(b *Baseline) { b.Machine.Devices[0].NUMA = &one }, []Difference{{"GPU0: NUMA node", "0", "1"}}},
		"a link is down":      {func(b *Baseline) { b.Machine.Pairs[0][1].Link = "NV3" }, []Difference{{"GPU0 to GPU1: path", "NV4", "NV3"}}},
		"access lost":         {func(b *Baseline) { b.Machine.Pairs[0][1].Access = No }, []Difference{{"GPU0 to GPU1: peer access", "yes", "no"}}},
		"access gained":       {func(b *Baseline) { b.Machine.Pairs[1][0].Access = Yes }, []Difference{{"GPU1 to GPU0: peer access", "no", "yes"}}},
		"another reason":      {func(b *Baseline) { b.Machine.Pairs[1][0].ReadCode = CodeCNS }, []Difference{{"GPU1 to GPU0: read claim", "GNS", "CNS"}}},
		"a claim unknown":     {func(b *Baseline) { b.Machine.Pairs[1][0].Write = Unknown }, []Difference{{"GPU1 to GPU0: write claim", "OK", "U"}}},
		"now known":           {func(b *Baseline) { b.Machine.Devices[1].NUMA = &one; b.Machine.Devices[1].MIG = No }, nil},
		"MIG":                 {func(b *Baseline) { b.Machine.Devices[0].MIG = Yes }, []Difference{{"GPU0: MIG", "no", "yes"}}},
		"NVLink version":      {func(b *Baseline) { b.Machine.Pairs[0][1].NVLinkVersion = "3.0" }, []Difference{{"GPU0 to GPU1: NVLink version", "4.0", "3.0"}}},
		"property":            {func(b *Baseline) { b.Machine.Pairs[0][1].PropertyCode = CodeOK }, []Difference{{"GPU0 to GPU1: property claim", "NS", "OK"}}},
		"rank":                {func(b *Baseline) { b.Machine.Pairs[0][1].PerfRank = 0 }, []Difference{{"GPU0 to GPU1: performance rank", "1", "0"}}},
		"not probed":          {func(b *Baseline) { b.Measurement = nil }, []Difference{{"probes", "probed", "not probed"}}},
		"a check fails":       {func(b *Baseline) { b.Measurement.Pairs[0][1].Write = Check{Answer: No, Detail: "timed out"} }, []Difference{{"GPU0 to GPU1: write", "ok", "timed out"}}},
		"a check was not run": {func(b *Baseline) { b.Measurement.Pairs[0][1].Write = Check{} }, []Difference{{"GPU0 to GPU1: write", "ok", "not probed"}}},
		"a check is mended":   {func(b *Baseline) { b.Measurement.Pairs[1][0].Read = Check{Answer: Yes} }, []Difference{{"GPU1 to GPU0: read", "expected 0x1234, got 0x0 at offset 8", "ok"}}},
		"a little slower": {func(b *Baseline) {
			b.Measurement.Pairs[0][1].CopyRate = 31
			b.Measurement.Pairs[0][1].FlagLatency = 999
		}, nil},
		"faster":       {func(b *Baseline) { b.Measurement.Pairs[0][1].CopyRate = 90; b.Measurement.Pairs[0][1].FlagLatency = 9 }, nil},
		"slower":       {func(b *Baseline) { b.Measurement.Pairs[0][1].CopyRate = 29 }, []Difference{{"GPU0 to GPU1: copy rate", "40.00 GB/s", "29.00 GB/s"}}},
		"later":        {func(b *Baseline) { b.Measurement.Pairs[0][1].FlagLatency = 1001 }, []Difference{{"GPU0 to GPU1: flag latency", "800 ns", "1001 ns"}}},
		"not measured": {func(b *Baseline) { b.Measurement.Pairs[0][1].FlagLatency, b.Measurement.Pairs[0][1].CopyRate = 0, 0 }, []Difference{{"GPU0 to GPU1: flag latency", "800 ns", "not measured"}, {"GPU0 to GPU1: copy rate", "40.00 GB/s", "not measured"}}},
	} {
		t.Run(name, func(t *testing.T) {
			now := fullBaseline()
			c.edit(now)
			require.Equal(t, c.want, fullBaseline().Check(now, 0))
		})
	}
	now := fullBaseline()
	now.Measurement.Pairs[0][1].CopyRate = 29
	require.Empty(t, fullBaseline().Check(now, 0.5))
}

// A paste says of NICs all there is; what is read from a driver says nothing.
func TestCheckNICs(t *testing.T) {
	bare, with := machine2(Pair{}, Pair{}), machine2(Pair{}, Pair{})
	with.NICs = []NIC{{Name: "mlx5_0", GPUs: []string{"PIX", "SYS"}}}
	check := func() []Difference { return NewBaseline(Key{}, bare, nil).Check(NewBaseline(Key{}, with, nil), 0) }
	require.Empty(t, check())
	bare.Driver.Name, with.Driver.Name = pastedName, pastedName
	require.Equal(t, []Difference{{"a further NIC, mlx5_0", "absent", "present"}}, check())
}

func TestNotCompared(t *testing.T) {
	require.Empty(t, fullBaseline().NotCompared())
	b := fullBaseline()
	b.Machine.Pairs[0][1].Link, b.Measurement = "", nil
	b.Machine.Pairs[1][0] = Pair{Link: "SYS"}
	require.Equal(t, []string{"probes", "path of GPU0 to GPU1", "peer access of GPU1 to GPU0"}, b.NotCompared())
}

func TestWriteDifferences(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteDifferences(&b, nil))
	require.Equal(t, "As the baseline has it.\n", b.String())
	b.Reset()
	require.NoError(t, WriteDifferences(&b, []Difference{{"driver", "580", "590"}, {"GPU0 to GPU1: path", "NV4", "NV3"}}))
	require.Equal(t, ""+
		"What                Expected  Got\n"+
		"driver              580       590\n"+
		"GPU0 to GPU1: path  NV4       NV3\n", b.String())
	b.Reset()
	long := strings.Repeat("long ", 30)
	require.NoError(t, WriteDifferences(&b, []Difference{{"GPU0 to GPU1: read", long + ".", "ok"}, {"driver", "580", "590"}}))
	require.Equal(t, ""+
		"What                Expected  Got\n"+
		"GPU0 to GPU1: read  "+long+".\n"+
		"                              ok\n"+
		"driver              580       590\n", b.String())
	require.ErrorIs(t, WriteDifferences(fullDisk{}, []Difference{{}}), errFull)
	require.ErrorIs(t, WriteDifferences(fullDisk{}, nil), errFull)
}
