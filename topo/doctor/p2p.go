package doctor

import (
	"cmp"
	"fmt"

	"github.com/fenceline/fenceline/topo"
)

// codeRemedies say what an NVML answer to "can these two be peers" means for the owner.
var codeRemedies = map[topo.Code]string{
	topo.CodeCNS: "CNS: the chipset is not supported by the driver; other mainboards are",
	topo.CodeGNS: "GNS: NVIDIA's driver offers no peer access for this GPU model; copies and host staging remain",
	topo.CodeTNS: "TNS: put both cards under one CPU socket, or better under one PCIe switch",
	topo.CodeDR:  "DR: a registry key disables it: look for RegistryDwords in /etc/modprobe.d and take it out",
	topo.CodeNS:  "NS: not supported, no reason given; check MIG, virtualisation and that both cards are of one model",
}

// tally groups pairs by what is wrong with them.
type tally struct {
	pairs   map[string][]string // kind → pairs
	remedy  map[string]string
	example map[string]string // kind → evidence of the first pair
}

func (t *tally) add(kind, pair, example, remedy string) {
	if t.pairs[kind] == nil {
		t.example[kind] = example
	}
	t.pairs[kind] = append(t.pairs[kind], pair)
	if t.remedy[kind] == "" {
		t.remedy[kind] = remedy
	}
}

// The kinds, the worst first.
const (
	kindLies     = "claimed, and reading and writing fail"
	kindFlags    = "flags overtake their data or do not arrive"
	kindNoReads  = "claimed, reading fails and writing works"
	kindNoWrites = "claimed, writing fails and reading works"
	kindWrites   = "writing is claimed, reading is not"
	kindOneWay   = "reached in the other direction only"
	kindMIG      = "MIG instances, which have no peer access"
	kindNone     = "no peer access"
	kindUnasked  = "claimed, not probed"
	kindUnknown  = "nothing is known"
	kindGood     = "probed, good"
)

var kinds = []struct {
	name   string
	status Status
}{
	{kindLies, Fail}, {kindFlags, Fail}, {kindNoReads, Warn}, {kindNoWrites, Warn}, {kindWrites, Warn}, {kindOneWay, Warn}, {kindMIG, Warn}, {kindNone, Warn},
	{kindUnasked, Unknown}, {kindUnknown, Unknown}, {kindGood, OK},
}

const (
	mend   = "look at the findings on IOMMU, ACS and BAR1, then update BIOS and driver"
	unused = mend + "; until then the pair is not used directly"
	pushed = mend + "; until then peers are only written to, by kernels that push, where all pairs can be"
	whole  = "MIG instances have no peer access, not even two of one GPU, so data goes through host memory; " +
		"for peer access use whole GPUs: turn MIG off (nvidia-smi -i N -mig 0) on those that are to work together"
)

func checkP2P(h *host, f *Finding) {
	m := h.o.Machine
	switch {
	case m == nil:
		f.conclude(Unknown, "no machine was described", "run demo doctor with a driver, or demo topo --from FILE")
		return
	case len(m.Devices) < 2:
		f.conclude(Skipped, "one device: there is no pair")
		return
	}
	if m.Emulated {
		f.see("driver", "emulated devices: this says nothing of any GPU")
	}
	if h.stale != "" {
		f.see("probe", "not counted: %s", h.stale)
	}
	meas := h.measured()
	t := tally{map[string][]string{}, map[string]string{}, map[string]string{}}
	for i, row := range m.Pairs {
		for j, p := range row {
			if i == j {
				continue
			}
			var got topo.Measured
			if meas != nil && i < len(meas.Pairs) && j < len(meas.Pairs[i]) {
				got = meas.Pairs[i][j]
			}
			var back topo.Pair
			if j < len(m.Pairs) && i < len(m.Pairs[j]) { // a machine made by hand may be ragged
				back = m.Pairs[j][i]
			}
			kind, example, remedy := judgePair(p, back, got)
			if kind == kindNone && (m.Devices[i].MIG == topo.Yes || j < len(m.Devices) && m.Devices[j].MIG == topo.Yes) {
				kind, remedy = kindMIG, whole
			}
			t.add(kind, fmt.Sprintf("%d→%d", i, j), example, remedy)
		}
	}
	for _, k := range kinds {
		pairs := t.pairs[k.name]
		if len(pairs) == 0 {
			continue
		}
		example := t.example[k.name]
		if len(pairs) > 1 {
			example = pairs[0] + ": " + example
		}
		f.see("pair "+names(pairs), "%s (%s)", k.name, example)
		f.conclude(k.status, fmt.Sprintf("%s: %s", plural(len(pairs), "pair"), k.name), t.remedy[k.name])
	}
}

// judgePair sets what is claimed of one direction against what was measured.
func judgePair(p, back topo.Pair, got topo.Measured) (kind, example, remedy string) {
	reads, writes := p.CanRead(), p.CanWrite()
	if reads == topo.No && writes == topo.No {
		code := p.ReadCode
		if code == "" || code.Tri() != topo.No {
			code = p.WriteCode
		}
		example = "the driver says no"
		if code != "" && code.Tri() == topo.No {
			example = "NVML says " + string(code)
		}
		if back.CanRead() == topo.Yes || back.CanWrite() == topo.Yes {
			return kindOneWay, example, "kernels that need both directions are not used; " + mend
		}
		if remedy = codeRemedies[code]; remedy == "" {
			remedy = "copies and host staging are used; cards under one PCIe switch or with NVLink have peer access"
		}
		return kindNone, example, remedy
	}
	r, w, fl := got.Read, got.Write, got.Flags
	if reads == topo.No && r.Answer == topo.Unknown {
		example = "reading: no"
		if p.ReadCode.Tri() == topo.No {
			example = "reading: NVML says " + string(p.ReadCode)
		}
		return kindWrites, example, cmp.Or(codeRemedies[p.ReadCode], "peers are only written to, by kernels that push, where all pairs can be")
	}
	switch {
	case r.Answer == topo.No && w.Answer == topo.No:
		return kindLies, "reading: " + told(r) + "; writing: " + told(w), unused
	case r.Answer == topo.No && w.Answer != topo.Yes, r.Answer == topo.No && fl.Answer == topo.No:
		return kindLies, "reading: " + told(r) + "; writing: " + told(w) + "; flags: " + told(fl), unused
	case fl.Answer == topo.No:
		return kindFlags, "flags: " + told(fl), unused
	case r.Answer == topo.No:
		return kindNoReads, "reading: " + told(r), pushed
	case w.Answer == topo.No:
		return kindNoWrites, "writing: " + told(w), unused
	case pairState(got) == topo.Yes:
		return kindGood, "read, write and flags", ""
	case reads == topo.Unknown && writes == topo.Unknown:
		return kindUnknown, "neither driver nor NVML answered", "run demo probe"
	}
	return kindUnasked, "the driver says yes", "run demo probe: a claim is not believed until it is"
}

// told is a probe's outcome: a wrong value is shown even where the probe gave words.
func told(c topo.Check) string {
	s := c.String()
	if c.Answer == topo.No && c.Detail != "" && c.Expected != c.Got {
		s += fmt.Sprintf(" (expected %#x, got %#x at offset %d)", c.Expected, c.Got, c.Offset)
	}
	return s
}
