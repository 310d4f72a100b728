package axiom_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags/check"
	"github.com/fenceline/fenceline/flags/check/axiom"
)

// The engine shows what the axioms allow: nothing else, and nearly all of it.
func TestEngine(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.litmus")
	require.NoError(t, err)
	n, allowed, reached := 0, 0, 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		tests, err := check.ParseLitmus(filepath.Base(f), text)
		require.NoError(t, err)
		for _, l := range tests {
			n++
			v, r, err := l.Run(t.Context(), check.Options{Strategy: check.Exhaustive, Executions: 100000})
			require.NoError(t, err, l.Name)
			vr, q, err := l.Run(t.Context(), check.Options{Executions: 2000})
			require.NoError(t, err, l.Name)
			if !v.OK() || !vr.Sound() {
				t.Logf("%s:%d %s: exhaustive %v; random %v; %v", filepath.Base(f), l.Line, l.Name, v.String(), vr.String(), r.Why)
			}
			require.True(t, v.Sound() && vr.Sound(), l.Name)
			require.Empty(t, v.Race, l.Name)
			require.Empty(t, v.Missing, l.Name)
			a, err := axiom.Analyze(l.Test)
			if err != nil {
				continue
			}
			for _, res := range []*check.Result{r, q} {
				for o := range res.Outcomes {
					if !a.Outcomes[o] {
						t.Errorf("%s: the engine shows %s, which the axioms forbid", l.Name, o)
					}
				}
			}
			var gaps []string
			for o := range a.Outcomes {
				allowed++
				if r.Outcomes[o] > 0 {
					reached++
				} else {
					gaps = append(gaps, o)
				}
			}
			slices.Sort(gaps)
			if len(gaps) > 0 {
				t.Logf("%s: not reached: %q", l.Name, gaps)
			}
		}
	}
	t.Logf("%d tests, %d of %d allowed outcomes reached", n, reached, allowed)
	require.GreaterOrEqual(t, n, 120)
	require.GreaterOrEqual(t, 100*reached, 97*allowed)
}

// The same of tests made from cycles, which nobody chose.
func TestEngineCycles(t *testing.T) {
	per := 8
	if testing.Short() {
		per = 2
	}
	tests, err := axiom.Cycles(per, 7)
	require.NoError(t, err)
	allowed, reached, unsound, races := 0, 0, 0, 0
	for _, l := range tests {
		a, err := axiom.Analyze(l)
		require.NoError(t, err)
		e := &check.Litmus{Test: l}
		p, err := e.Program()
		require.NoError(t, err)
		all, err := check.Check(t.Context(), p, check.Options{Strategy: check.Exhaustive, Executions: 20000, NoFix: true})
		require.NoError(t, err)
		some, err := check.Check(t.Context(), p, check.Options{Executions: 500, NoFix: true})
		require.NoError(t, err)
		for _, r := range []*check.Result{all, some} {
			for o := range r.Outcomes {
				if !a.Outcomes[o] {
					unsound++
					t.Errorf("%s: the engine shows %s, which the axioms forbid\n%s", l.Name, o, e.PTX())
				}
			}
		}
		var gaps []string
		for o := range a.Outcomes {
			allowed++
			if all.Outcomes[o]+some.Outcomes[o] > 0 {
				reached++
			} else {
				gaps = append(gaps, o)
			}
		}
		slices.Sort(gaps)
		if len(gaps) > 0 {
			t.Logf("%s: not reached: %q of %d", l.Name, gaps, len(a.Outcomes))
		}
		if v := e.Judge(all); v.Race != "" {
			races++
			t.Logf("%s: %s", l.Name, v.Race)
		}
		if unsound > 5 {
			break
		}
	}
	t.Logf("%d tests: %d of %d allowed outcomes reached, %d disagreements about races", len(tests), reached, allowed, races)
	require.GreaterOrEqual(t, 100*reached, 97*allowed)
	require.Zero(t, races)
}
