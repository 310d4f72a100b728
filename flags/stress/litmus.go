package stress

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/flags/check/litmus"
	"github.com/fenceline/fenceline/internal/gpu"
)

// LitmusOptions say how litmus tests are run.
type LitmusOptions struct {
	// Time for all tests together. Each gets an equal share, and one launch at least. 0 is 10 s.
	Time time.Duration
	Seed uint64
	// Virtual puts all of a test's devices on device 0, as streams of their own, even where there are more.
	Virtual bool
	// Progress is told how many tests are done. nil: nobody is.
	Progress func(done int)
}

// Outcome is one combination of observed values.
type Outcome struct {
	Values []uint64 `json:"values"`
	Count  uint64   `json:"count"`
}

// Seen is one expectation of a test, and how many runs met it; of always, how many did not.
type Seen struct {
	Mode  string `json:"mode"`
	Text  string `json:"text"`
	Line  int    `json:"line"`
	Count uint64 `json:"count"`
}

// Forbids is whether what it counts should never have been seen.
func (s *Seen) Forbids() bool {
	return s.Mode == litmus.Forbidden.String() || s.Mode == litmus.Always.String()
}

// LitmusResult is what one test came to on the devices.
type LitmusResult struct {
	Name     string    `json:"name"`
	File     string    `json:"file,omitempty"`
	Line     int       `json:"line,omitempty"`
	Skipped  string    `json:"skipped,omitempty"` // why it was not run
	Devices  []int     `json:"devices,omitempty"` // on which each of the test's devices was
	Observed []string  `json:"observed,omitempty"`
	Runs     uint64    `json:"runs"`
	Outcomes []Outcome `json:"outcomes,omitempty"` // the most frequent first
	Expect   []Seen    `json:"expect,omitempty"`
	Stuck    uint64    `json:"stuck,omitempty"` // runs in which a thread waited in vain
}

// Forbidden is how many runs contradict the test: its forbidden lines met, or its always lines not.
func (r *LitmusResult) Forbidden() uint64 {
	var n uint64
	for _, e := range r.Expect {
		if e.Forbids() {
			n += e.Count
		}
	}
	return n
}

// Weak is how many of the test's allowed and permitted lines were seen, and of how many.
func (r *LitmusResult) Weak() (seen, of int) {
	for _, e := range r.Expect {
		if e.Mode == litmus.Allowed.String() || e.Mode == litmus.Permitted.String() {
			of++
			if e.Count > 0 {
				seen++
			}
		}
	}
	return seen, of
}

const (
	litmusPerModule = 24
	litmusWait      = 60 * time.Second // for one launch, which bounds its own waits
)

// RunLitmus runs litmus tests on the devices of d, as many instances of each at once as fit, and counts what came out.
// Threads of a test's block are threads of one block, in different warps; its blocks are different blocks; its devices are
// different devices where there are enough and all reach each other, and otherwise kernels on streams of their own. What
// the model forbids between devices it forbids within one, so the expectations stand. Nothing else may run on the devices.
//
// When ctx ends the results so far are returned. The error is the driver's.
func RunLitmus(ctx context.Context, d gpu.Driver, tests []*litmus.Test, o LitmusOptions) (results []LitmusResult, err error) {
	r := &litmusRunner{d: d, seed: o.Seed | 1, emulated: d.Info().Emulated, version: d.Info().Version}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(o.Virtual); err != nil {
		return nil, fmt.Errorf("litmus: %w", err)
	}
	end := time.Now().Add(cmp.Or(o.Time, 10*time.Second))
	for first := 0; first < len(tests) && ctx.Err() == nil; first += litmusPerModule {
		part := tests[first:min(first+litmusPerModule, len(tests))]
		if err := r.load(part); err != nil {
			return results, fmt.Errorf("litmus: %w", err)
		}
		for i, t := range part {
			if ctx.Err() != nil {
				break
			}
			share := time.Until(end) / time.Duration(len(tests)-first-i)
			res, err := r.test(ctx, t, entryName(i), time.Now().Add(share))
			if err != nil {
				return results, fmt.Errorf("litmus test %s: %w", t.Name, err)
			}
			results = append(results, res)
			if o.Progress != nil {
				o.Progress(len(results))
			}
		}
	}
	return results, nil
}

func entryName(i int) string { return fmt.Sprintf("t%d", i) }

// litmusRunner is the devices and what is on them.
type litmusRunner struct {
	d        gpu.Driver
	emulated bool
	version  int // of the driver
	seed     uint64
	sms      int
	place    []int        // device of each of a test's devices
	streams  []gpu.Stream // for each of a test's devices
	peers    [][2]int     // enabled here
	modules  map[int]gpu.Module
	allocs   map[allocKey]*block
	busy     bool // a launch never ended: nothing may be freed
}

type allocKey struct {
	device int // -1: host
	index  int
}

type block struct {
	p    gpu.Ptr
	host gpu.HostMem
	size uint64
}

const mostTestDevices = 4

func (r *litmusRunner) open(virtual bool) error {
	r.modules, r.allocs = map[int]gpu.Module{}, map[allocKey]*block{}
	info, err := r.d.DeviceInfo(0)
	if err != nil {
		return err
	}
	r.sms = info.SMs
	n := min(r.d.DeviceCount(), mostTestDevices)
	if virtual || n > 1 && !r.enable(n) {
		n = 1
	}
	for i := range mostTestDevices {
		r.place = append(r.place, i%n)
		s, err := r.d.StreamCreate(i % n)
		if err != nil {
			return err
		}
		r.streams = append(r.streams, s)
	}
	return nil
}

// enable turns on peer access among the first n devices, and says whether it is complete, atomics included.
func (r *litmusRunner) enable(n int) bool {
	for i := range n {
		for j := range n {
			if i == j {
				continue
			}
			p, err := r.d.P2P(i, j)
			if err != nil || !p.Access || !p.NativeAtomics || r.d.EnablePeerAccess(i, j) != nil {
				return false
			}
			r.peers = append(r.peers, [2]int{i, j})
		}
	}
	return true
}

// load makes one module of several tests, on every device.
func (r *litmusRunner) load(tests []*litmus.Test) error {
	if err := r.unload(); err != nil {
		return err
	}
	for dev := range slices.Max(r.place) + 1 {
		info, err := r.d.DeviceInfo(dev)
		if err != nil {
			return err
		}
		var b strings.Builder
		var fit []*litmus.Test
		for i, t := range tests {
			if unfitFor(t, r.version) == "" && deviceCount(t) <= mostTestDevices {
				fit = append(fit, t)
				b.WriteString(entries(t, entryName(i), r.shape(t).warps))
			}
		}
		for _, size := range []int{8, 16, 32, 64} {
			fmt.Fprintf(&b, litmusTools, size)
		}
		m, err := r.d.ModuleLoad(dev, "litmus.ptx", []byte(litmusHead(info.SM(), fit...)+b.String()))
		if err != nil {
			return err
		}
		r.modules[dev] = m
	}
	return nil
}

func (r *litmusRunner) unload() error {
	var errs []error
	for dev, m := range r.modules {
		errs = append(errs, r.d.ModuleUnload(dev, m))
	}
	clear(r.modules)
	return errors.Join(errs...)
}

// shape fits all blocks of a test on the device together, one on an SM.
func (r *litmusRunner) shape(t *litmus.Test) shape {
	s := shape{groups: 1 << (bits.Len(uint(max(1, r.sms/len(sites(t)))) - 1)), warps: 4, rounds: 8}
	if r.emulated {
		s = shape{1, 1, 2}
	}
	columns := 0
	for _, b := range sites(t) {
		columns = max(columns, len(b.columns))
	}
	if hasBarrier(t) || columns > 4 {
		s.warps = 1
	}
	for i := range t.Locations {
		if t.Locations[i].Device == litmus.Host { // over the bus
			s.rounds = 1
		}
	}
	return s
}

// test runs one test until the time is up.
func (r *litmusRunner) test(ctx context.Context, t *litmus.Test, name string, until time.Time) (LitmusResult, error) {
	res := LitmusResult{Name: t.Name, File: t.File, Line: t.Line}
	for _, o := range t.Observed {
		res.Observed = append(res.Observed, t.NameOf(o))
	}
	if res.Skipped = unfitFor(t, r.version); res.Skipped != "" {
		return res, nil
	}
	n := deviceCount(t)
	if n > mostTestDevices {
		res.Skipped = fmt.Sprintf("more than %d devices", mostTestDevices)
		return res, nil
	}
	res.Devices = r.place[:n:n]
	counts := map[string]*Outcome{}
	s := r.shape(t)
	for first := true; first || ctx.Err() == nil && time.Now().Before(until); first = false {
		raw, err := r.launch(t, name, s)
		if err != nil {
			return res, err
		}
		res.count(raw, len(t.Observed), s.instances(), counts)
	}
	for _, o := range counts {
		res.Outcomes = append(res.Outcomes, *o)
	}
	slices.SortFunc(res.Outcomes, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), slices.Compare(a.Values, b.Values))
	})
	for i := range t.Expect {
		e := &t.Expect[i]
		seen := Seen{Mode: e.Mode.String(), Text: e.Text, Line: e.Line}
		for _, o := range res.Outcomes {
			if e.Holds(o.Values) != (e.Mode == litmus.Always) {
				seen.Count += o.Count
			}
		}
		res.Expect = append(res.Expect, seen)
	}
	return res, nil
}

// count adds the results of one launch. Instances in which a thread waited in vain have no outcome.
func (r *LitmusResult) count(raw []byte, observed, instances int, counts map[string]*Outcome) {
	word := func(k, i int) uint64 { return binary.LittleEndian.Uint64(raw[8*(k*instances+i):]) }
	key, before := make([]byte, 8*observed), make([]byte, 8*observed)
	var last *Outcome // of before
	for i := range instances {
		if word(observed, i) != 0 {
			r.Stuck++
			continue
		}
		r.Runs++
		for k := range observed {
			binary.LittleEndian.PutUint64(key[8*k:], word(k, i))
		}
		if last != nil && bytes.Equal(key, before) {
			last.Count++
			continue
		}
		o := counts[string(key)]
		if o == nil {
			o = &Outcome{}
			for k := range observed {
				o.Values = append(o.Values, word(k, i))
			}
			counts[string(key)] = o
		}
		o.Count++
		last = o
		copy(before, key)
	}
}
