package allreduce

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/topo"
)

const (
	tableKind = "allreduce-tuning"
	tableName = "tuning table"
)

// ErrTable is a tuning table that is for another machine, or cannot be used. It is a *TableError.
var ErrTable = errors.New("the tuning table cannot be used")

// TableError is a tuning table that cannot be used where it is asked for.
type TableError struct {
	Path   string // of the file; may be empty
	Detail string // what is wrong, and the remedy
	Err    error  // the *ArgumentError of a rule, or nil
}

func (e *TableError) Error() string {
	s := tableName
	if e.Path != "" {
		s += " " + e.Path
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives ErrTable, and the cause if there is one.
func (e *TableError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrTable}
	}
	return []error{ErrTable, e.Err}
}

// TunedTable is a Table with the machine that it was measured on, as `demo tune` saves it.
type TunedTable struct {
	Kind    string       `json:"kind"`    // "allreduce-tuning"
	Version int          `json:"version"` // topo.FormatVersion
	Machine TunedMachine `json:"machine"`
	Rules   Table        `json:"rules"`

	path string
}

// TunedMachine is what a table holds for: any machine with the same devices, in the same places.
type TunedMachine struct {
	Emulated bool          `json:"emulated"` // no GPU was measured, and no GPU may go by it
	Driver   string        `json:"driver"`   // release or API version, for information
	Devices  []TunedDevice `json:"devices"`  // by ordinal
	Links    [][]string    `json:"links"`    // links[i][j]: the path between devices i and j in nvidia-smi's words, "" where it is not known
}

// TunedDevice is the model of a device.
type TunedDevice struct {
	Name string `json:"name"`
	SM   int    `json:"sm"`  // compute capability, 90 for sm_90
	SMs  int    `json:"sms"` // number of them
}

// NewTunedTable is a table for the machine it was measured on. The error is an *ArgumentError for rules that cannot be used.
func NewTunedTable(m *topo.Machine, rules Table) (*TunedTable, error) {
	if err := checkMachine(m); err != nil {
		return nil, err
	}
	if err := rules.check(); err != nil {
		return nil, err
	}
	return &TunedTable{Kind: tableKind, Version: topo.FormatVersion, Machine: tuned(m), Rules: slices.Clone(rules)}, nil
}

func tuned(m *topo.Machine) TunedMachine {
	t := TunedMachine{Emulated: m.Emulated, Driver: m.Driver.Release}
	if t.Driver == "" {
		t.Driver = fmt.Sprintf("API %d", m.Driver.API)
	}
	for i, d := range m.Devices {
		t.Devices = append(t.Devices, TunedDevice{d.Name, d.SM, d.SMs})
		links := make([]string, len(m.Pairs[i]))
		for j, p := range m.Pairs[i] {
			links[j] = p.Link
		}
		t.Links = append(t.Links, links)
	}
	return t
}

// Save writes the table to a file: whole, in the place of an older one, or not at all.
func (t *TunedTable) Save(path string) error { return topo.WriteRecord(path, tableName, t) }

// ReadTunedTable reads what Save wrote. A file that is cut off, foreign, of another version, or has fields that are not known
// is a *topo.RecordError; one with rules that cannot be used a *TableError. Fits says whether it is for a machine.
func ReadTunedTable(path string) (*TunedTable, error) {
	t := &TunedTable{path: path}
	if err := topo.ReadRecord(path, tableName, tableKind, t); err != nil {
		return nil, err
	}
	refuse := func(format string, args ...any) (*TunedTable, error) {
		return nil, &TableError{Path: path, Detail: fmt.Sprintf(format, args...) + ": make it anew with demo tune"}
	}
	n := len(t.Machine.Devices)
	switch err := t.Rules.check(); {
	case err != nil:
		return nil, &TableError{Path: path, Detail: "make it anew with demo tune", Err: err}
	case len(t.Rules) == 0:
		return refuse("it has no rules")
	case n == 0:
		return refuse("it names no devices")
	case len(t.Machine.Links) != n || slices.ContainsFunc(t.Machine.Links, func(row []string) bool { return len(row) != n }):
		return refuse("it has %d devices, and links for another number", n)
	}
	return t, nil
}

// Fits refuses, with a *TableError, a machine whose devices or links differ from those that the table was measured on, and a
// table of the emulator for real devices. Only the devices' models count, and a driver of another release does not matter.
func (t *TunedTable) Fits(m *topo.Machine) error {
	refuse := func(format string, args ...any) error {
		return &TableError{Path: t.path, Detail: fmt.Sprintf(format, args...)}
	}
	if err := checkMachine(m); err != nil {
		return err
	}
	now := tuned(m)
	switch {
	case t.Machine.Emulated && !now.Emulated:
		return refuse("it was made on the emulator, whose times mean nothing for GPUs: run demo tune on this machine")
	case !t.Machine.Emulated && now.Emulated:
		return refuse("it was made on GPUs, and this machine is emulated: leave it out, or run demo tune --backend emu")
	case len(t.Machine.Devices) != len(now.Devices):
		return refuse("it was made on %d device(s), and here are %d: run demo tune on this machine", len(t.Machine.Devices), len(now.Devices))
	}
	for i, d := range t.Machine.Devices {
		if here := now.Devices[i]; d != here {
			return refuse("device %d was %s (sm_%d, %d SMs), and is %s (sm_%d, %d SMs): run demo tune on this machine",
				i, d.Name, d.SM, d.SMs, here.Name, here.SM, here.SMs)
		}
		for j, was := range t.Machine.Links[i] {
			if is := now.Links[i][j]; was != is {
				return refuse("devices %d and %d were joined by %q, and are by %q: run demo tune on this machine", i, j, was, is)
			}
		}
	}
	return nil
}
