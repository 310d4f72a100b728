package examples

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags/check"
	"github.com/fenceline/fenceline/internal/ptx"
)

func program(t *testing.T, e *Example, set map[string]string) *check.Program {
	t.Helper()
	name, text, err := e.PTX()
	require.NoError(t, err)
	m, err := ptx.Parse(name, text)
	require.NoError(t, err)
	specName, specText, err := e.Spec()
	require.NoError(t, err)
	s, err := check.ParseSpec(specName, string(specText))
	require.NoError(t, err)
	p, err := s.Program(m, set)
	require.NoError(t, err)
	p.Lines, p.Calls = check.LinesOf(name, text)
	p.Stronger = s.Fixer(name, text, set)
	return p
}

// What is right is found right, what is broken broken, with lines of the source.
func TestExamples(t *testing.T) {
	for _, e := range Examples() {
		t.Run(e.Name, func(t *testing.T) {
			for _, strategy := range []check.Strategy{check.Random, check.PCT} {
				for _, world := range []string{"2", "3"} {
					p := program(t, &e, map[string]string{"world": world})
					r, err := check.Check(t.Context(), p, check.Options{Strategy: strategy, Executions: 400, NoFix: true})
					require.NoError(t, err)
					if !e.Fault {
						require.Empty(t, r.Findings, "%v", r.Findings)
						continue
					}
					require.NotEmpty(t, r.Findings)
					f := r.Findings[0]
					t.Log(f.String())
					if f.B != nil {
						require.NotZero(t, f.B.SourceLine)
					}
				}
			}
		})
	}
}

// Every file belongs to an example.
func TestListed(t *testing.T) {
	listed := map[string]bool{}
	for _, e := range Examples() {
		listed[e.Name] = true
	}
	files, err := fs.Glob(Files, "*")
	require.NoError(t, err)
	for _, f := range files {
		if ext := filepath.Ext(f); ext != ".cuh" {
			require.True(t, listed[strings.TrimSuffix(f, ext)], f)
		}
	}
}

// The PTX is that of the sources.
func TestBuilt(t *testing.T) {
	clang := os.Getenv("CLANG")
	if clang == "" {
		clang = "clang-19"
	}
	if _, err := exec.LookPath(clang); err != nil {
		t.Skipf("%s is absent: %v", clang, err)
	}
	dir := t.TempDir()
	out, err := exec.Command("./build.sh", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, e := range Examples() {
		name, text, err := e.PTX()
		require.NoError(t, err)
		fresh, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, string(fresh), string(text), "%s: run flags/check/examples/build.sh", name)
	}
}
