package axiom_test

import (
	"testing"

	"github.com/fenceline/fenceline/flags/check/axiom"
	"github.com/fenceline/fenceline/flags/check/litmus"
	"github.com/stretchr/testify/require"
)

func TestCycles(t *testing.T) {
	tests, err := axiom.Cycles(4, 1)
	require.NoError(t, err)
	again, err := axiom.Cycles(4, 1)
	require.NoError(t, err)
	require.Equal(t, tests, again)
	modes, races := map[litmus.Mode]int{}, map[litmus.Racy]int{}
	for _, l := range tests {
		modes[l.Expect[0].Mode]++
		races[l.Race]++
		a, err := axiom.Analyze(l)
		require.NoError(t, err)
		require.Empty(t, disagreements(l, a), l.Name)
	}
	require.Greater(t, len(tests), 200)
	require.Greater(t, modes[litmus.Forbidden], len(tests)/20)
	require.Greater(t, modes[litmus.Allowed], len(tests)/20)
	t.Logf("%d tests of %d shapes: %v, races %v", len(tests), len(axiom.Shapes()), modes, races)
}
