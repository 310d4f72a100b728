package axiom_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/flags/check/axiom"
	"github.com/fenceline/fenceline/flags/check/litmus"
	"github.com/stretchr/testify/require"
)

func suite(t testing.TB) []*litmus.Test {
	t.Helper()
	files, err := filepath.Glob("../testdata/*.litmus")
	require.NoError(t, err)
	var all []*litmus.Test
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		tests, err := litmus.Parse(filepath.Base(f), text)
		require.NoError(t, err)
		all = append(all, tests...)
	}
	return all
}

// disagreements is what a test says and the axioms deny.
func disagreements(t *litmus.Test, a *axiom.Answer) (list []string) {
	for i := range t.Expect {
		e := &t.Expect[i]
		some, every := "", true
		for key := range a.Outcomes {
			var values []uint64
			for s := range strings.FieldsSeq(key) {
				v, _ := strconv.ParseUint(s, 10, 64)
				values = append(values, v)
			}
			if e.Holds(values) {
				some = key
			} else {
				every = false
			}
		}
		line := e.Mode.String() + ": " + e.Text
		switch {
		case e.Mode == litmus.Forbidden && some != "":
			list = append(list, line+" — the axioms allow "+some)
		case (e.Mode == litmus.Allowed || e.Mode == litmus.Permitted) && some == "":
			list = append(list, line+" — the axioms forbid it")
		case e.Mode == litmus.Always && !every:
			list = append(list, line+" — the axioms allow otherwise")
		}
	}
	if t.Race != litmus.Unsaid && t.Race != a.Race {
		list = append(list, "race: "+t.Race.String()+" — the axioms say "+a.Race.String())
	}
	return list
}

// Every test says what the axioms say.
func TestSuite(t *testing.T) {
	all, loops := suite(t), 0
	names := map[string]bool{}
	for _, l := range all {
		require.False(t, names[l.Name], "two tests are named %s", l.Name)
		names[l.Name] = true
		if l.Loops() {
			loops++
		}
		t.Run(l.Name, func(t *testing.T) {
			a, err := axiom.Analyze(l)
			require.NoError(t, err)
			require.NotZero(t, a.Executions)
			for _, d := range disagreements(l, a) {
				t.Errorf("%s:%d: %s (outcomes %v)", l.File, l.Line, d, a.Outcomes)
			}
		})
	}
	t.Logf("%d tests, %d with loops", len(all), loops)
}
