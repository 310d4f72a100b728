package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./cmd/demo -update")
	require.Equal(t, string(want), string(got))
}

// sample is a run in which every field has a value.
func sample() *runReport {
	node := 1
	m := &topo.Machine{
		Version: topo.FormatVersion,
		Devices: []topo.Device{
			{Ordinal: 0, UUID: "GPU-00000000-0000-0000-0000-000000000001", Name: "Sample GPU", PCI: "0000:1b:00.0", SM: 90, SMs: 132, TotalMem: 80 << 30, NUMA: &node, MIG: topo.No, NVLinks: &node},
			{Ordinal: 1, UUID: "GPU-00000000-0000-0000-0000-000000000002", Name: "Sample GPU", SM: 90, SMs: 132, TotalMem: 80 << 30},
		},
		Pairs: [][]topo.Pair{
			{{}, {Access: topo.Yes, Read: topo.Yes, Write: topo.Yes, NativeAtomics: topo.Yes, ReadCode: "OK", WriteCode: "OK", AtomicsCode: "OK", Link: "NV18"}},
			{{Access: topo.Yes, PerfRank: 1, Read: topo.No, ReadCode: "CNS"}, {}},
		},
		Notes: []string{"a note"},
	}
	plan := allreduce.Plan{Algorithm: allreduce.OneshotPull, Reason: "all 2 devices reach each other directly", Blocks: 4, Threads: 128, Pieces: 1}
	r := &runReport{
		machineReport: machineReport{Version: reportVersion, Devices: m.Devices, P2P: m.Pairs, Notes: m.Notes, machine: m,
			Backend: launcher.Info{Backend: "emu", Emulated: true, DriverVersion: 12080, Detail: "sample", Why: "no usable GPU"}},
		World: worldReport{Ranks: 2, Devices: []int{0, 1}, Why: "one rank per device"},
		Seed:  1, TimeoutMS: 10000, Clock: hostClock,
		Results: []result{
			{Bytes: 1024, Count: 256, DType: allreduce.F32, Redop: "sum", Plan: plan, Iters: 5, TimeUS: 2.5, RanksEqual: true},
			{Bytes: 1 << 20, Count: 1 << 19, DType: allreduce.BF16, Redop: "sum", Plan: plan, Iters: 5, TimeUS: 20, RanksEqual: true},
		},
	}
	for i := range r.Results {
		r.Results[i].rate(2)
	}
	return r
}

func (r *runReport) text(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.brief(&b))
	tab := &table{w: &b}
	tab.world(r)
	for i := range r.Results {
		tab.row(&r.Results[i])
	}
	tab.verdict(r)
	return b.String()
}

func TestTextGolden(t *testing.T) {
	r := sample()
	r.finish(nil)
	require.True(t, r.OK)
	golden(t, "run.golden.txt", []byte(r.text(t)))
}

func TestJSONGolden(t *testing.T) {
	r := sample()
	r.Results[1].Wrong, r.Results[1].First = 3, "out of place: rank 1: element 0 is …"
	r.Absent = &absentReport{Rank: 1, Others: []absentWitness{{Rank: 0, AfterMS: 9000, Error: "rank 0 …", Names: true, InTime: true}},
		Refused: true, Refusal: "the group has failed", Rebuilt: true}
	r.finish(errors.New("the end"))
	var b bytes.Buffer
	require.NoError(t, writeJSON(&b, r))
	golden(t, "run.golden.json", b.Bytes())

	dec := json.NewDecoder(&b)
	dec.DisallowUnknownFields()
	var back runReport
	require.NoError(t, dec.Decode(&back))
	back.machine = r.machine
	require.Equal(t, r, &back)
}

func TestVerdict(t *testing.T) {
	good := &absentReport{Rank: 1, Others: []absentWitness{{Rank: 0, Names: true, InTime: true}}, Refused: true, Rebuilt: true}
	for _, c := range []struct {
		name   string
		change func(*runReport)
		err    error
		ok     bool
		want   string
	}{
		{"right", func(*runReport) {}, nil, true, "PASS: 2 results"},
		{"nothing ran", func(r *runReport) { r.Results = nil }, nil, false, "FAIL: 0 of 0"},
		{"wrong", func(r *runReport) { r.Results[0].Wrong = 5 }, nil, false, "FAIL: 1 of 2 results wrong: 5 elements differ"},
		{"wrong in place", func(r *runReport) { r.Results[1].WrongInPlace = 1 }, nil, false, "FAIL: 1 of 2 results wrong: 1 elements"},
		{"guards", func(r *runReport) { r.Results[1].Stray = 7 }, nil, false, "7 bytes overwritten"},
		{"ranks differ", func(r *runReport) { r.Results[1].RanksEqual = false }, nil, false, "FAIL: 1 of 2"},
		{"stopped", func(*runReport) {}, errors.New("device lost"), false, "FAIL: stopped after 2 result(s), 0 of them wrong: device lost"},
		{"absent", func(r *runReport) { r.Absent = good }, nil, false, "FAULT, as demonstrated: rank 1 never arrived"},
		{"absent, not rebuilt", func(r *runReport) { a := *good; a.Rebuilt = false; r.Absent = &a }, nil, false, "FAIL: rank 1 was absent, and not all went as it must: the rebuilt group"},
		{"absent, taken", func(r *runReport) { a := *good; a.Refused = false; r.Absent = &a }, nil, false, "the failed group took more work"},
		{"absent, not named", func(r *runReport) { a := *good; a.Others = []absentWitness{{InTime: true}}; r.Absent = &a }, nil, false, "rank 0 does not name rank 1"},
		{"absent, late", func(r *runReport) { a := *good; a.Others = []absentWitness{{Names: true}}; r.Absent = &a }, nil, false, "rank 0 took longer than the timeout"},
		{"absent, failed", func(r *runReport) { r.Absent = good }, errors.New("x"), false, "FAIL: rank 1 was absent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sample()
			c.change(r)
			r.finish(c.err)
			require.Equal(t, c.ok, r.OK)
			require.Contains(t, r.text(t), c.want)
			require.Equal(t, c.ok, strings.Contains(r.text(t), "PASS"))
		})
	}
}

func TestReasonsOnce(t *testing.T) {
	r := sample()
	r.Results[1].Plan.Reason = "another"
	r.Results = append(r.Results, r.Results...)
	text := r.text(t)
	require.Equal(t, 1, strings.Count(text, "all 2 devices reach each other directly"))
	require.Equal(t, 1, strings.Count(text, "another"))
}

func TestRate(t *testing.T) {
	r := result{Bytes: 1 << 20, TimeUS: 100}
	r.rate(4)
	require.InDelta(t, 10.48576, r.AlgBW, 1e-9)
	require.InDelta(t, 10.48576*1.5, r.BusBW, 1e-9)
	r = result{Bytes: 1024}
	r.rate(1)
	require.Zero(t, r.AlgBW, "no time, no rate, and no division by zero")
	require.Zero(t, r.BusBW)
}

func TestMedian(t *testing.T) {
	require.Zero(t, median(nil))
	require.Equal(t, time.Duration(2), median([]time.Duration{3, 1, 2}))
	require.Equal(t, time.Duration(2), median([]time.Duration{9, 1, 2, 3}))
}

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		name     string
		s        settings
		devices  int
		emulated bool
		want     []int
		shared   bool
		refusal  string
	}{
		{"emulator", settings{}, 4, true, []int{0, 1, 2, 3}, false, ""},
		{"large emulated machine", settings{}, 16, true, []int{0, 1, 2, 3}, false, ""},
		{"named machine", settings{machine: "nvlink-8"}, 8, true, []int{0, 1, 2, 3, 4, 5, 6, 7}, false, ""},
		{"large named machine", settings{machine: "file:x"}, 16, true, []int{0, 1, 2, 3, 4, 5, 6, 7}, false, ""},
		{"emulated devices asked for", settings{devices: 6}, 6, true, []int{0, 1, 2, 3, 4, 5}, false, ""},
		{"GPUs", settings{}, 8, false, []int{0, 1, 2, 3, 4, 5, 6, 7}, false, ""},
		{"one GPU", settings{}, 1, false, []int{0, 0, 0, 0}, true, ""},
		{"one GPU, one rank", settings{ranks: 1}, 1, false, []int{0}, false, ""},
		{"fewer ranks", settings{ranks: 3}, 4, true, []int{0, 1, 2}, false, ""},
		{"shared", settings{ranks: 5, share: true}, 2, false, []int{0, 1, 0, 1, 0}, true, ""},
		{"not shared", settings{ranks: 5}, 2, false, nil, false, "add --share to put several ranks on a device, or use --ranks 2"},
		{"not shared, one GPU", settings{ranks: 2}, 1, false, nil, false, "add --share"},
		{"not shared, emulated", settings{ranks: 5}, 4, true, nil, false, "or --devices 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := c.s.place(c.devices, c.emulated)
			if c.refusal != "" {
				require.ErrorContains(t, err, c.refusal)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, w.Devices)
			require.Equal(t, c.shared, w.Shared)
			require.Len(t, c.want, w.Ranks)
			require.NotEmpty(t, w.Why)
		})
	}
	many, err := (&settings{}).place(20, false)
	require.NoError(t, err)
	require.Equal(t, 16, many.Ranks)
}

func TestFits(t *testing.T) {
	w := worldReport{Devices: []int{0, 0, 1}}
	devices := []topo.Device{{TotalMem: 1 << 20}, {TotalMem: 1 << 20}}
	require.NoError(t, w.fits(devices, false, 1<<17))
	require.ErrorContains(t, w.fits(devices, false, 1<<18), "2 rank(s) need")
	w.Ranks = 3
	devices[0].TotalMem, devices[1].TotalMem = 1<<40, 1<<40
	require.NoError(t, w.fits(devices, false, maxMessage))
	require.NoError(t, w.fits(devices, true, maxEmulated/4))
	require.ErrorContains(t, w.fits(devices, true, maxEmulated/2), "more than the emulator is for")
}
