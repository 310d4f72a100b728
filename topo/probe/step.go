package probe

import (
	"cmp"
	"context"
	"fmt"

	"github.com/fenceline/fenceline/topo"
)

// access is the peer access that a step runs with.
type access int

const (
	withNone access = iota
	withOne         // From reaches To
	withBoth        // and To reaches From
)

// step is one kind of probe. One of check and measure is set.
type step struct {
	name   string
	access access
	// needs says why the step cannot be made after what was found so far of the pair and of the opposite one; "" if
	// it can. same: both are one device.
	needs   func(m, back *topo.Measured, claim topo.Pair, same bool) string
	check   func(ctx context.Context, s *session) (topo.Check, error)
	measure func(ctx context.Context, s *session) (float64, error)
	// field is where the outcome goes: a *topo.Check or a *float64.
	field func(m *topo.Measured) any
}

func (s *step) number() bool { return s.measure != nil }

func yes(c topo.Check) bool { return c.Answer == topo.Yes }

// lacking says that a check which others build on is not good; works is what it is for: "reads work".
func lacking(c topo.Check, fails, works string) string {
	switch c.Answer {
	case topo.Yes:
		return ""
	case topo.No:
		return fails
	}
	return "it is not known whether " + works
}

func noReads(m *topo.Measured) string { return lacking(m.Read, "reads do not work", "reads work") }
func noWrites(m *topo.Measured) string {
	return lacking(m.Write, "writes do not arrive", "writes arrive")
}

func needNothing(_, _ *topo.Measured, _ topo.Pair, _ bool) string { return "" }

// denied is what NVML says against a capability. Kernels would hang, fault or read garbage if they tried all the same.
func denied(t topo.Tri, c topo.Code, what string, same bool) string {
	if t != topo.No || same {
		return ""
	}
	return fmt.Sprintf("%s is stated as not supported (%s)", what, cmp.Or(c, topo.CodeNS))
}

func needReadClaim(_, _ *topo.Measured, claim topo.Pair, same bool) string {
	return denied(claim.Read, claim.ReadCode, "reading", same)
}

func needWriteClaim(_, _ *topo.Measured, claim topo.Pair, same bool) string {
	return denied(claim.Write, claim.WriteCode, "writing", same)
}

func needWrite(m, _ *topo.Measured, _ topo.Pair, _ bool) string { return noWrites(m) }

func needAtomics(m, _ *topo.Measured, claim topo.Pair, same bool) string {
	if !same && claim.NativeAtomics == topo.No {
		return "the driver claims no native atomics"
	}
	return cmp.Or(noWrites(m), noReads(m))
}

func needRead(m, _ *topo.Measured, _ topo.Pair, _ bool) string { return noReads(m) }

func needReads(m, back *topo.Measured, _ topo.Pair, _ bool) string {
	if why := noReads(m); why != "" {
		return why
	}
	if !yes(back.Read) {
		return "reads in the opposite direction do not work, or were not checked"
	}
	return ""
}

func needFlags(m, back *topo.Measured, _ topo.Pair, _ bool) string {
	switch {
	case !yes(m.Flags):
		return "flags do not work"
	case !yes(back.Flags):
		return "flags in the opposite direction do not work, or were not checked"
	}
	return ""
}

// steps in the order in which a pair is probed: what is likeliest to hang or fault comes late, what later ones need
// comes early.
var steps = []step{
	{name: "write", access: withOne, needs: needWriteClaim, check: checkWrite,
		field: func(m *topo.Measured) any { return &m.Write }},
	{name: "read", access: withOne, needs: needReadClaim, check: checkRead,
		field: func(m *topo.Measured) any { return &m.Read }},
	{name: "flags", access: withOne, needs: needWrite, check: checkFlags,
		field: func(m *topo.Measured) any { return &m.Flags }},
	{name: "atomics", access: withOne, needs: needAtomics, check: checkAtomics,
		field: func(m *topo.Measured) any { return &m.Atomics }},
	{name: "copy_nop2p", access: withNone, needs: needNothing, measure: copyRate(false),
		field: func(m *topo.Measured) any { return &m.CopyNoP2P }},
	{name: "both_nop2p", access: withNone, needs: needNothing, measure: copyRate(true),
		field: func(m *topo.Measured) any { return &m.BothNoP2P }},
	{name: "copy", access: withOne, needs: needRead, measure: copyRate(false),
		field: func(m *topo.Measured) any { return &m.CopyRate }},
	{name: "copy_both", access: withBoth, needs: needReads, measure: copyRate(true),
		field: func(m *topo.Measured) any { return &m.CopyBoth }},
	{name: "kernel", access: withOne, needs: needRead, measure: kernelRate(false),
		field: func(m *topo.Measured) any { return &m.KernelRate }},
	{name: "kernel_both", access: withBoth, needs: needReads, measure: kernelRate(true),
		field: func(m *topo.Measured) any { return &m.KernelBoth }},
	{name: "load_latency", access: withOne, needs: needRead, measure: loadLatency,
		field: func(m *topo.Measured) any { return &m.LoadLatency }},
	{name: "flag_latency", access: withBoth, needs: needFlags, measure: flagLatency,
		field: func(m *topo.Measured) any { return &m.FlagLatency }},
}

// Checks is how many of Steps are checks; the rest are numbers.
const Checks = 4

// Steps are the names of the probes, in the order in which a pair is probed.
func Steps() []string {
	names := make([]string, len(steps))
	for i := range steps {
		names[i] = steps[i].name
	}
	return names
}

func findStep(name string) *step {
	for i := range steps {
		if steps[i].name == name {
			return &steps[i]
		}
	}
	return nil
}

// apply puts a result where it belongs. A step that does not exist is left out.
func (r Result) apply(pairs [][]topo.Measured) {
	st := findStep(r.Step)
	if st == nil {
		return
	}
	switch f := st.field(&pairs[r.Pair.From][r.Pair.To]).(type) {
	case *topo.Check:
		if r.Check != nil {
			*f = *r.Check
		}
	case *float64:
		*f = r.Value
	}
}
