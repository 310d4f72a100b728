package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

const (
	defaultSizes  = "1KB:1MB"
	defaultRanks  = 4 // on the emulator, and on a single device
	mostByMachine = 8 // ranks by default on a machine that --machine names
	emulatedIters = 5
	gpuIters      = 100
	maxIters      = 10_000
	minTimeout    = time.Millisecond
	maxTimeout    = 24 * time.Hour // both as allreduce.Config.Timeout has them
)

// options are the flags as given.
type options struct {
	backend, machine string
	devices          int
	json             bool

	ranks   int
	share   bool
	sizes   []string
	dtypes  []string
	iters   int
	algo    string
	seed    uint64
	timeout time.Duration
	absent  int
	probing string
	table   string
	library string // of NCCL

	topo    topoOptions
	probe   probeOptions
	sysroot string
}

// settings are the checked options of a run.
type settings struct {
	backend, machine string
	devices          int // 0: the machine's own
	ranks            int // 0: chosen by what there is
	share            bool
	sizes            []size
	dtypes           []allreduce.DType
	iters            int // 0: the default, cut short where calls take long
	algorithm        allreduce.Algorithm
	seed             uint64
	timeout          time.Duration
	timeoutKnob      bool // FENCELINE_TIMEOUT gave it
	absent           int  // -1: nobody
	probing          string
	knobs            allreduce.Knobs
	tuned            *allreduce.TunedTable // of --table; nil: the shipped choice
	library          string                // of NCCL
}

// What --probe takes.
const (
	probeAuto   = "auto"
	probeAlways = "always"
	probeNever  = "never"
)

// checkMachine refuses what describes no machine. given says whether a flag was set.
func (o *options) checkMachine(given func(string) bool) (settings, error) {
	s := settings{backend: o.backend, machine: o.machine, devices: o.devices, absent: -1}
	emulated := func(flag, value string) error {
		return usagef(flag, value, "describes emulated devices and the backend is cuda: leave it out, or use --backend emu")
	}
	switch {
	case !slices.Contains([]string{launcher.Auto, launcher.CUDA, launcher.Emu}, o.backend):
		return s, usagef("--backend", o.backend, "there is no such backend: use auto, cuda or emu")
	case given("machine") && o.machine == "":
		return s, usagef("--machine", "", "the name is empty: use nvlink, pcie, one-way or no-p2p")
	case given("devices") && o.devices < 1:
		return s, usagef("--devices", fmt.Sprint(o.devices), "a machine needs at least one device: use 1 or more")
	case o.backend == launcher.CUDA && given("machine"):
		return s, emulated("--machine", o.machine)
	case o.backend == launcher.CUDA && given("devices"):
		return s, emulated("--devices", fmt.Sprint(o.devices))
	}
	return s, nil
}

// checkRun checks all options of a run that can be checked without a machine.
func (o *options) checkRun(given func(string) bool) (settings, error) {
	s, err := o.checkMachine(given)
	if err != nil {
		return s, err
	}
	s.ranks, s.share, s.iters, s.seed, s.timeout = o.ranks, o.share, o.iters, o.seed, o.timeout
	switch {
	case given("ranks") && (o.ranks < 1 || o.ranks > flags.MaxRanks):
		return s, usagef("--ranks", fmt.Sprint(o.ranks), "use 1 to %d", flags.MaxRanks)
	case given("iters") && (o.iters < 1 || o.iters > maxIters):
		return s, usagef("--iters", fmt.Sprint(o.iters), "use 1 to %d", maxIters)
	case given("absent") && o.absent < 0:
		return s, usagef("--absent", fmt.Sprint(o.absent), "ranks count from 0: name one of them")
	case !slices.Contains([]string{probeAuto, probeAlways, probeNever}, o.probing):
		return s, usagef("--probe", o.probing, "use auto, always or never")
	}
	if err := checkTimeout(o.timeout); err != nil {
		return s, err
	}
	if given("absent") {
		s.absent = o.absent
	}
	s.probing, s.library = o.probing, o.library
	if s.knobs, err = readKnobs(); err != nil {
		return s, err
	}
	if t := s.knobs.Timeout; t != 0 && !given("timeout") {
		s.timeout = t + min(t/3, time.Second) // of which groupConfig gives the group t
		s.timeoutKnob = true
	}
	if s.algorithm, err = allreduce.ParseAlgorithm(o.algo); err != nil {
		return s, &usageError{Flag: "--algo", Err: err}
	}
	if err := s.readTable(o.table); err != nil {
		return s, err
	}
	if s.dtypes, err = parseDTypes(o.dtypes); err != nil {
		return s, err
	}
	if s.sizes, err = parseSizes(o.sizes); err != nil {
		return s, err
	}
	_, err = s.rows() // a size that fits no whole number of elements is seen here
	return s, err
}

// checkTimeout checks --timeout of the commands that make groups.
func checkTimeout(t time.Duration) error {
	switch {
	case t < minTimeout:
		return usagef("--timeout", t.String(), "too short to wait for anything: use %v or more, such as 10s", minTimeout)
	case t > maxTimeout:
		return usagef("--timeout", t.String(), "longer than ranks may wait for each other: use %gh or less, such as 10s", maxTimeout.Hours())
	}
	return nil
}

// timeoutName is what to change to wait longer.
func (s *settings) timeoutName() string {
	if s.timeoutKnob {
		return "FENCELINE_TIMEOUT"
	}
	return "--timeout"
}

// remedyLate adds to err, if that is a wait that ran out, what lets it wait longer. An interrupted run needs no remedy.
func (s *settings) remedyLate(ctx context.Context, err error) error {
	var late *launcher.TimeoutError
	if errors.As(err, &late) && ctx.Err() == nil {
		return fmt.Errorf("%w: raise %s, or use smaller sizes", err, s.timeoutName())
	}
	return err
}

// readTable reads the file of --table; "" is none.
func (s *settings) readTable(path string) (err error) {
	if path == "" {
		return nil
	}
	if s.tuned, err = allreduce.ReadTunedTable(path); err != nil {
		return &usageError{Flag: "--table", Err: err}
	}
	if forced := s.knobs.Algorithm; forced != allreduce.Auto {
		return usagef("--table", path, "FENCELINE_ALGO forces %v, and a table is for auto: unset the variable, or leave the table out", forced)
	}
	return nil
}

// fitsTable refuses a table of another machine.
func (s *settings) fitsTable(m *topo.Machine) error {
	if s.tuned == nil {
		return nil
	}
	if err := s.tuned.Fits(m); err != nil {
		return &usageError{Flag: "--table", Err: err}
	}
	return nil
}

// rules are what auto goes by.
func (s *settings) rules() allreduce.Table {
	if s.tuned == nil {
		return nil
	}
	return s.tuned.Rules
}

func parseDTypes(names []string) ([]allreduce.DType, error) {
	var list []allreduce.DType
	for _, n := range names {
		dt, err := allreduce.ParseDType(strings.TrimSpace(n))
		if err != nil {
			return nil, &usageError{Flag: "--dtype", Err: err}
		}
		if !slices.Contains(list, dt) {
			list = append(list, dt)
		}
	}
	if len(list) == 0 {
		return nil, usagef("--dtype", "", "the list is empty: use f32, f16 or bf16")
	}
	return list, nil
}

// algorithmNames lists what --algo takes besides auto.
func algorithmNames() []string {
	var names []string
	for _, a := range allreduce.Algorithms()[1:] {
		names = append(names, a.String())
	}
	return names
}
