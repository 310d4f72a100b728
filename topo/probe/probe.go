// Package probe finds out what peer access really does: for each ordered pair of devices, whether reads, writes,
// flags and atomics work, and how fast they are. What a driver claims is only asked so as not to try the impossible.
//
// Run probes in this process, RunChild in child processes that call Serve. A read that never completes, or a fault,
// leaves a process's devices unusable; with RunChild it costs that one probe. On a real machine use RunChild.
//
// Each check uses words that depend on their place, on the pair and on the run, and is made twice over the same
// memory, so that zeros, ones, misplaced and stale data are all seen to be wrong.
//
// In every matrix, row i and column j are device i reaching device j's memory. The copies and kernels whose rate is
// taken run on i and pull from j.
package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/topo"
)

// Sentinels.
var (
	ErrOptions = errors.New("bad probe options")
	ErrChild   = errors.New("probe child failed") // it did not get as far as probing
	ErrOwn     = errors.New("a device's own memory does not hold what it wrote")
)

// Pair is an ordered pair of ordinals: From reaches To's memory. From == To stands for two ranks on one device.
type Pair struct {
	From int `json:"from"`
	To   int `json:"to"`
}

func (p Pair) String() string { return fmt.Sprintf("%d→%d", p.From, p.To) }

// Options say what to probe. The zero value checks every pair of different devices and takes no numbers.
type Options struct {
	Pairs   []Pair // nil: every ordered pair of different devices
	Virtual bool   // with nil Pairs: each device with itself too, as two ranks that share it
	// Bytes is the size of the buffers that are checked: a multiple of 1024, from 1024 to 64 MiB. 0: 1 MiB, emulated 32 KiB.
	Bytes   uint64
	Seed    uint64        // of the patterns; 0: a different one on every run
	Timeout time.Duration // of one probe, 0: 2 s
	// Start is how long a child may take to get ready: to open the driver, and load the kernels. 0: 60 s.
	Start time.Duration

	Numbers   bool   // take latencies and bandwidths too, of the pairs whose checks passed
	RateBytes uint64 // size of the buffers whose bandwidth is taken: a multiple of 1024. 0: 256 MiB, emulated 64 KiB
	// Only are the numbers to take, of Steps(); nil: all. The checks are made in any case.
	Only []string
	// EmulatedNumbers takes numbers on emulated devices too, where they say nothing about any GPU.
	EmulatedNumbers bool

	Key    topo.Key     // for the Measurement; UUIDs and Driver are filled in when empty
	Report func(Result) `json:"-"` // is told each result as it comes, when not nil
}

// Result is one probe's outcome: a check, or a number.
type Result struct {
	Pair  Pair        `json:"pair"`
	Step  string      `json:"step"`            // one of Steps()
	Check *topo.Check `json:"check,omitempty"` // of a check
	Value float64     `json:"value,omitempty"` // of a number: ns or GB/s, as in topo.Measured; 0 when there is none
	Note  string      `json:"note,omitempty"`  // why there is no number
	Lost  bool        `json:"lost,omitempty"`  // the process cannot go on with these devices
}

func (r Result) String() string {
	switch {
	case r.Check != nil:
		return fmt.Sprintf("%v %s: %v", r.Pair, r.Step, *r.Check)
	case r.Note != "":
		return fmt.Sprintf("%v %s: %s", r.Pair, r.Step, r.Note)
	}
	return fmt.Sprintf("%v %s: %.2f", r.Pair, r.Step, r.Value)
}

const (
	defaultBytes, emulatedBytes         = 1 << 20, 32 << 10
	defaultRateBytes, emulatedRateBytes = 256 << 20, 64 << 10
	maxBytes                            = 64 << 20
	unit                                = 1024 // of both sizes: one pack of each of the rounds of the flag check
)

// validate fills the defaults in a copy, for a machine.
func (o Options) validate(m *topo.Machine) (Options, error) {
	bad := func(format string, args ...any) (Options, error) {
		return o, fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
	}
	if o.Bytes == 0 {
		o.Bytes = choose[uint64](m.Emulated, emulatedBytes, defaultBytes)
	}
	if o.RateBytes == 0 {
		o.RateBytes = choose[uint64](m.Emulated, emulatedRateBytes, defaultRateBytes)
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Start == 0 {
		o.Start = time.Minute
	}
	if o.Seed == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		o.Seed = binary.LittleEndian.Uint64(b[:])
	}
	n := len(m.Devices)
	switch {
	case o.Bytes%unit != 0 || o.Bytes > maxBytes:
		return bad("Bytes is %d; want a multiple of %d up to %d", o.Bytes, unit, maxBytes)
	case o.RateBytes%unit != 0:
		return bad("RateBytes is %d; want a multiple of %d", o.RateBytes, unit)
	case o.Timeout < 0 || o.Timeout > time.Hour:
		return bad("Timeout is %v; want up to an hour", o.Timeout)
	case o.Start < 0:
		return bad("Start is %v; want more than nothing", o.Start)
	}
	for _, name := range o.Only {
		if st := findStep(name); st == nil || !st.number() {
			return bad("%q is no number; want some of %s", name, strings.Join(Steps()[Checks:], ", "))
		}
	}
	if o.Pairs == nil {
		for i := range n {
			for j := range n {
				if i != j || o.Virtual {
					o.Pairs = append(o.Pairs, Pair{i, j})
				}
			}
		}
	}
	seen := map[Pair]bool{}
	for _, p := range o.Pairs {
		if p.From < 0 || p.From >= n || p.To < 0 || p.To >= n {
			return bad("pair %v; the machine has devices 0 to %d", p, n-1)
		}
		if seen[p] {
			return bad("pair %v is given twice", p)
		}
		seen[p] = true
	}
	if len(o.Key.UUIDs) == 0 {
		for _, d := range m.Devices {
			o.Key.UUIDs = append(o.Key.UUIDs, d.UUID)
		}
	}
	if o.Key.Driver == "" {
		o.Key.Driver = m.Driver.Release
		if o.Key.Driver == "" {
			o.Key.Driver = gpu.CUDAVersion(m.Driver.API)
		}
	}
	return o, nil
}

func choose[T any](c bool, yes, no T) T {
	if c {
		return yes
	}
	return no
}

// stepLimit bounds one probe with everything around it.
func (o *Options) stepLimit() time.Duration { return 4*o.Timeout + 2*time.Second }

// numbers is whether numbers are taken.
func (o *Options) numbers(m *topo.Machine) bool {
	return o.Numbers && (!m.Emulated || o.EmulatedNumbers)
}

// empty is a measurement in which nothing was probed.
func empty(m *topo.Machine, o *Options) *topo.Measurement {
	r := &topo.Measurement{Version: topo.FormatVersion, Key: o.Key, Pairs: make([][]topo.Measured, len(m.Devices))}
	for i := range r.Pairs {
		r.Pairs[i] = make([]topo.Measured, len(m.Devices))
	}
	return r
}

// Run probes the pairs in this process. It enables peer access as it needs it, and leaves it disabled for the pairs
// it probed. What does not work is a finding, in the measurement; the error is for what kept it from probing, and then
// the measurement holds what was found so far. m is what the driver claims; nil: it is asked.
//
// After a fault, or on a real machine a probe that never ended, nothing more runs on the devices concerned: those
// probes stay Unknown and say why. What a probe that never ended uses is not released before the driver is closed.
func Run(ctx context.Context, d gpu.Driver, m *topo.Machine, o Options) (*topo.Measurement, error) {
	if m == nil {
		var err error
		if m, err = topo.FromDriver(d); err != nil {
			return nil, fmt.Errorf("probe: %w", err)
		}
	}
	o, err := o.validate(m)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	found := empty(m, &o)
	e, err := newEngine(d, m, found.Pairs, &o)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	defer e.close()
	for _, it := range items(m, &o) {
		r, err := e.do(ctx, it)
		if err != nil {
			return found, fmt.Errorf("probe %v, %s: %w", it.Pair, it.Step, err)
		}
		r.apply(found.Pairs)
		if o.Report != nil {
			o.Report(r)
		}
	}
	return found, nil
}

// item is one probe to be made.
type item struct {
	Pair Pair   `json:"pair"`
	Step string `json:"step"`
}

// items lists all probes: first the checks of all pairs, because numbers in both directions need both directions'
// checks.
func items(m *topo.Machine, o *Options) (list []item) {
	for _, number := range []bool{false, true} {
		if number && !o.numbers(m) {
			break
		}
		for _, p := range o.Pairs {
			for i := range steps {
				if steps[i].number() == number && (!number || o.Only == nil || slices.Contains(o.Only, steps[i].name)) {
					list = append(list, item{p, steps[i].name})
				}
			}
		}
	}
	return list
}
