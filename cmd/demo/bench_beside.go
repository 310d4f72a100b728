package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/plainfile"
)

// besideKind is in the first line of a file of --beside, which another program wrote: scripts/symm_mem_bench.py. The lines
// after it are rows, or remarks.
const besideKind = "fenceline-beside"

// besideNames are what rows of such a file may be called.
var besideNames = []string{"torch-oneshot", "torch-oneshot-copy", "torch-twoshot"}

// besideReport says where rows came from that were not measured here.
type besideReport struct {
	File    string   `json:"file"`
	Library string   `json:"library"`
	Devices []string `json:"devices"`
	Driver  string   `json:"driver"`
	Clock   string   `json:"clock"`
	Iters   int      `json:"iters"`
	Warmup  int      `json:"warmup"`
	Replays int      `json:"replays"`
	Rounds  int      `json:"rounds"`

	results []benchResult
	remarks []string
}

// besideLine is any line of the file.
type besideLine struct {
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	besideReport
	benchResult
	Note    string `json:"note"`
	Skipped string `json:"skipped"`
	Error   string `json:"error"`
}

// readBeside reads the file of --beside.
func readBeside(path string) (*besideReport, error) {
	wrong := func(line int, format string, args ...any) error {
		return usagef("--beside", path, "line %d: %s: let scripts/symm_mem_bench.py --out write the file", line, fmt.Sprintf(format, args...))
	}
	text, err := plainfile.Read(path, mostText)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usagef("--beside", path, "there is no such file: name one that scripts/symm_mem_bench.py --out wrote")
	case err != nil:
		return nil, &usageError{Flag: "--beside", Err: err}
	}
	var b *besideReport
	for i, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var l besideLine
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		err := dec.Decode(&l)
		switch {
		case err != nil:
			return nil, wrong(i+1, "%v", err)
		case l.Error != "": // the other program ended with it, perhaps before it began
			return nil, usagef("--beside", path, "what wrote it failed: %s: leave --beside out", l.Error)
		case i == 0 && (l.Kind != besideKind || l.Version != 1):
			return nil, wrong(1, "kind %q, version %d is not %q, version 1", l.Kind, l.Version, besideKind)
		case i == 0:
			b = &l.besideReport
			b.File = path
		case l.Note != "":
			b.remarks = append(b.remarks, l.Note)
		case l.Skipped != "":
			b.remarks = append(b.remarks, "skipped: "+l.Skipped)
		case !slices.Contains(besideNames, l.Name):
			return nil, wrong(i+1, "a row of %q, not of one of %s", l.Name, strings.Join(besideNames, ", "))
		case l.Bytes == 0 || l.Bytes != l.Count*l.DType.Size() || l.Out.Samples+l.In.Samples == 0:
			return nil, wrong(i+1, "%d bytes, %d elements, %d and %d samples", l.Bytes, l.Count, l.Out.Samples, l.In.Samples)
		default:
			b.results = append(b.results, l.benchResult)
		}
	}
	return b, nil
}

// loadBeside refuses what was measured on other devices.
func (r *benchRun) loadBeside() error {
	b := r.set.beside
	if b == nil {
		return nil
	}
	var here []string
	for _, d := range r.rep.Devices {
		here = append(here, d.Name)
	}
	for _, name := range b.Devices {
		if len(b.results) > 0 && !slices.Contains(here, name) {
			return usagef("--beside", b.File, "it was measured on %s, and this machine has %s: measure it here", name, strings.Join(slices.Compact(here), ", "))
		}
	}
	r.rep.Beside = b
	r.rep.note("%s stands beside it as it was measured apart, in processes of its own (%s)", b.Library, b.File)
	for _, s := range b.remarks {
		r.rep.note("%s: %s", b.File, s)
	}
	return nil
}

// besides are the rows of the file for one size.
func (r *benchRun) besides(w *worldReport, floor *floorReport, row row) (list []benchResult) {
	if r.rep.Beside == nil {
		return nil
	}
	for _, res := range r.rep.Beside.results {
		if res.Ranks != w.Ranks || res.Count != row.count || res.DType != row.dtype || w.Shared {
			continue
		}
		if res.FloorUS = floor.us(res.Bytes); res.FloorUS > 0 {
			res.Ratio = res.Out.TimeUS / res.FloorUS
		}
		list = append(list, res)
	}
	return list
}
