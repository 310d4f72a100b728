package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/ptx"
	"github.com/fenceline/fenceline/kernels"
)

var parsedModules = map[string]*ptx.Module{}

// shippedCase is the program of a case, and the module it runs.
func shippedCase(t testing.TB, c *kernels.Case) *Program {
	t.Helper()
	mod, err := c.Module()
	require.NoError(t, err)
	m := parsedModules[mod.File]
	if m == nil {
		text, err := mod.Text()
		require.NoError(t, err)
		m, err = ptx.Parse(mod.File, text)
		require.NoError(t, err)
		parsedModules[mod.File] = m
	}
	text, err := c.SpecText()
	require.NoError(t, err)
	spec, err := ParseSpec(c.Spec+".spec", string(text))
	require.NoError(t, err)
	p, err := spec.Program(m, c.Params())
	require.NoError(t, err)
	p.Lines = kernels.Lines
	return p
}

// Every shipped case can be built, and no two are the same.
func TestShippedCases(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range kernels.Cases() {
		require.False(t, seen[c.Name()], c.Name())
		seen[c.Name()] = true
		p := shippedCase(t, &c)
		require.NotNil(t, p.Final, c.Name())
		require.NotEmpty(t, p.Tasks)
	}
}
