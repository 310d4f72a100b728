package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/flags/check/axiom"
	"github.com/fenceline/fenceline/flags/check/litmus"
)

// Verdict is what a search says about a litmus test. It is OK when the search agrees with the test.
type Verdict struct {
	Seen      []string // forbidden lines that some execution fulfilled, and always lines that some did not
	Missing   []string // allowed lines that none fulfilled: a reason to doubt only after a wide search
	Race      string   // the disagreement about races, "" if there is none
	Other     []string // findings that no litmus test expects: deadlock, fault
	Permitted []Permitted
}

// Permitted is what became of a permitted line. A search that does not come to it says nothing against it; the axioms do.
type Permitted struct {
	Line string    `json:"line"`
	By   Permitter `json:"by"`
	Why  string    `json:"why,omitempty"` // nobody knows
}

// Permitter is what a permitted line was judged by.
type Permitter string

// Permitters.
const (
	BySearch Permitter = "seen"   // some execution fulfilled it
	ByAxioms Permitter = "axioms" // none did, and the axioms allow it
	Denied   Permitter = "denied" // the axioms forbid it: the test is wrong
	Unjudged Permitter = "nobody" // none did, and the axioms cannot be asked
)

// OK says that nothing contradicts the test, and that all it allows was reached.
func (v *Verdict) OK() bool { return v.Sound() && len(v.Missing) == 0 && v.Race == "" }

// Sound says that nothing forbidden was seen, and nothing is permitted that the axioms forbid.
func (v *Verdict) Sound() bool {
	return len(v.Seen) == 0 && len(v.Other) == 0 && v.permitted(Denied) == 0
}

// Unseen says that the model has outcomes which no execution of the search had.
func (v *Verdict) Unseen() bool { return v.permitted(ByAxioms) > 0 }

// permitted counts the permitted lines that were judged so.
func (v *Verdict) permitted(by Permitter) (n int) {
	for i := range v.Permitted {
		if v.Permitted[i].By == by {
			n++
		}
	}
	return n
}

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
	for _, p := range v.Permitted {
		if p.By == Denied {
			parts = append(parts, "the axioms forbid "+p.Line)
		}
	}
	if v.Race != "" {
		parts = append(parts, v.Race)
	}
	return strings.Join(append(parts, v.Other...), "; ")
}

// Run searches the test's executions and judges what was found, all of them unless ctx ends: then the verdict is on what was found
// until then, and comes with ctx's error.
func (l *Litmus) Run(ctx context.Context, o Options) (Verdict, *Result, error) {
	p, err := l.Program()
	if err != nil {
		return Verdict{}, nil, err
	}
	o.NoFix = true
	r, err := Check(ctx, p, o)
	if r == nil {
		return Verdict{}, nil, err
	}
	v := l.Judge(r)
	if err != nil { // what was not reached may yet be
		v.Missing, v.Permitted = nil, nil
		return v, r, err
	}
	l.ask(ctx, &v)
	return v, r, nil
}

// ask has the axioms judge the permitted lines that no execution fulfilled.
func (l *Litmus) ask(ctx context.Context, v *Verdict) {
	if v.permitted(Unjudged) == 0 {
		return
	}
	a, err := axiom.AnalyzeContext(ctx, l.Test)
	k := 0
	for i := range l.Expect {
		e := &l.Expect[i]
		if e.Mode != litmus.Permitted {
			continue
		}
		p := &v.Permitted[k]
		k++
		allowed := false
		if a != nil { // with an error, some of the outcomes
			for key := range a.Outcomes {
				allowed = allowed || e.Holds(OutcomeValues(key))
			}
		}
		switch {
		case p.By != Unjudged:
		case allowed:
			p.By, p.Why = ByAxioms, ""
		case err != nil:
			p.Why = fmt.Sprintf("the axioms cannot be asked: %v", err)
		default:
			p.By, p.Why = Denied, ""
		}
	}
}

// Judge compares a result with what the test expects. Of permitted lines it knows only those that some execution fulfilled.
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
		case e.Mode == litmus.Permitted && met == "":
			v.Permitted = append(v.Permitted, Permitted{line, Unjudged, "no execution fulfilled it, and the axioms were not asked"})
		case e.Mode == litmus.Permitted:
			v.Permitted = append(v.Permitted, Permitted{line, BySearch, ""})
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
