package launcher

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// go doc shows nothing of a type behind an alias, so the alias's comment lists the exported fields, all of them,
// with their types.
func TestAliasesListTheirFields(t *testing.T) {
	types := map[string]reflect.Type{}
	for name, v := range map[string]any{"Device": Device{}, "P2PInfo": P2PInfo{}, "DriverError": DriverError{}, "FaultError": FaultError{},
		"PTXError": PTXError{}, "Signature": Signature{}, "Param": Param{}, "KernelInfo": KernelInfo{}, "Dim3": Dim3{}, "LaunchConfig": LaunchConfig{}} {
		types[name] = reflect.TypeOf(v)
	}
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	if len(sources) == 0 {
		t.Skip("the sources are not here: running outside the source tree")
	}
	seen := 0
	for _, name := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			spec := g.Specs[0].(*ast.TypeSpec)
			if !spec.Assign.IsValid() || !spec.Name.IsExported() {
				continue
			}
			typ, known := types[spec.Name.Name]
			require.True(t, known, "%s is an alias that this test does not know", spec.Name)
			seen++
			for i := range typ.NumField() {
				f := typ.Field(i)
				of := strings.NewReplacer("gpu.", "", "ptx.", "", "uint8", "byte").Replace(f.Type.String())
				line := regexp.MustCompile(`(?m)^\t([A-Z]\w*, )*` + f.Name + `(, [A-Z]\w*)*\s+` + regexp.QuoteMeta(of) + `($|\s)`)
				require.Regexp(t, line, g.Doc.Text(), "%s: field %s %s", spec.Name, f.Name, of)
			}
		}
	}
	require.Equal(t, len(types), seen)
}
