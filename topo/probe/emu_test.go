package probe

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/topo"
)

func open(t *testing.T, cfg emu.Config) gpu.Driver {
	t.Helper()
	d, err := emu.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// answers are the answers for read, write, flags and atomics: y, n, or a dash for unknown.
func answers(m topo.Measured) string {
	s := ""
	for _, c := range []topo.Check{m.Read, m.Write, m.Flags, m.Atomics} {
		s += map[topo.Tri]string{topo.Yes: "y", topo.No: "n", topo.Unknown: "-"}[c.Answer]
	}
	return s
}

// TestMachines: what is found on each emulated machine, whatever it claims.
func TestMachines(t *testing.T) {
	const zeros, ones, stale = "all of them zero", "all of them all-ones", "all of them what was there before"
	claim := "not probed: the driver gives no peer access"
	for machine, want := range map[string]struct {
		there, back string   // of 0→1 and of 1→0
		details     []string // of 0→1
		leaks       bool
	}{
		"nvlink":       {"yyyy", "yyyy", []string{"", "", "", ""}, false},
		"nvlink-8":     {"yyyy", "yyyy", []string{"", "", "", ""}, false},
		"dgx1-v100":    {"yyyy", "yyyy", []string{"", "", "", ""}, false},
		"pcie":         {"yyy-", "yyy-", []string{"", "", "", "not probed: the driver claims no native atomics"}, false},
		"pcie-2socket": {"yyy-", "yyy-", []string{"", "", "", "not probed: the driver claims no native atomics"}, false},
		"one-way":      {"yyyy", "----", []string{"", "", "", ""}, false},
		"no-p2p":       {"----", "----", []string{claim, claim, claim, claim}, false},
		"mig":          {"----", "----", []string{claim, claim, claim, claim}, false},
		"write-only":   {"nyy-", "nyy-", []string{"timed out after 300ms", "", "", "native atomics"}, true},
		"read-garbage": {"nyy-", "nyy-", []string{ones, "", "", "native atomics"}, false},
		"lying":        {"nn--", "nn--", []string{zeros, stale, "writes do not arrive", "writes do not arrive"}, false},
	} {
		t.Run(machine, func(t *testing.T) {
			d := open(t, emu.Config{Machine: machine})
			m, err := topo.FromDriver(d)
			require.NoError(t, err)
			var seen []Result
			found, err := Run(context.Background(), d, m, Options{Pairs: []Pair{{0, 1}, {1, 0}}, Timeout: 300 * time.Millisecond,
				Report: func(r Result) { seen = append(seen, r) }})
			require.NoError(t, err)
			require.Equal(t, []string{want.there, want.back}, []string{answers(found.Pairs[0][1]), answers(found.Pairs[1][0])})
			got := found.Pairs[0][1]
			for i, c := range []topo.Check{got.Read, got.Write, got.Flags, got.Atomics} {
				require.Contains(t, c.Detail, want.details[i])
				if want.details[i] == "" {
					require.Equal(t, topo.Check{Answer: topo.Yes}, c)
				}
			}
			require.Len(t, seen, 8)
			require.Equal(t, want.leaks, d.Live() != gpu.Counts{}, "%v", d.Live())
			require.Zero(t, found.Pairs[1][1], "a device with itself was not asked for")
			require.Zero(t, got.CopyRate, "numbers of the emulator say nothing")
			require.Equal(t, topo.FormatVersion, found.Version)
			require.Len(t, found.Key.UUIDs, len(m.Devices))
			require.Equal(t, "13.0", found.Key.Driver)
			var b bytes.Buffer
			require.NoError(t, WriteChecks(&b, m, found))
			require.NoError(t, WriteNumbers(&b, m, found))
			require.Contains(t, b.String(), "EMULATED")
		})
	}
	require.Len(t, emu.Machines(), 11, "a machine is missing from the table")
}

// faulty is a machine of two good devices, but for what the links 0→1 does.
func faulty(loads, stores emu.Outcome, atomics bool) *emu.Machine {
	good := gpu.P2PInfo{Access: true, NativeAtomics: atomics, Link: "PHB"}
	return &emu.Machine{Name: "faulty", Devices: make([]emu.Device, 2), Links: [][]emu.Link{
		{{}, {Claim: good, Loads: loads, Stores: stores}}, {{Claim: good}, {}}}}
}

// TestFaultyLink: one bad direction is told apart from the good one, and the first wrong word is reported.
func TestFaultyLink(t *testing.T) {
	for name, tt := range map[string]struct {
		loads, stores emu.Outcome
		want          string
		usable        [2]topo.Tri
	}{
		"good":             {emu.Arrives, emu.Arrives, "yyyy", [2]topo.Tri{topo.Yes, topo.Yes}},
		"loads stall":      {emu.Stalls, emu.Arrives, "nyy-", [2]topo.Tri{topo.No, topo.Yes}},
		"loads are ones":   {emu.Ones, emu.Arrives, "nyy-", [2]topo.Tri{topo.No, topo.Yes}},
		"loads are zeroes": {emu.Zeroes, emu.Arrives, "nyy-", [2]topo.Tri{topo.No, topo.Yes}},
		"stores vanish":    {emu.Arrives, emu.Vanishes, "yn--", [2]topo.Tri{topo.Yes, topo.No}},
		"stores stall":     {emu.Arrives, emu.Stalls, "yn--", [2]topo.Tri{topo.Yes, topo.No}},
		"both stall":       {emu.Stalls, emu.Stalls, "nn--", [2]topo.Tri{topo.No, topo.No}},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, emu.Config{Custom: faulty(tt.loads, tt.stores, true)})
			start := time.Now()
			found, err := Run(context.Background(), d, nil, Options{Timeout: 200 * time.Millisecond, Bytes: 4096, Seed: 7})
			require.NoError(t, err)
			require.Less(t, time.Since(start), 10*time.Second)
			got := found.Pairs[0][1]
			require.Equal(t, tt.want, answers(got))
			require.Equal(t, "yyyy", answers(found.Pairs[1][0]))
			read, write := got.Usable()
			require.Equal(t, tt.usable, [2]topo.Tri{read, write})
			if tt.loads == emu.Zeroes {
				first := word(derive(7, 0, 1, seedRead, 0), 0)
				require.Equal(t, []uint64{0, first, 0}, []uint64{got.Read.Offset, got.Read.Expected, got.Read.Got})
			}
		})
	}
}

// TestVirtual: two ranks that share a device are a pair too, also on a machine of one.
func TestVirtual(t *testing.T) {
	d := open(t, emu.Config{Devices: 1})
	found, err := Run(context.Background(), d, nil, Options{Virtual: true, Numbers: true, EmulatedNumbers: true})
	require.NoError(t, err)
	require.Equal(t, "yyyy", answers(found.Pairs[0][0]))
	require.Zero(t, d.Live())
	requireNumbers(t, found.Pairs[0][0])
}

func requireNumbers(t *testing.T, m topo.Measured) {
	t.Helper()
	for name, v := range map[string]float64{"copy": m.CopyRate, "no P2P": m.CopyNoP2P, "both": m.CopyBoth, "both, no P2P": m.BothNoP2P,
		"kernel": m.KernelRate, "kernel both": m.KernelBoth, "flag": m.FlagLatency, "load": m.LoadLatency} {
		require.Positive(t, v, name)
	}
}

// TestNumbers: each number is taken where it can be, and only there.
func TestNumbers(t *testing.T) {
	d := open(t, emu.Config{Machine: "nvlink", Devices: 2})
	found, err := Run(context.Background(), d, nil, Options{Numbers: true, EmulatedNumbers: true})
	require.NoError(t, err)
	requireNumbers(t, found.Pairs[0][1])
	requireNumbers(t, found.Pairs[1][0])
	require.Zero(t, d.Live())

	found, err = Run(context.Background(), d, nil, Options{Numbers: true, EmulatedNumbers: true, Only: []string{"flag_latency"}})
	require.NoError(t, err)
	require.Equal(t, "yyyy", answers(found.Pairs[0][1]))
	require.Positive(t, found.Pairs[0][1].FlagLatency)
	require.Zero(t, found.Pairs[0][1].KernelRate)

	d = open(t, emu.Config{Machine: "one-way", Devices: 2})
	notes := map[string]string{}
	found, err = Run(context.Background(), d, nil, Options{Numbers: true, EmulatedNumbers: true, Report: func(r Result) {
		if r.Note != "" {
			notes[r.Pair.String()+" "+r.Step] = r.Note
		}
	}})
	require.NoError(t, err)
	m := found.Pairs[0][1]
	require.Positive(t, m.CopyRate*m.KernelRate*m.CopyNoP2P*m.BothNoP2P*m.LoadLatency)
	require.Zero(t, m.CopyBoth+m.KernelBoth+m.FlagLatency)
	m = found.Pairs[1][0]
	require.Positive(t, m.CopyNoP2P*m.BothNoP2P)
	require.Zero(t, m.CopyRate+m.CopyBoth+m.KernelRate+m.KernelBoth+m.LoadLatency+m.FlagLatency)
	require.Equal(t, "not measured: the driver gives no peer access in the opposite direction", notes["0→1 flag_latency"])
	require.Equal(t, "not measured: the driver gives no peer access", notes["1→0 copy"])
	require.Len(t, notes, 9)
}

// TestSeeds: no two pairs, passes or runs share a pattern.
func TestSeeds(t *testing.T) {
	seen := map[uint64]bool{}
	for run := range uint64(3) {
		for from := range 3 {
			for to := range 3 {
				for what := seedWrite; what <= seedChase; what++ {
					for pass := range passes + 1 {
						s := session{engine: &engine{opts: &Options{Seed: run}}, pair: Pair{from, to}}
						seed := s.seed(what, pass)
						require.False(t, seen[seed])
						seen[seed] = true
					}
				}
			}
		}
	}
	m := &topo.Machine{}
	a, err := Options{}.validate(m)
	require.NoError(t, err)
	b, err := Options{}.validate(m)
	require.NoError(t, err)
	require.NotEqual(t, a.Seed, b.Seed)
}

func TestOptions(t *testing.T) {
	d := open(t, emu.Config{Devices: 2})
	for _, c := range []struct {
		o    Options
		says string
	}{
		{Options{Pairs: []Pair{{0, 2}}}, "pair 0→2; the machine has devices 0 to 1"},
		{Options{Pairs: []Pair{{-1, 0}}}, "pair -1→0"},
		{Options{Pairs: []Pair{{0, 1}, {0, 1}}}, "twice"},
		{Options{Bytes: 1000}, "Bytes is 1000"},
		{Options{Bytes: 65 << 20}, "Bytes"},
		{Options{RateBytes: 100}, "RateBytes"},
		{Options{Timeout: -1}, "Timeout"},
		{Options{Timeout: 2 * time.Hour}, "Timeout"},
		{Options{Start: -1}, "Start"},
		{Options{Only: []string{"read"}}, `"read" is no number; want some of copy_nop2p`},
	} {
		_, err := Run(context.Background(), d, nil, c.o)
		require.ErrorIs(t, err, ErrOptions)
		require.ErrorContains(t, err, c.says)
	}
}

// TestStopped: a cancelled context ends it at once, with what was found.
func TestStopped(t *testing.T) {
	d := open(t, emu.Config{Machine: "write-only", Devices: 2})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	start := time.Now()
	found, err := Run(ctx, d, nil, Options{Timeout: time.Minute, Report: func(r Result) {
		if r.Step == "write" {
			time.AfterFunc(100*time.Millisecond, cancel) // while the read hangs
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "probe 0→1, read")
	require.Less(t, time.Since(start), 10*time.Second)
	require.Equal(t, topo.Yes, found.Pairs[0][1].Write.Answer)
}

// TestForeignMachine: devices go by UUID, not by ordinal.
func TestForeignMachine(t *testing.T) {
	d := open(t, emu.Config{Machine: "one-way", Devices: 2})
	m, err := topo.FromDriver(d)
	require.NoError(t, err)
	m.Devices[0].UUID, m.Devices[1].UUID = m.Devices[1].UUID, m.Devices[0].UUID
	m.Pairs[0][1], m.Pairs[1][0] = m.Pairs[1][0], m.Pairs[0][1]
	found, err := Run(context.Background(), d, m, Options{})
	require.NoError(t, err)
	require.Equal(t, []string{"----", "yyyy"}, []string{answers(found.Pairs[0][1]), answers(found.Pairs[1][0])})

	m.Devices[0].UUID = "GPU-none"
	_, err = Run(context.Background(), d, m, Options{Pairs: []Pair{{1, 0}}})
	require.ErrorContains(t, err, "device 0 (GPU-none) is not among those of the driver: check CUDA_VISIBLE_DEVICES")
}

// peers keeps account of the peer access that is enabled.
type peers struct {
	gpu.Driver
	on map[Pair]bool
}

func (p peers) EnablePeerAccess(dev, peer int) error {
	p.on[Pair{dev, peer}] = true
	return p.Driver.EnablePeerAccess(dev, peer)
}

func (p peers) DisablePeerAccess(dev, peer int) error {
	delete(p.on, Pair{dev, peer})
	return p.Driver.DisablePeerAccess(dev, peer)
}

// TestClosed: peer access is taken away again, whatever was probed last.
func TestClosed(t *testing.T) {
	for _, numbers := range []bool{false, true} {
		d := peers{open(t, emu.Config{Machine: "nvlink", Devices: 2}), map[Pair]bool{}}
		_, err := Run(context.Background(), d, nil, Options{Numbers: numbers, EmulatedNumbers: true})
		require.NoError(t, err)
		require.Empty(t, d.on, "left enabled")
	}
}

// TestNeedFlags: a latency there and back needs flags both ways.
func TestNeedFlags(t *testing.T) {
	yes, no, none := topo.Measured{Flags: topo.Check{Answer: topo.Yes}}, topo.Measured{Flags: topo.Check{Answer: topo.No}}, topo.Measured{}
	require.Empty(t, needFlags(&yes, &yes, topo.Pair{}, false))
	require.Equal(t, "flags do not work", needFlags(&no, &yes, topo.Pair{}, false))
	for _, back := range []topo.Measured{no, none} {
		require.Equal(t, "flags in the opposite direction do not work, or were not checked", needFlags(&yes, &back, topo.Pair{}, false))
	}
}
