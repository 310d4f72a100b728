package allreduce

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/topo"
)

func tunedHere(t *testing.T) (*topo.Machine, *TunedTable, string) {
	t.Helper()
	m, err := topo.FromDriver(openAny(t).Driver())
	require.NoError(t, err)
	table, err := NewTunedTable(m, Table{{World: 2, To: 4096, Algorithm: OneshotPush, Blocks: 3, Threads: 128},
		{World: 2, DTypes: []DType{BF16}, From: 4097, Algorithm: TwoshotPull}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "table.json")
	require.NoError(t, table.Save(path))
	return m, table, path
}

func TestTunedTable(t *testing.T) {
	m, table, path := tunedHere(t)
	read, err := ReadTunedTable(path)
	require.NoError(t, err)
	require.Equal(t, table.Rules, read.Rules)
	require.Equal(t, table.Machine, read.Machine)
	require.NoError(t, read.Fits(m))

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, c := range []struct{ from, to, want string }{
		{`"rules"`, `"rule"`, "rule"},
		{`"blocks": 3`, `"blocks": 3, "warps": 4`, "warps"},
		{`"blocks": 3`, `"blocks": 65`, "rule 0 has 65 blocks: use 1 to 64"},
		{`"threads": 128`, `"threads": 100`, "use a multiple of 32"},
		{`"from": 4097`, `"from": 4097, "to": 5`, "put the smaller size first"},
		{`"world": 2`, `"world": 17`, "17 ranks"},
		{`"oneshot-push"`, `"auto"`, "prefers algorithm auto"},
		{`"oneshot-push"`, `"ring"`, "ring"},
		{`"blocks": 3`, `"blocks": 3, "dtypes": [null]`, "element type 0 of a rule is null: use one of f32"},
		{`"blocks": 3`, `"blocks": 3, "dtypes": "AgI="`, "dtypes"},
		{`"blocks": 3`, `"blocks": 3, "dtypes": ["f64"]`, "f64"},
		{`"allreduce-tuning"`, `"baseline"`, "its kind is"},
		{`"version": 1`, `"version": 99`, "version 99"},
		{`"emulated"`, `"emulate"`, "emulate"},
	} {
		broken := strings.Replace(string(text), c.from, c.to, 1)
		require.NotEqual(t, string(text), broken, c.from)
		require.NoError(t, os.WriteFile(path, []byte(broken), 0o600))
		_, err := ReadTunedTable(path)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, path)
	}
	any := Table{{DTypes: []DType{}, Algorithm: TwoshotPull}}
	require.True(t, any[0].matches(2, 4, BF16), "none named is any, as after Save")
	require.NoError(t, os.WriteFile(path, text[:len(text)/2], 0o600))
	_, err = ReadTunedTable(path)
	require.ErrorIs(t, err, topo.ErrTruncated)
	_, err = ReadTunedTable(path + ".not")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A table is for the machine it was measured on, and one of the emulator for no GPU.
func TestTunedTableFits(t *testing.T) {
	m, table, _ := tunedHere(t)
	if !m.Emulated {
		t.Skip("the machine is changed by hand below")
	}
	for name, c := range map[string]struct {
		change func(m *topo.Machine)
		want   string
	}{
		"GPUs":   {func(m *topo.Machine) { m.Emulated = false }, "it was made on the emulator"},
		"fewer":  {func(m *topo.Machine) { m.Devices = m.Devices[:1]; m.Pairs = [][]topo.Pair{m.Pairs[0][:1]} }, "device(s), and here are 1"},
		"model":  {func(m *topo.Machine) { m.Devices[1].Name = "another" }, "device 1 was"},
		"links":  {func(m *topo.Machine) { m.Pairs[0][1].Link = "SYS" }, `are by "SYS"`},
		"driver": {func(m *topo.Machine) { m.Driver.Release = "1.2" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			here, err := topo.FromDriver(openAny(t).Driver())
			require.NoError(t, err)
			c.change(here)
			err = table.Fits(here)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrTable)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// One group captures by many tables; what is captured is what PlanBy says, and its bits are right.
func TestCaptureBy(t *testing.T) {
	rt := openAny(t)
	var all Table
	for _, a := range Algorithms()[1:] {
		if a.Direct() {
			all = append(all, Rule{Algorithm: a})
		}
	}
	g := newGroup(t, rt, Config{Ranks: 3, Share: true, Table: all})
	r := newRig(t, g, 32<<10)
	for _, a := range Algorithms()[1:] {
		by := Table{{Algorithm: a, Blocks: 2, Threads: 64}}
		plan, err := g.PlanBy(by, 5000, F32)
		require.NoError(t, err)
		if !a.Direct() {
			require.NotEqual(t, a, plan.Algorithm, "does not mix with the others in a graph")
			continue
		}
		require.Equal(t, a, plan.Algorithm)
		require.Equal(t, [2]int{2, 64}, [2]int{plan.Blocks, plan.Threads})
		c := trial{count: 5000, dt: F32}
		inputs, want := r.fill(c)
		in, out, _, _ := r.views(c)
		graph, err := g.CaptureBy(by, func() error { return g.AllReduce(in, out, c.count, c.dt) })
		require.NoError(t, err)
		require.NoError(t, graph.Launch())
		r.sync()
		r.verify(c, inputs, want)
		require.NoError(t, graph.Close())
	}
	plan, err := g.PlanBy(Table{{Algorithm: OneshotPull, Blocks: 64, Threads: 32}}, 5000, F32)
	require.NoError(t, err)
	require.Equal(t, mostBlocks(OneshotPull, 0, 3), plan.Blocks, "room was reserved for so many")
	wide := newGroup(t, openEmu(t, "nvlink", 3), Config{Ranks: 3, Table: Table{{Algorithm: OneshotPull, Blocks: 48, Threads: 64}}})
	plan, err = wide.Plan(5000, F32)
	require.NoError(t, err)
	require.Equal(t, [2]int{48, 64}, [2]int{plan.Blocks, plan.Threads})
	plan, err = g.PlanBy(nil, 64, F32)
	require.NoError(t, err)
	require.NotContains(t, plan.Reason, "table")
	_, err = g.CaptureBy(Table{{Algorithm: Auto}}, func() error { return nil })
	require.ErrorIs(t, err, ErrInvalidArgument)
	require.NoError(t, g.Close()) // on one device the others need its room
	fixed := newGroup(t, rt, Config{Ranks: 2, Blocks: 3, Threads: 96, Table: Table{{Algorithm: OneshotPull, Blocks: 48, Threads: 64}}})
	plan, err = fixed.Plan(5000, F32)
	require.NoError(t, err)
	require.Equal(t, [2]int{3, 96}, [2]int{plan.Blocks, plan.Threads}, "Config wins")
	require.NoError(t, fixed.Close())
	forced := newGroup(t, rt, Config{Ranks: 2, Algorithm: OneshotPull})
	_, err = forced.PlanBy(all, 64, F32)
	require.ErrorContains(t, err, "make one with algorithm auto")
}
