package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

// benchJSON runs demo bench on the emulator, fewest calls, and decodes its report.
func benchJSON(t *testing.T, args ...string) (int, *benchReport) {
	t.Helper()
	code, stdout, stderr := demo(t, append([]string{"bench", "--backend", "emu", "--json", "-n", "1"}, args...)...)
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	var r benchReport
	require.NoError(t, dec.Decode(&r), "stdout %q, stderr %q", stdout, stderr)
	require.False(t, dec.More(), "one document and nothing else")
	require.Equal(t, code == exitGood, r.OK)
	return code, &r
}

// Wrong usage is refused with code 2 and a remedy, before anything runs.
func TestBenchUsage(t *testing.T) {
	table := filepath.Join(t.TempDir(), "no.json")
	require.NoError(t, os.WriteFile(table, []byte(`{"kind": "other", "version": 1}`), 0o600))
	for _, c := range []struct{ args, want string }{
		{"nope", `demo bench takes no argument "nope"`},
		{"--ranks 0", `--ranks "0": use numbers from 1 to 16`},
		{"--ranks 2,17", `--ranks "17"`},
		{"--ranks two", `--ranks "two"`},
		{"--ranks 8", "more than the 4 device(s) of this machine: add --share"},
		{"-b x", `--minbytes "x": not a size`},
		{"-b=-8", "not a size"},
		{"-b 0", "nothing to sum"},
		{"-b 2G", "at most 1073741824 bytes"},
		{"-e 99999999999G", "at most 1073741824 bytes"},
		{"-b 8K -e 4K", "raise --maxbytes"},
		{"-b 1 -d bf16", "no element of bf16 fits: use 2 or more"},
		{"--direct some", `--direct "some": not a size`},
		{"-f 1", "use a whole number from 2"},
		{"-f 1.5", "use a whole number from 2"},
		{"-f 2 -i 1K", "leave out one of -f and -i"},
		{"-i 2 -e 1M", "more than 200 sizes"},
		{"-n 0", "use 1 to 10000"},
		{"-w -1", "use 0 to 1000"},
		{"--replays 0", "use 1 to 1000"},
		{"--rounds 0", "use 1 to 1000"},
		{"-d f64", `unknown dtype "f64"`},
		{"--algo ring", `unknown algorithm "ring": use one of auto`},
		{"--algo all,copy", "use it alone"},
		{"--machine no-p2p --algo copy,oneshot-pull", "algorithm oneshot-pull: "},
		{"--plot x.pdf", "end it in one of .png, .svg"},
		{"--plot x", "end it in one of .png, .svg"},
		{"--plot /nowhere/at/all/x.png", "there is no folder /nowhere/at/all"},
		{"--table " + table, "its kind is"},
		{"--table " + table + ".not", "no such file"},
		{"--timeout 0", "use 1ms or more"},
		{"-e 1G --ranks 4", "use smaller sizes or fewer ranks"},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, stdout, stderr := demo(t, append(strings.Fields("bench --backend emu "+c.args), "--json")...)
			require.Equal(t, exitUsage, code, stderr)
			require.Contains(t, stderr, c.want)
			require.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %q", stderr)
			require.Empty(t, stdout)
		})
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]uint64{"1": 1, "512": 512, "8K": 8192, "8k": 8192, "8KB": 8192, "8KiB": 8192, "1M": 1 << 20, "1G": 1 << 30, "7B": 7} {
		n, err := parseBytes("-b", text)
		require.NoError(t, err, text)
		require.Equal(t, want, n, text)
	}
}

func TestBenchSizes(t *testing.T) {
	for args, want := range map[string][]uint64{
		"-b 8 -e 64":             {8, 16, 32, 64},
		"-b 8 -e 100 -f 3":       {8, 24, 72},
		"-b 8 -e 40 -i 16":       {8, 24, 40},
		"-b 7 -e 15":             {6, 14}, // whole elements
		"-b 4 -e 7 -i 1":         {4, 6},
		"-b 16":                  nil,
		"-b 8 -e 16 -d f32,bf16": {8, 16, 8, 16},
	} {
		a, o, c := &app{}, &benchOptions{}, &cobra.Command{}
		a.machineFlags(c)
		o.measured(a, c, benchReplays)
		require.NoError(t, c.ParseFlags(strings.Fields(args)))
		s, err := o.check(a, c.Flags().Changed)
		require.NoError(t, err, args)
		var got []uint64
		for _, r := range s.rows {
			got = append(got, r.bytes())
		}
		if want == nil {
			require.Equal(t, uint64(16), got[0])
			require.Equal(t, uint64(1<<20), got[len(got)-1], "the default end")
			continue
		}
		require.Equal(t, want, got, args)
	}
}

func TestBench(t *testing.T) {
	code, r := benchJSON(t, "--algo", "all", "--ranks", "2,3", "-b", "1000", "-e", "8K", "-f", "8", "--rounds", "2")
	require.Equal(t, exitGood, code, r.Error)
	require.True(t, r.Backend.Emulated)
	require.Len(t, r.Worlds, 2)
	require.Len(t, r.Floors, 2)
	all := allreduce.Algorithms()
	all = all[:len(all)-1] // NCCL is not for emulated devices
	require.Len(t, r.Results, 2*2*len(all))
	for i := range r.Results {
		res := &r.Results[i]
		require.Equal(t, all[i%len(all)].String(), res.Name, "in turn, for each size")
		require.Equal(t, 2+i/(2*len(all)), res.Ranks)
		require.Equal(t, []uint64{1000, 8000}[i/len(all)%2], res.Bytes)
		require.Equal(t, res.Bytes/2, res.Count)
		if res.Name != "auto" {
			require.Equal(t, res.Name, res.Plan.Algorithm.String())
		}
		require.NotContains(t, res.Plan.Reason, "invalid")
		for _, h := range res.halves() {
			require.True(t, h.t.right(), h.t.First)
			require.Equal(t, 2, h.t.Samples)
			require.Positive(t, h.t.TimeUS)
			require.LessOrEqual(t, h.t.P10, h.t.P50)
			require.LessOrEqual(t, h.t.P90, h.t.P99)
			require.Equal(t, h.t.P50, h.t.TimeUS)
		}
		require.InEpsilon(t, res.Out.AlgBW*2*float64(res.Ranks-1)/float64(res.Ranks), res.Out.BusBW, 1e-9)
		f := &r.Floors[i/(2*len(all))]
		require.InEpsilon(t, f.us(res.Bytes), res.FloorUS, 1e-9)
		require.InEpsilon(t, res.Out.TimeUS/res.FloorUS, res.Ratio, 1e-9)
		require.Greater(t, res.FloorUS, f.GapUS+f.FlagUS)
	}
}

func TestBenchText(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "p.svg")
	code, stdout, stderr := demo(t, strings.Fields("bench --devices 1 --algo auto,host --ranks 2 -n 1 -b 2K -e 2K -d bf16,f32 --plot "+plot)...)
	require.Equal(t, exitGood, code, stderr)
	require.Empty(t, stderr, "no bar where there is no terminal")
	for _, want := range []string{"EMULATED: no GPU executed anything", "EMULATED: the times mean nothing", "2, several on one device (as asked for): 0→GPU0 1→GPU0",
		"Floor: launch gap ", "virtual ranks of one device: of kernel and protocol, not of a link", "#wrong", "*: what auto took", "floor: launch gap + flag latency",
		"Drawn: " + plot, "PASS: 4 rows"} {
		require.Contains(t, stdout, want)
	}
	require.Regexp(t, `(?m)^ +2048 +1024 +bf16 +sum +\*oneshot-push +\d+x\d+ \| +[\d.]+ +[\d.]+ +[\d.]+ +0 \|`, stdout)
	require.Regexp(t, `(?m)^ +2048 +512 +f32 +sum +host +\d+x\d+ \| +[\d.]+ +[\d.]+ +[\d.]+ +0 \|`, stdout)
}

// With --direct what is read is registered, in place too, and the results are the same.
func TestBenchDirect(t *testing.T) {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu})
	require.NoError(t, err)
	defer func() { require.NoError(t, rt.Close()) }()
	g, err := allreduce.NewGroup(rt, allreduce.Config{Ranks: 3})
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	c := &groupContender{rt: rt, g: g, registers: true, timeout: 10 * time.Second}
	require.NoError(t, c.open(t.Context(), row{allreduce.F32, 100}, 1))
	for _, bufs := range [][]launcher.Buffer{c.b.in, c.b.out} {
		_, err := g.Register(bufs)
		require.ErrorContains(t, err, "overlap a registered buffer")
	}
	require.NoError(t, c.close())

	code, r := benchJSON(t, "--algo", "oneshot-pull,twoshot-pull", "--ranks", "3", "-b", "1000", "-e", "4000", "-f", "4", "--direct", "2K", "--floor=false")
	require.Equal(t, exitGood, code)
	require.Equal(t, uint64(2048), r.DirectBytes)
	require.NotEmpty(t, r.Results)
}

// Where direct kernels cannot run, all leaves them out with a note each, and the floor, which is made of their flags, is none.
func TestBenchNoPeers(t *testing.T) {
	code, r := benchJSON(t, "--machine", "no-p2p", "--algo", "all", "--ranks", "2", "-b", "64", "-e", "64")
	require.Equal(t, exitGood, code, r.Error)
	require.Len(t, r.Results, 3)
	require.Equal(t, []string{"auto", "copy", "host"}, []string{r.Results[0].Name, r.Results[1].Name, r.Results[2].Name})
	for _, name := range []string{"oneshot-pull", "nccl"} {
		require.Equal(t, 1, strings.Count(strings.Join(r.Notes, "\n"), "2 ranks: "+name+" is left out"))
	}
	require.NotEmpty(t, r.Floors[0].Incomplete)
	require.Zero(t, r.Results[0].FloorUS)
}

// Where only writing works, kernels push, and a group of copies, which would read, cannot stand beside them.
func TestBenchWriteOnly(t *testing.T) {
	code, r := benchJSON(t, "--machine", "read-garbage", "--algo", "all", "--ranks", "2", "-b", "64", "-e", "64", "--floor=false")
	require.Equal(t, exitGood, code, r.Error)
	var names []string
	for _, res := range r.Results {
		names = append(names, res.Name)
	}
	require.Equal(t, []string{"auto", "oneshot-push", "twoshot-push", "oneshot-wide", "twoshot-wide", "host"}, names)
	require.Contains(t, strings.Join(r.Notes, "\n"), "2 ranks: copy is left out")
}

func TestBenchInterrupt(t *testing.T) {
	for _, args := range [][]string{{}, {"--json"}} {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(400*time.Millisecond, cancel)
		plot := filepath.Join(t.TempDir(), "p.png")
		var out, diag bytes.Buffer
		code := execute(ctx, append(args, "bench", "--backend", "emu", "-n", "10000", "-b", "4K", "--floor=false", "--plot", plot), &out, &diag)
		require.Equal(t, exitInterrupted, code, diag.String())
		require.Equal(t, "demo: interrupted; everything was closed\n", diag.String())
		require.NoFileExists(t, plot)
		if len(args) == 1 {
			var r benchReport
			require.NoError(t, json.Unmarshal(out.Bytes(), &r))
			require.False(t, r.OK)
			require.NotEmpty(t, r.Error)
		} else {
			require.Contains(t, out.String(), "FAIL: ")
		}
	}
}

// fake is a contender whose times and checks are given.
type fake struct {
	label  string
	log    *[]string
	wrong  uint64
	failAt string
	opened bool
}

func (f *fake) say(format string, args ...any) error {
	s := f.label + " " + fmt.Sprintf(format, args...)
	*f.log = append(*f.log, s)
	if f.failAt != "" && strings.Contains(s, f.failAt) {
		return errors.New("it broke")
	}
	return nil
}

func (f *fake) name() string                            { return f.label }
func (f *fake) plan(row) (*allreduce.Plan, error)       { return nil, nil }
func (f *fake) close() error                            { f.opened = false; return f.say("close") }
func (f *fake) open(context.Context, row, uint64) error { f.opened = true; return f.say("open") }
func (f *fake) times(_ context.Context, inPlace bool) ([]time.Duration, int, error) {
	return []time.Duration{4000, 1000, 3000, 2000}, 7, f.say("time %v", inPlace)
}
func (f *fake) check(_ context.Context, seed uint64, inPlace bool) (verdict, error) {
	return verdict{wrong: f.wrong, equal: true, first: choice(f.wrong > 0, "element 3", "")}, f.say("check %d %v", seed, inPlace)
}

// Algorithms take turns in each round, every result is checked with other payloads than were timed, and one wrong element
// fails the run.
func TestBenchRounds(t *testing.T) {
	var log []string
	a, b := &fake{label: "a", log: &log}, &fake{label: "b", log: &log}
	r := &benchRun{set: &benchSettings{rounds: 2, settings: settings{seed: 5}}, bar: newProgress(&bytes.Buffer{}, 1)}
	f := &field{contenders: []contender{a, b}}
	w := &worldReport{Ranks: 4}
	floor := &floorReport{Ranks: 4, Devices: 1, PerDevice: 4, GapUS: 0.5, FlagUS: 0.5, MemoryRate: 8}
	require.NoError(t, r.size(t.Context(), f, w, floor, row{allreduce.BF16, 500}))
	require.Equal(t, "a open,b open,a time false,a time true,b time false,b time true,a time false,a time true,b time false,b time true,"+
		"a check 6 false,a check 6 true,b check 6 false,b check 6 true,a close,b close", strings.Join(log, ","))
	r.rep.finish(nil)
	require.True(t, r.rep.OK)
	res := r.rep.Results[0]
	require.Equal(t, 8, res.Out.Samples)
	require.Equal(t, 7, res.Out.Calls)
	require.Equal(t, []float64{1, 2, 4, 4}, []float64{res.Out.P10, res.Out.P50, res.Out.P90, res.Out.P99})
	require.InEpsilon(t, 0.5, res.Out.AlgBW, 1e-9, "1000 bytes in 2 µs")
	require.InEpsilon(t, 0.75, res.Out.BusBW, 1e-9)
	require.InEpsilon(t, 2.0, res.FloorUS, 1e-9, "0.5 + 0.5 + 2×4×1000 bytes at 8 GB/s")
	require.InEpsilon(t, 1.0, res.Ratio, 1e-9)

	b.wrong = 3
	require.NoError(t, r.size(t.Context(), f, w, nil, row{allreduce.BF16, 500}))
	r.rep.finish(nil)
	require.False(t, r.rep.OK)
	var text bytes.Buffer
	(&benchTable{w: &text}).verdict(&r.rep)
	require.Contains(t, text.String(), "1000 bytes of bf16 on 4 ranks by b: element 3")
	require.Contains(t, text.String(), "FAIL: 1 of 4 rows wrong")

	b.failAt = "time true"
	require.ErrorContains(t, r.size(t.Context(), f, w, nil, row{allreduce.BF16, 500}), "500 elements of bf16 by b: it broke")
	require.True(t, a.opened, "a kernel may still use its memory")
	require.NoError(t, r.closeField(f))
	require.False(t, a.opened || b.opened)
}

func TestFloorDevices(t *testing.T) {
	good := topo.Measured{FlagLatency: 1300, KernelRate: 400}
	slow := topo.Measured{FlagLatency: 1500, KernelRate: 300}
	self := topo.Measured{FlagLatency: 800, KernelRate: 4000}
	found := &topo.Measurement{Pairs: [][]topo.Measured{{self, good}, {slow, {}}}}
	f := newFloor(&worldReport{Ranks: 2, Devices: []int{0, 1}}, found)
	f.GapUS = 0.5
	require.Empty(t, f.Incomplete)
	require.InDelta(t, 0.5+1.5+2.5, f.us(1e6), 1e-9, "the slowest flag, the fastest rate, half of the sum each way")
	f = newFloor(&worldReport{Ranks: 4, Devices: []int{0, 0, 0, 0}}, found)
	require.True(t, f.Virtual)
	require.InDelta(t, 0.8+2, f.us(1e6), 1e-9)
	f = newFloor(&worldReport{Ranks: 1, Devices: []int{0}}, found)
	require.InDelta(t, 0.5, f.us(1e6), 1e-9, "one rank waits for no flag")
	found.Pairs[1][0].FlagLatency = 0
	f = newFloor(&worldReport{Ranks: 2, Devices: []int{0, 1}}, found)
	require.Contains(t, f.Incomplete, "devices 0 and 1")
	require.Zero(t, f.us(1e6))
}

func TestLengths(t *testing.T) {
	l := lengths{calls: 200, replays: 10}
	for _, c := range []struct {
		call           time.Duration
		calls, replays int
	}{{0, 200, 10}, {3 * time.Microsecond, 200, 10}, {500 * time.Microsecond, 100, 10}, {20 * time.Millisecond, fewestCalls, 5}, {time.Second, fewestCalls, fewestReps}} {
		calls, reps := l.fit(c.call)
		require.Equal(t, [2]int{c.calls, c.replays}, [2]int{calls, reps}, c.call)
	}
	l.callsGiven, l.replaysGiven = true, true
	calls, reps := l.fit(time.Second)
	require.Equal(t, [2]int{200, 10}, [2]int{calls, reps})
}

// The device's clock and captured graphs, which GPUs are timed with, run on emulated devices too.
func TestBenchOnDevice(t *testing.T) {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu})
	require.NoError(t, err)
	defer func() { require.NoError(t, rt.Close()) }()
	g, err := allreduce.NewGroup(rt, allreduce.Config{Ranks: 2, Table: allreduce.Table{{Algorithm: allreduce.TwoshotPull}}})
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	c := &groupContender{label: "x", rt: rt, g: g, captured: true, by: allreduce.Table{{Algorithm: allreduce.TwoshotPull}}, timeout: 10 * time.Second,
		lengths: lengths{calls: 3, warmup: 1, replays: 2, callsGiven: true, replaysGiven: true}}
	c.clock, err = newStopwatch(rt, g)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.clock.close()) }()
	w := row{allreduce.F32, 300}
	require.NoError(t, c.open(t.Context(), w, 1))
	for _, inPlace := range []bool{false, true} {
		times, calls, err := c.times(t.Context(), inPlace)
		require.NoError(t, err)
		require.Equal(t, 3, calls)
		require.Len(t, times, 2)
		v, err := c.check(t.Context(), 2, inPlace)
		require.NoError(t, err)
		require.Zero(t, v.wrong+v.stray, v.first)
	}
	require.NoError(t, c.close())
}

// The gate stands until all is queued; one that opens early makes the next hold longer, and its sample does not count.
func TestGate(t *testing.T) {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu})
	require.NoError(t, err)
	defer func() { require.NoError(t, rt.Close()) }()
	g, err := newGate(rt, 0, 2)
	require.NoError(t, err)
	defer func() { require.NoError(t, g.close()) }()
	require.Equal(t, gateBase+2*gateRank, g.hold)
	require.NoError(t, g.shut())
	open, err := g.early()
	require.NoError(t, err)
	require.False(t, open, "nobody has waited")
	require.NoError(t, g.stream.Sync(t.Context()))
	open, err = g.early()
	require.NoError(t, err)
	require.True(t, open)
	require.Equal(t, 2*(gateBase+2*gateRank), g.hold)
}
