package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

// reportVersion is the version of the JSON form.
const reportVersion = 1

// machineReport is what `demo devices` prints, and the head of a run's report.
type machineReport struct {
	Version int           `json:"version"`
	Backend launcher.Info `json:"backend"`
	Devices []topo.Device `json:"devices"`
	P2P     [][]topo.Pair `json:"p2p"` // p2p[i][j]: device i reaching the memory of device j
	Notes   []string      `json:"notes,omitempty"`

	machine *topo.Machine
}

// note adds a remark, once.
func (r *machineReport) note(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, s) {
		r.Notes = append(r.Notes, s)
	}
}

// runReport is the whole of a run. Text and JSON are both printed from it.
type runReport struct {
	machineReport
	World       worldReport       `json:"world"`
	Knobs       allreduce.Knobs   `json:"knobs,omitzero"`        // from the environment
	Measurement *topo.Measurement `json:"measurement,omitempty"` // what probing found; absent when claims decided
	Seed        uint64            `json:"seed"`
	TimeoutMS   float64           `json:"timeout_ms"`
	Clock       string            `json:"clock"` // how times were taken
	Results     []result          `json:"results"`
	Absent      *absentReport     `json:"absent,omitempty"`
	Error       string            `json:"error,omitempty"` // what ended the run early
	OK          bool              `json:"ok"`
}

// worldReport places the ranks.
type worldReport struct {
	Ranks   int    `json:"ranks"`
	Devices []int  `json:"devices"` // of each rank
	Shared  bool   `json:"shared"`  // several ranks on one device
	Why     string `json:"why"`     // why so many, in words
}

// result is one line of the table. Wrong counts are summed over the ranks; 0 is right.
type result struct {
	Bytes  uint64          `json:"bytes"` // per rank
	Count  uint64          `json:"count"` // elements
	DType  allreduce.DType `json:"dtype"`
	Redop  string          `json:"redop"`
	Plan   allreduce.Plan  `json:"plan"`
	Iters  int             `json:"iters"`   // calls timed
	TimeUS float64         `json:"time_us"` // median, of one call on all ranks, out of place
	AlgBW  float64         `json:"algbw"`   // bytes / time, in GB/s (10^9)
	BusBW  float64         `json:"busbw"`   // algbw × 2(n-1)/n

	Wrong        uint64 `json:"wrong"`          // elements that differ in bits from the reference, out of place
	WrongInPlace uint64 `json:"wrong_in_place"` // the same, in place
	Stray        uint64 `json:"stray_bytes"`    // bytes changed outside of the outputs: guards, and inputs out of place
	RanksEqual   bool   `json:"ranks_equal"`    // all ranks have the same bits
	First        string `json:"first,omitempty"`
}

func (r *result) right() bool {
	return r.Wrong == 0 && r.WrongInPlace == 0 && r.Stray == 0 && r.RanksEqual
}

// rate fills the bandwidths from the time.
func (r *result) rate(ranks int) {
	if r.TimeUS > 0 {
		r.AlgBW = float64(r.Bytes) / (r.TimeUS * 1e3)
	}
	r.BusBW = r.AlgBW * 2 * float64(ranks-1) / float64(ranks)
}

// absentReport is the demonstration of a rank that never arrives.
type absentReport struct {
	Rank    int             `json:"rank"`
	Others  []absentWitness `json:"others"`
	Refused bool            `json:"refused"` // the group took no more work
	Refusal string          `json:"refusal"`
	Rebuilt bool            `json:"rebuilt"` // a new group on the same runtime then gave right results
}

// absentWitness is what one of the others saw.
type absentWitness struct {
	Rank    int     `json:"rank"`
	AfterMS float64 `json:"after_ms"`
	Error   string  `json:"error"`
	Names   bool    `json:"names"`   // the error names the absent rank
	InTime  bool    `json:"in_time"` // it came within the timeout
}

// shown is whether everything went as it must when a rank is absent.
func (r *absentReport) shown() bool {
	ok := r.Refused && r.Rebuilt && len(r.Others) > 0
	for _, w := range r.Others {
		ok = ok && w.Names && w.InTime
	}
	return ok
}

func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
