package allreduce

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/topo"
)

// linked gives every pair of a machine a path.
func linked(m *topo.Machine, link string) *topo.Machine {
	for i := range m.Pairs {
		for j := range m.Pairs[i] {
			if i != j {
				m.Pairs[i][j].Link = link
			}
		}
	}
	return m
}

var (
	good    = topo.Check{Answer: topo.Yes}
	garbage = topo.Check{Answer: topo.No, Offset: 8, Expected: 0x1234, Got: 0xffff}
	hung    = topo.Check{Answer: topo.No, Detail: "timed out after 2s"}
	passed  = topo.Measured{Read: good, Write: good, Flags: good}
)

// probed is a measurement of n devices with the same outcome for all pairs, apart from those in except.
func probed(n int, all topo.Measured, except map[[2]int]topo.Measured) *topo.Measurement {
	m := &topo.Measurement{Version: topo.FormatVersion, Pairs: make([][]topo.Measured, n)}
	for i := range n {
		m.Pairs[i] = make([]topo.Measured, n)
		for j := range n {
			if i == j {
				continue
			}
			m.Pairs[i][j] = all
			if e, ok := except[[2]int{i, j}]; ok {
				m.Pairs[i][j] = e
			}
		}
	}
	return m
}

func TestSelect(t *testing.T) {
	all, none := machine("X1", "1X"), machine("X0", "0X")
	mig := machine("X0", "0X")
	mig.Devices[0].MIG, mig.Devices[1].MIG = topo.Yes, topo.Yes
	far := machine("X11", "1X1", "11X")
	for p, link := range map[[2]int]string{{0, 1}: "PIX", {0, 2}: "SYS", {1, 2}: "SYS"} {
		far.Pairs[p[0]][p[1]].Link, far.Pairs[p[1]][p[0]].Link = link, link
	}
	back := machine("X1", "1X")
	back.Pairs[0][1].Link, back.Pairs[1][0].Link = "PIX", "SYS"
	const (
		unstated = ", for nothing states it; direct kernels are not risked on that, and the driver finds copies a way"
		both     = ", and direct kernels need both directions"
		small    = "; the default up to 65536 bytes of 2 ranks without NVLink"
		linkedUp = "; the default up to 32768 bytes of 2 ranks over NVLink"
		small3   = "; the default up to 16384 bytes of 3 ranks without NVLink"
		written  = ", so peers are only written to"
		through  = ", so direct kernels cannot run and copies would pass through host memory anyway"
	)
	for name, c := range map[string]struct {
		in     SelectInput
		got    Algorithm
		reason string
	}{
		"probed": {SelectInput{Machine: all, Measurement: probed(2, passed, nil)}, OneshotPush,
			"all 2 devices reach each other directly, as probing found" + small},
		"not probed": {SelectInput{Machine: all, Measurement: probed(2, topo.Measured{}, nil)}, OneshotPush,
			"all 2 devices reach each other directly" + small},
		"one direction lies": {SelectInput{Machine: all, Measurement: probed(2, passed, map[[2]int]topo.Measured{{1, 0}: {Read: garbage, Write: hung}})}, Copy,
			"1→0: probing found that device 1 cannot read the memory of device 0 (expected 0x1234, got 0xffff at offset 8)" + both},
		"lying": {SelectInput{Machine: all, Measurement: probed(2, topo.Measured{Read: garbage, Write: garbage}, nil)}, Host,
			"devices 0 and 1 have no peer access that works in either direction: " +
				"0→1: probing found that device 0 cannot read the memory of device 1 (expected 0x1234, got 0xffff at offset 8); " +
				"1→0: probing found that device 1 cannot read the memory of device 0 (expected 0x1234, got 0xffff at offset 8)" + through},
		"write only": {SelectInput{Machine: all, Measurement: probed(2, topo.Measured{Read: hung, Write: good, Flags: good}, nil)}, OneshotPush,
			"0→1: probing found that device 0 cannot read the memory of device 1 (timed out after 2s)" + written},
		"write only, large": {SelectInput{Machine: all, Bytes: 8 << 20, Measurement: probed(2, topo.Measured{Read: hung, Write: good, Flags: good}, nil)}, OneshotPush,
			"0→1: probing found that device 0 cannot read the memory of device 1 (timed out after 2s)" + written},
		"write only, flags late": {SelectInput{Machine: all, Measurement: probed(2, topo.Measured{Read: hung, Write: good, Flags: hung}, nil)}, Host,
			"devices 0 and 1 have no peer access that works in either direction: " +
				"0→1: probing found that device 0 cannot read the memory of device 1 (timed out after 2s); " +
				"1→0: probing found that device 1 cannot read the memory of device 0 (timed out after 2s)" + through},
		"read only": {SelectInput{Machine: all, Measurement: probed(2, topo.Measured{Read: good, Write: hung}, nil)}, Copy,
			"0→1: probing found that device 0 cannot write the memory of device 1 (timed out after 2s)" + both},
		"flags": {SelectInput{Machine: all, Measurement: probed(2, topo.Measured{Read: good, Write: good, Flags: topo.Check{Answer: topo.No, Detail: "data late", Expected: 5, Got: 4}}, nil)}, Copy,
			"0→1: probing found that device 0 cannot raise flags in the memory of device 1 (data late; expected 0x5, got 0x4 at offset 0)" + both},
		"could not be probed": {SelectInput{Machine: all, Measurement: probed(2, passed, map[[2]int]topo.Measured{{0, 1}: {Read: topo.Check{Detail: "device 0 hangs"}, Write: topo.Check{Detail: "device 0 hangs"}}})}, Copy,
			"0→1: probing could not find out whether device 0 can read the memory of device 1 (device 0 hangs)" + both},
		"a refusal is not overruled": {SelectInput{Machine: none, Measurement: probed(2, passed, nil)}, Host,
			"devices 0 and 1 have no peer access in either direction" + through},
		"failing pair outside": {SelectInput{Machine: machine("X11", "1X1", "11X"), Devices: []int{0, 1},
			Measurement: probed(3, passed, map[[2]int]topo.Measured{{1, 2}: {Read: hung}})}, OneshotPush, "all 2 devices reach each other directly, as probing found" + small},
		"mig":                          {SelectInput{Machine: mig}, Host, "devices 0 and 1 have no peer access in either direction (MIG)" + through},
		"nothing":                      {SelectInput{Machine: machine("X?", "?X")}, Copy, "0→1: it is not known whether device 0 can read the memory of device 1" + unstated},
		"U":                            {SelectInput{Machine: coded(topo.Pair{ReadCode: topo.CodeU})}, Copy, "0→1: it is not known whether device 0 can read the memory of device 1 (U); direct kernels are not risked on that, and the driver finds copies a way"},
		"unknown, and one that is not": {SelectInput{Machine: machine("X?1", "?X0", "11X")}, Copy, "1→2: device 1 cannot read the memory of device 2" + both},
		"writes by claim": {SelectInput{Machine: coded(topo.Pair{Read: topo.No, ReadCode: topo.CodeCNS, Write: topo.Yes, WriteCode: topo.CodeOK})}, OneshotPush,
			"0→1: device 0 cannot read the memory of device 1 (CNS)" + written},
		"nvlink": {SelectInput{Machine: linked(machine("X?", "?X"), "NV4")}, OneshotPush, "all 2 devices reach each other directly, if their NVLinks mean what they usually do: nothing states their peer access" + linkedUp},
		"nvlink U": {SelectInput{Machine: linked(coded(topo.Pair{ReadCode: topo.CodeU, WriteCode: topo.CodeU}), "NV4")}, OneshotPush,
			"all 2 devices reach each other directly, if their NVLinks mean what they usually do: nothing states their peer access" + linkedUp},
		"reads, writes U": {SelectInput{Machine: coded(topo.Pair{Read: topo.Yes, ReadCode: topo.CodeOK, WriteCode: topo.CodeU})}, OneshotPush,
			"all 2 devices reach each other directly, if they write as they read: only reading is stated" + small},
		"nvlink no": {SelectInput{Machine: linked(machine("X0", "?X"), "NV4")}, Copy, "0→1: device 0 cannot read the memory of device 1" + both},
		"disabled": {SelectInput{Machine: all, Knobs: Knobs{P2PDisable: true}}, Host,
			"FENCELINE_P2P_DISABLE=1 turns direct access off" + through},
		"disabled, one device": {SelectInput{Machine: all, Devices: []int{1, 1}, Knobs: Knobs{P2PDisable: true}}, OneshotPush, "all ranks share device 1; the default up to 131072 bytes of 2 ranks on one device"},
		"level met":            {SelectInput{Machine: far, Devices: []int{0, 1}, Knobs: Knobs{P2PLevel: LevelPIX}}, OneshotPush, "all 2 devices reach each other directly" + small},
		"level passed": {SelectInput{Machine: far, Knobs: Knobs{P2PLevel: LevelNODE}}, Host,
			"the path between devices 0 and 2 is SYS, farther than FENCELINE_P2P_LEVEL=NODE allows" + through},
		"level passed back": {SelectInput{Machine: back, Knobs: Knobs{P2PLevel: LevelPIX}}, Host,
			"the path between devices 0 and 1 is SYS, farther than FENCELINE_P2P_LEVEL=PIX allows" + through},
		"level SYS":     {SelectInput{Machine: far, Knobs: Knobs{P2PLevel: LevelSYS}}, OneshotPush, "all 3 devices reach each other directly" + small3},
		"level LOC":     {SelectInput{Machine: far, Knobs: Knobs{P2PLevel: LevelLOC}}, Host, "FENCELINE_P2P_LEVEL=LOC allows no direct access between devices" + through},
		"level unknown": {SelectInput{Machine: all, Knobs: Knobs{P2PLevel: LevelPHB}}, Host, "the path between devices 0 and 1 is not known, and FENCELINE_P2P_LEVEL=PHB sets a limit" + through},
		"level NVL":     {SelectInput{Machine: linked(machine("X1", "1X"), "NV18"), Knobs: Knobs{P2PLevel: LevelNVL}}, OneshotPush, "all 2 devices reach each other directly" + linkedUp},
		"knob":          {SelectInput{Machine: all, Knobs: Knobs{Algorithm: Copy}}, Copy, "asked for by FENCELINE_ALGO"},
		"want wins":     {SelectInput{Machine: all, Want: Host, Knobs: Knobs{Algorithm: Copy}}, Host, "asked for"},
		"table": {SelectInput{Machine: all, Bytes: 1 << 20, Table: Table{{World: 3, Algorithm: Host}, {DTypes: []DType{BF16}, Algorithm: Host},
			{To: 1<<20 - 1, Algorithm: Host}, {From: 1 << 20, To: 1 << 20, World: 2, DTypes: []DType{F32}, Algorithm: Copy}}}, Copy,
			"the tuning table prefers it for 1048576 bytes of f32 on 2 ranks"},
		"table, direct": {SelectInput{Machine: all, Bytes: 1 << 20, Table: Table{{Algorithm: OneshotPush}}}, OneshotPush, "the tuning table prefers it for 1048576 bytes of f32 on 2 ranks"},
		"table, push where reading fails": {SelectInput{Machine: all, Table: Table{{Algorithm: OneshotPull}}, Measurement: probed(2, topo.Measured{Read: hung, Write: good, Flags: good}, nil)},
			OneshotPush, "0→1: probing found that device 0 cannot read the memory of device 1 (timed out after 2s)" + written},
		"table cannot": {SelectInput{Machine: none, Table: Table{{Algorithm: OneshotPull}, {Algorithm: Copy}}}, Host, "devices 0 and 1 have no peer access in either direction" + through +
			"; a rule for oneshot-pull is passed over, for 0→1: device 0 cannot read the memory of device 1"},
		"table and knob": {SelectInput{Machine: all, Knobs: Knobs{Algorithm: OneshotPull}, Table: Table{{Algorithm: Copy}}}, OneshotPull, "asked for by FENCELINE_ALGO"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.in.Devices == nil {
				for i := range c.in.Machine.Devices {
					c.in.Devices = append(c.in.Devices, i)
				}
			}
			p, err := Select(c.in)
			require.NoError(t, err)
			require.Equal(t, c.got, p.Algorithm)
			require.Equal(t, c.reason, p.Reason)
			require.Positive(t, p.Blocks)
			require.Positive(t, p.Threads)
		})
	}
	p, err := Select(SelectInput{Machine: all, Devices: []int{0, 1}, Bytes: 5 << 20, Knobs: Knobs{MaxBytes: 1 << 20}})
	require.NoError(t, err)
	require.Equal(t, Plan{OneshotPull, "all 2 devices reach each other directly; the default for large messages of 2 ranks without NVLink", 64, 512, 5}, p)
}

// coded is two devices, both directions of which have this said of them.
func coded(p topo.Pair) *topo.Machine {
	m := machine("X?", "?X")
	m.Pairs[0][1], m.Pairs[1][0] = p, p
	return m
}

// A rule may end at any size, the largest number included.
func TestRuleWithoutEnd(t *testing.T) {
	for _, alg := range everyAlgorithm {
		p, err := Select(SelectInput{Machine: machine("X1", "1X"), Devices: []int{0, 1}, Bytes: 1000, Table: Table{{To: math.MaxUint64, Algorithm: alg}}})
		require.NoError(t, err)
		require.Equal(t, alg, p.Algorithm)
	}
}

func TestSelectRefused(t *testing.T) {
	good := func() SelectInput { return SelectInput{Machine: machine("X1", "1X"), Devices: []int{0, 1}} }
	for name, c := range map[string]struct {
		spoil   func(in *SelectInput)
		is      error
		message string
	}{
		"no machine": {func(in *SelectInput) { in.Machine = nil }, ErrInvalidArgument, "all-reduce: machine: none is given, or one without devices"},
		"ragged":     {func(in *SelectInput) { in.Machine.Pairs[1] = nil }, ErrInvalidArgument, "all-reduce: machine: it has 2 devices, and pairs for another number"},
		"no rank":    {func(in *SelectInput) { in.Devices = nil }, ErrInvalidArgument, "all-reduce: devices: 0 ranks: use 1 to 16"},
		"no device":  {func(in *SelectInput) { in.Devices[1] = 2 }, ErrInvalidArgument, "all-reduce rank 1: devices: device 2: there are 0 to 1"},
		"other size": {func(in *SelectInput) { in.Measurement = probed(3, passed, nil) }, ErrInvalidArgument, "all-reduce: measurement: it was not taken on 2 devices: probe again"},
		"MaxBytes":   {func(in *SelectInput) { in.MaxBytes = 24 }, ErrInvalidArgument, "all-reduce: MaxBytes: 24: use a multiple of 16 up to 32 GiB"},
		"bytes":      {func(in *SelectInput) { in.Bytes = 1 << 63 }, ErrInvalidArgument, "all-reduce: bytes: 9223372036854775808 is above 4611686018427387904"},
		"dtype":      {func(in *SelectInput) { in.DType = 9 }, ErrUnknownName, `unknown dtype "9": use one of f32, f16, bf16`},
		"algorithm":  {func(in *SelectInput) { in.Want = 99 }, ErrNoPlan, "algorithm invalid: there is no such algorithm: use one of auto, oneshot-pull, oneshot-push, twoshot-pull, twoshot-push, oneshot-wide, twoshot-wide, copy, host, nccl"},
		"knob":       {func(in *SelectInput) { in.Knobs.Algorithm = 99 }, ErrUnknownName, `unknown algorithm "99": use one of auto, oneshot-pull, oneshot-push, twoshot-pull, twoshot-push, oneshot-wide, twoshot-wide, copy, host, nccl`},
		"level":      {func(in *SelectInput) { in.Knobs.P2PLevel = 9 }, ErrUnknownName, `unknown P2P level "9": use one of LOC, NVL, PIX, PXB, PHB, NODE, SYS`},
		"table":      {func(in *SelectInput) { in.Table = Table{{}} }, ErrInvalidArgument, "all-reduce: table: rule 0 prefers algorithm auto: use one of oneshot-pull, oneshot-push, twoshot-pull, twoshot-push, oneshot-wide, twoshot-wide, copy, host, nccl"},
		"pull by knob": {func(in *SelectInput) { in.Machine, in.Knobs.Algorithm = machine("X0", "0X"), OneshotPull }, ErrNoPlan,
			"algorithm oneshot-pull: 0→1: device 0 cannot read the memory of device 1: FENCELINE_ALGO asks for it: set it to auto, copy or host, or unset it"},
		"pull probed": {func(in *SelectInput) {
			in.Want, in.Measurement = OneshotPull, probed(2, topo.Measured{Read: hung}, nil)
		}, ErrNoPlan, "algorithm oneshot-pull: 0→1: probing found that device 0 cannot read the memory of device 1 (timed out after 2s): use auto, copy or host"},
		"other devices": {func(in *SelectInput) {
			in.Machine.Devices[1].UUID = "GPU-b"
			in.Measurement = probed(2, passed, nil)
			in.Measurement.Key.UUIDs = []string{"GPU-a", "GPU-c"}
		}, ErrInvalidArgument, "all-reduce: measurement: it was taken on other devices than GPU-b, or in another order: probe again"},
	} {
		t.Run(name, func(t *testing.T) {
			in := good()
			c.spoil(&in)
			_, err := Select(in)
			require.ErrorIs(t, err, c.is)
			require.EqualError(t, err, c.message)
		})
	}
}

// faulty is what probing would find on an emulated machine whose claims are wrong.
var faulty = map[string]topo.Measured{
	"write-only":   {Read: hung, Write: good, Flags: good},
	"read-garbage": {Read: garbage, Write: good, Flags: good},
	"lying":        {Read: garbage, Write: hung},
}

// On machines that lie, a measurement leads to a rung that gives right sums, even when peer access was left enabled.
func TestGroupMeasured(t *testing.T) {
	for name, found := range faulty {
		rung := Host
		if found.Write.Answer == topo.Yes {
			rung = OneshotPush
		}
		for _, want := range []Algorithm{Auto, OneshotPush, TwoshotPush, Copy} {
			if want.pushes() && rung == Host {
				continue
			}
			for _, enabled := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %v %v", name, want, enabled), func(t *testing.T) {
					rt := openEmu(t, name, 3)
					for i := range 3 {
						for j := range 3 {
							if i != j && enabled {
								require.NoError(t, rt.EnablePeer(i, j))
							}
						}
					}
					g := newGroup(t, rt, Config{Ranks: 3, Algorithm: want, Measurement: probed(3, found, nil)})
					p, err := g.Plan(1000, F16)
					require.NoError(t, err)
					if want == Auto {
						require.Equal(t, rung, p.Algorithm)
						require.Contains(t, p.Reason, told(found.Read))
					}
					r := newRig(t, g, 8<<10)
					for range 3 {
						r.run(trial{count: 1000, dt: F16})
					}
				})
			}
		}
		_, err := NewGroup(openEmu(t, name, 2), Config{Ranks: 2, Algorithm: OneshotPull, Measurement: probed(2, found, nil)})
		require.ErrorIs(t, err, ErrNoPlan)
	}
}

// Where peers can only be written to, large messages go in pieces, or by two-shot push where that is better.
func TestWriteOnlyLarge(t *testing.T) {
	for world, most := range map[int]uint64{2: 512 << 10, 4: 1 << 20} {
		g, err := NewGroup(openEmu(t, "write-only", 4), Config{Ranks: world, Measurement: probed(4, faulty["write-only"], nil)})
		require.NoError(t, err)
		want := OneshotPush
		if world > 2 {
			want = TwoshotPush
		}
		p, err := g.Plan(1<<20, F32)
		require.NoError(t, err)
		require.Equal(t, want, p.Algorithm)
		require.Equal(t, piecesOf(4<<20, most), p.Pieces)
		r := newRig(t, g, 5<<20)
		r.run(trial{count: 1<<20 + 1, dt: F32})
		require.NoError(t, g.Close())
	}
}

// A table's rule for copies is passed over where they would take ways that the group's kernels write over, which must then stay open.
func TestWriteOnlyCopyRule(t *testing.T) {
	m := probed(2, topo.Measured{}, nil)
	m.Pairs[0][1], m.Pairs[1][0] = faulty["write-only"], passed
	g := newGroup(t, openEmu(t, "write-only", 2), Config{Measurement: m, Table: Table{{To: 1000, Algorithm: Host}, {From: 4096, Algorithm: Copy}}})
	r := newRig(t, g, 8192)
	for count, want := range map[uint64]Algorithm{10: Host, 500: OneshotPush, 2000: OneshotPush} {
		p, err := g.Plan(count, F32)
		require.NoError(t, err)
		require.Equal(t, want, p.Algorithm)
		if count == 2000 {
			require.Contains(t, p.Reason, "a rule for copy is passed over, for 0→1: ")
			require.Contains(t, p.Reason, "and copies would do so over the pairs that the group's kernels write over")
		}
		r.run(trial{count: count, dt: F32})
	}
}

// A path that can only be written is open for groups that push and closed for copies: not both at a time.
func TestPathsLedger(t *testing.T) {
	rt := openEmu(t, "write-only", 2)
	m := probed(2, topo.Measured{}, nil)
	m.Pairs[0][1] = faulty["write-only"]
	m.Pairs[1][0] = passed
	push, err := NewGroup(rt, Config{Algorithm: OneshotPush, Measurement: m})
	require.NoError(t, err)
	_, err = NewGroup(rt, Config{Algorithm: Copy, Measurement: m})
	require.ErrorIs(t, err, ErrNoPlan)
	require.ErrorContains(t, err, "device 0 cannot read the memory of device 1, and copies would do so while another group writes to it: close the other group, or use host")
	require.NoError(t, push.Close())
	copies, err := NewGroup(rt, Config{Algorithm: Copy, Measurement: m})
	require.NoError(t, err)
	_, err = NewGroup(rt, Config{Algorithm: OneshotPush, Measurement: m})
	require.ErrorContains(t, err, "another group's copies would do so if this one could write to it")
	auto := newGroup(t, rt, Config{Measurement: m})
	p, err := auto.Plan(1, F32)
	require.NoError(t, err)
	require.Equal(t, Copy, p.Algorithm)
	require.Contains(t, p.Reason, "if this one could write to it, so direct kernels cannot run")
	require.NoError(t, copies.Close())
	require.NoError(t, auto.Close())
	paths.mu.Lock()
	defer paths.mu.Unlock()
	require.Empty(t, paths.users)
}

func TestGroupOverrides(t *testing.T) {
	rt := openEmu(t, "nvlink", 2)
	plan := func(cfg Config) Plan {
		cfg.Ranks = 2
		g := newGroup(t, rt, cfg)
		p, err := g.Plan(1<<20, F32)
		require.NoError(t, err)
		require.NoError(t, g.Close())
		return p
	}
	require.Equal(t, OneshotPull, plan(Config{}).Algorithm)
	require.Equal(t, Copy, plan(Config{Knobs: Knobs{Algorithm: Copy}}).Algorithm)
	require.Equal(t, OneshotPull, plan(Config{Algorithm: OneshotPull, Knobs: Knobs{Algorithm: Copy}}).Algorithm)
	require.Equal(t, Host, plan(Config{Knobs: Knobs{P2PDisable: true}}).Algorithm)
	require.Equal(t, OneshotPull, plan(Config{Knobs: Knobs{P2PLevel: LevelNVL}}).Algorithm)

	m, err := topo.FromDriver(rt.Driver())
	require.NoError(t, err)
	m.Pairs[0][1].Link, m.Pairs[1][0].Link = "SYS", "SYS"
	require.Equal(t, Host, plan(Config{Machine: m, Knobs: Knobs{P2PLevel: LevelNVL}}).Algorithm)
	m.Pairs[1][0].Read, m.Pairs[1][0].ReadCode = topo.No, topo.CodeNS
	before := *m
	require.Equal(t, "1→0: device 1 cannot read the memory of device 0 (NS), so peers are only written to", plan(Config{Machine: m}).Reason)
	require.Equal(t, before, *m)

	for _, bad := range []Config{
		{Machine: machine("X1", "1X")},
		{Machine: machine("X")},
		{Machine: &topo.Machine{}},
		{Measurement: probed(4, passed, nil)},
	} {
		_, err := NewGroup(rt, bad)
		require.ErrorIs(t, err, ErrInvalidArgument)
	}
	_, err = NewGroup(rt, Config{Knobs: Knobs{P2PLevel: numLevels}})
	require.ErrorIs(t, err, ErrUnknownName)

	cfg := Config{Knobs: Knobs{MaxBytes: 1 << 16, Timeout: 3 * time.Second}}
	require.NoError(t, cfg.validate(rt))
	require.Equal(t, uint64(1<<16), cfg.MaxBytes)
	require.Equal(t, 3*time.Second, cfg.Timeout)
	cfg = Config{MaxBytes: 1 << 15, Timeout: 4 * time.Second, Knobs: Knobs{MaxBytes: 1 << 16, Timeout: 3 * time.Second}}
	require.NoError(t, cfg.validate(rt))
	require.Equal(t, uint64(1<<15), cfg.MaxBytes)
	require.Equal(t, 4*time.Second, cfg.Timeout)
}

// Wide packets take PTX 8.4. What is not known of a machine speaks against nothing.
func TestSelectWide(t *testing.T) {
	on := func(sm, driver int) SelectInput {
		m := machine("X1", "1X")
		m.Driver.API = driver
		for i := range m.Devices {
			m.Devices[i].SM = sm
		}
		return SelectInput{Machine: m, Devices: []int{0, 1}, Bytes: 4096, Table: Table{{Algorithm: OneshotWide}, {Algorithm: TwoshotPush}}}
	}
	for _, in := range []SelectInput{on(90, 12040), on(70, 13000), on(100, 13000), on(0, 12040), on(90, 0), on(0, 0)} {
		for _, want := range []Algorithm{OneshotWide, TwoshotWide} {
			in.Want = want
			p, err := Select(in)
			require.NoError(t, err)
			require.Equal(t, want, p.Algorithm)
		}
		in.Want = Auto
		p, err := Select(in)
		require.NoError(t, err)
		require.Equal(t, OneshotWide, p.Algorithm)
	}
	old := on(90, 12030)
	p, err := Select(old)
	require.NoError(t, err)
	require.Equal(t, TwoshotPush, p.Algorithm, "the next rule is followed")
	require.Contains(t, p.Reason, "the tuning table prefers it for 4096 bytes of f32 on 2 ranks; a rule for oneshot-wide is passed over, for "+
		"device 0: kernel oneshot_wide: no build for sm_90 with a CUDA 12.3 driver")
	old.Want = TwoshotWide
	_, err = Select(old)
	require.ErrorIs(t, err, ErrNoPlan)
	require.EqualError(t, err, "algorithm twoshot-wide: device 0: kernel twoshot_wide: no build for sm_90 with a CUDA 12.3 driver: "+
		"needs sm_70 or newer and a CUDA 12.4 driver or newer: use auto, oneshot-push, twoshot-push, copy or host")
}

// What a group is told of its devices' kind is the runtime's, whatever a described machine says or leaves out.
func TestDescribedSM(t *testing.T) {
	rt := openEmu(t, "nvlink", 2)
	given, err := topo.FromDriver(rt.Driver())
	require.NoError(t, err)
	for i := range given.Devices {
		given.Devices[i].SM = 0
	}
	given.Driver.API = 0
	m, err := describe(rt, given)
	require.NoError(t, err)
	for i, d := range rt.Devices() {
		require.Equal(t, d.SM(), m.Devices[i].SM)
		require.Zero(t, given.Devices[i].SM, "the caller's is left alone")
	}
	require.Equal(t, rt.Info().DriverVersion, m.Driver.API)
}
