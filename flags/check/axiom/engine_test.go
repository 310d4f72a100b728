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
	n, allowed, reached, bad := 0, 0, 0, 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		tests, err := check.ParseLitmus(filepath.Base(f), text)
		require.NoError(t, err)
		for _, l := range tests {
			n++
			v, r, err := l.Run(check.Options{Strategy: check.Exhaustive, Executions: 100000})
			require.NoError(t, err, l.Name)
			vr, q, err := l.Run(check.Options{Executions: 2000})
			require.NoError(t, err, l.Name)
			if !v.OK() || !vr.Sound() {
				t.Logf("%s:%d %s: exhaustive %v; random %v; %v", filepath.Base(f), l.Line, l.Name, v.String(), vr.String(), r.Why)
			}
			if !v.OK() {
				bad++
			}
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
	t.Logf("%d tests, %d not as they say, %d of %d allowed outcomes reached", n, bad, reached, allowed)
}
