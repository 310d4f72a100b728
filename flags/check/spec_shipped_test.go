package check

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
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
		require.Empty(t, p.Unasserted, c.Name())
		require.NotEmpty(t, p.Tasks)
	}
}

// What a spec expects of a sum is what the library computes.
func TestSumIsReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 5000 {
		for _, dt := range allreduce.DTypes() {
			typ := typeNamed(dt.String())
			elems := make([]uint64, 1+n%4)
			in := make([][]byte, len(elems))
			for i := range elems {
				elems[i] = rng.Uint64() >> (64 - 8*typ.size)
				in[i] = make([]byte, typ.size)
				typ.put(in[i], elems[i])
			}
			out := make([]byte, typ.size)
			require.NoError(t, allreduce.Reference(dt, out, in...))
			require.Equal(t, typ.get(out), typ.sum(elems), "%v %x", dt, elems)
		}
	}
}
