package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/flags/check/litmus"
)

// Verdict is what a search says about a litmus test. It is OK when the search agrees with the test.
type Verdict struct {
	Seen    []string // forbidden lines that some execution fulfilled, and always lines that some did not
	Missing []string // allowed lines that none fulfilled: a reason to doubt only after a wide search
	Race    string   // the disagreement about races, "" if there is none
	Other   []string // findings that no litmus test expects: deadlock, fault
}

// OK says that nothing contradicts the test, and that all it allows was reached.
func (v *Verdict) OK() bool { return v.Sound() && len(v.Missing) == 0 && v.Race == "" }

// Sound says that nothing forbidden was seen.
func (v *Verdict) Sound() bool { return len(v.Seen) == 0 && len(v.Other) == 0 }

func (v *Verdict) String() string {
	if v.OK() {
		return "ok"
	}
	var parts []string
	for _, s := range v.Seen {
		parts = append(parts, "contradicted "+s)
	}
	for _, s := range v.Missing {
		parts = append(parts, "not reached "+s)
	}
	if v.Race != "" {
		parts = append(parts, v.Race)
	}
	return strings.Join(append(parts, v.Other...), "; ")
}

// Run searches the test's executions and judges what was found, all of them unless ctx ends.
func (l *Litmus) Run(ctx context.Context, o Options) (Verdict, *Result, error) {
	p, err := l.Program()
	if err != nil {
		return Verdict{}, nil, err
	}
	o.NoFix = true
	r, err := Check(ctx, p, o)
	if err != nil {
		return Verdict{}, nil, err
	}
	return l.Judge(r), r, nil
}

// Judge compares a result with what the test expects.
func (l *Litmus) Judge(r *Result) Verdict {
	v := l.judge(slices.Collect(maps.Keys(r.Outcomes)))
	race := litmus.No
	for i := range r.Findings {
		switch f := &r.Findings[i]; f.Kind {
		case MixedSize:
			race = litmus.Mixed
		case Race, Torn:
			race = max(race, litmus.Yes)
		default:
			v.Other = append(v.Other, fmt.Sprintf("%s: %s", f.Kind, f.Message))
		}
	}
	if l.Race != litmus.Unsaid && l.Race != race {
		v.Race = fmt.Sprintf("race: %v expected, %v found", l.Race, race)
	}
	return v
}

func (l *Litmus) judge(outcomes []string) (v Verdict) {
	slices.Sort(outcomes)
	for i := range l.Expect {
		e := &l.Expect[i]
		met := ""
		for _, key := range outcomes {
			holds := e.Holds(OutcomeValues(key))
			if holds && e.Mode != litmus.Always {
				met = key
			} else if !holds && e.Mode == litmus.Always {
				met = key
			}
		}
		line := fmt.Sprintf("`%v: %s` (line %d)", e.Mode, e.Text, e.Line)
		switch {
		case e.Mode == litmus.Allowed && met == "":
			v.Missing = append(v.Missing, line)
		case (e.Mode == litmus.Forbidden || e.Mode == litmus.Always) && met != "":
			v.Seen = append(v.Seen, fmt.Sprintf("%s by %q", line, met))
		}
	}
	return v
}

// OutcomeValues reads a key of Result.Outcomes.
func OutcomeValues(key string) []uint64 {
	var values []uint64
	for s := range strings.FieldsSeq(key) {
		v, _ := strconv.ParseUint(s, 10, 64)
		values = append(values, v)
	}
	return values
}
