// Package archtest holds the direction of imports: cmd, capi → allreduce → launcher, topo, flags, kernels
// → internal. It has tests only.
package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/fenceline/fenceline"
	goNVML = "github.com/NVIDIA/go-nvml"
)

// pkg is one package of the module.
type pkg struct {
	ImportPath  string
	Imports     []string // direct
	Deps        []string // direct and, through our packages, indirect
	TestImports []string // of its test files
}

// name is the path inside the module: "topo/nvml".
func (p pkg) name() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// under is whether path is one of the trees or inside it. "topo" holds "topo/nvml", not "topology".
func under(path string, trees ...string) bool {
	return slices.ContainsFunc(trees, func(t string) bool { return path == t || strings.HasPrefix(path, t+"/") })
}

// rule says that packages of the trees in from may import, of ours, only what only lists (when set), and
// nothing of never.
type rule struct {
	from   []string
	except []string // trees inside from to which the rule does not apply
	only   []string
	never  []string
	reason string
}

// above are the packages that nothing below them may know.
var above = []string{"allreduce", "capi", "cmd", "examples", "python"}

var rules = []rule{
	{from: []string{"internal/gpu"}, except: []string{"internal/gpu/gputest"}, only: []string{"internal/gpu"},
		reason: "the seam is what both drivers and everything above them share; it can depend on neither"},
	{from: []string{"internal/ptx"}, only: []string{"internal/ptx"},
		reason: "the PTX engine owns what instructions mean; devices, memory and kernels are its callers' business"},
	{from: []string{"internal/child"}, only: []string{"internal/child"},
		reason: "a child process is run the same way whatever it does; what it says is its callers' business"},
	{from: []string{"internal/plainfile"}, only: []string{"internal/plainfile"},
		reason: "a file is read the same way whatever is in it"},
	{from: []string{"internal/inuse"}, only: []string{"internal/inuse"},
		reason: "a handle in use is guarded the same way whatever it stands for"},
	{from: []string{"internal/cuda", "internal/emu"}, only: []string{"internal"},
		reason: "a driver implements the seam and knows nothing of what runs on it"},
	{from: []string{"internal/nccl"}, except: []string{"internal/nccl/nccltest"}, only: []string{"internal/nccl", "internal/inuse"},
		reason: "NCCL takes addresses and streams; what calls it decides whose"},
	{from: []string{"launcher", "topo", "kernels", "flags", "internal/cuda", "capi", "examples"}, never: []string{"internal/nccl"},
		reason: "NCCL is one algorithm of allreduce, and nothing else goes over it"},
	{from: []string{"allreduce", "cmd"}, never: []string{"internal/nccl/nccltest"},
		reason: "what stands in for NCCL is for tests"},
	{from: []string{"internal/emu"}, never: []string{"internal/cuda"},
		reason: "the emulator must build and run without cgo"},
	{from: []string{"internal/cuda"}, never: []string{"internal/emu", "internal/ptx"},
		reason: "the real driver leaves PTX to the GPU's own compiler"},
	{from: []string{"kernels", "flags", "topo"}, never: append([]string{"launcher"}, above...),
		reason: "kernels, flags and topo are described without a runtime; the launcher and allreduce use them, not the reverse"},
	{from: []string{"launcher"}, never: above,
		reason: "the launcher runs anyone's PTX and must not know our collectives"},
	{from: []string{"allreduce"}, never: []string{"capi", "cmd", "examples", "python"},
		reason: "allreduce is a library; programs and bindings stand on it"},
	{from: []string{"capi"}, never: []string{"cmd", "examples"}, reason: "the C ABI stands on allreduce alone"},
}

// mayReachNVML are the only packages that may contain go-nvml.
var mayReachNVML = []string{"topo/nvml", "cmd"}

const nvmlReason = "go-nvml's linker flags (--unresolved-symbols, --export-dynamic) break a C shared library that contains it and " +
	"hide missing C symbols, so only topo/nvml imports it, and only programs import topo/nvml"

// violations checks packages against the rules and returns one line for each breach, with the reason.
func violations(pkgs []pkg) []string {
	var bad []string
	for _, p := range pkgs {
		for _, imp := range p.Imports {
			if !under(imp, module) {
				continue
			}
			target := strings.TrimPrefix(imp, module+"/")
			for _, r := range rules {
				if !under(p.name(), r.from...) || under(p.name(), r.except...) {
					continue
				}
				if r.only != nil && !under(target, r.only...) || under(target, r.never...) {
					bad = append(bad, fmt.Sprintf("%s imports %s: %s", p.name(), target, r.reason))
				}
			}
		}
		for _, imp := range slices.Concat(p.Imports, p.TestImports) {
			if under(imp, goNVML) && !under(p.name(), "topo/nvml") {
				bad = append(bad, fmt.Sprintf("%s imports %s: %s", p.name(), imp, nvmlReason))
			}
		}
		if !under(p.name(), mayReachNVML...) && slices.ContainsFunc(p.Deps, func(d string) bool { return under(d, goNVML) }) {
			bad = append(bad, fmt.Sprintf("%s reaches go-nvml: %s", p.name(), nvmlReason))
		}
	}
	return bad
}

// load reads the imports of every Go file of the module, whatever its build tags. It reads the files itself: the
// test cache then knows what the result hangs on, which it would not if the go command were asked.
func load(t *testing.T) []pkg {
	t.Helper()
	const root = "../.."
	byPath := make(map[string]*pkg)
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); file != root && (name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		path := module + "/" + filepath.ToSlash(dir)
		p := byPath[path]
		if p == nil {
			p = &pkg{ImportPath: path}
			byPath[path] = p
		}
		to := &p.Imports
		if strings.HasSuffix(file, "_test.go") {
			to = &p.TestImports
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			*to = append(*to, imp)
		}
		return nil
	})
	require.NoError(t, err)
	pkgs := make([]pkg, 0, len(byPath))
	for _, p := range byPath {
		p.Deps = reach(byPath, p.Imports)
		pkgs = append(pkgs, *p)
	}
	slices.SortFunc(pkgs, func(a, b pkg) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	return pkgs
}

// reach lists imports and, for those of the module, what they import in turn.
func reach(byPath map[string]*pkg, imports []string) []string {
	var all []string
	for todo := slices.Clone(imports); len(todo) > 0; {
		imp := todo[0]
		todo = todo[1:]
		if slices.Contains(all, imp) {
			continue
		}
		all = append(all, imp)
		if p := byPath[imp]; p != nil {
			todo = append(todo, p.Imports...)
		}
	}
	return all
}

func TestImportsRunOneWay(t *testing.T) {
	pkgs := load(t)
	byName := make(map[string]pkg)
	for _, p := range pkgs {
		byName[p.name()] = p
	}
	// What was read must hold what the rules speak of, or they would pass on nothing.
	for _, name := range []string{"topo", "topo/nvml", "internal/gpu", "internal/ptx"} {
		require.Contains(t, byName, name)
	}
	require.Contains(t, byName["topo/nvml"].Deps, goNVML+"/pkg/nvml")
	for _, v := range violations(pkgs) {
		t.Error(v)
	}
}

func TestRulesCatch(t *testing.T) {
	own := func(paths ...string) []string {
		for i := range paths {
			paths[i] = module + "/" + paths[i]
		}
		return paths
	}
	lib := []string{goNVML + "/pkg/nvml"}
	for _, c := range []struct {
		name string
		pkg  pkg
		bad  bool
	}{
		{"seam imports driver", pkg{ImportPath: module + "/internal/gpu", Imports: own("internal/cuda")}, true},
		{"seam's suite imports the engine", pkg{ImportPath: module + "/internal/gpu/gputest", Imports: own("internal/gpu", "internal/ptx")}, false},
		{"engine imports seam", pkg{ImportPath: module + "/internal/ptx", Imports: own("internal/gpu")}, true},
		{"driver imports kernels", pkg{ImportPath: module + "/internal/emu", Imports: own("kernels")}, true},
		{"driver imports engine", pkg{ImportPath: module + "/internal/emu", Imports: own("internal/gpu", "internal/ptx")}, false},
		{"real driver imports engine", pkg{ImportPath: module + "/internal/cuda", Imports: own("internal/ptx")}, true},
		{"flags imports launcher", pkg{ImportPath: module + "/flags", Imports: own("launcher")}, true},
		{"flags/check imports allreduce", pkg{ImportPath: module + "/flags/check", Imports: own("allreduce")}, true},
		{"topo imports seam", pkg{ImportPath: module + "/topo", Imports: own("internal/gpu")}, false},
		{"launcher imports allreduce", pkg{ImportPath: module + "/launcher", Imports: own("allreduce")}, true},
		{"allreduce imports launcher", pkg{ImportPath: module + "/allreduce", Imports: own("launcher", "topo", "flags", "kernels")}, false},
		{"allreduce imports NCCL", pkg{ImportPath: module + "/allreduce", Imports: own("internal/nccl")}, false},
		{"allreduce imports NCCL's stand-in", pkg{ImportPath: module + "/allreduce", Imports: own("internal/nccl/nccltest")}, true},
		{"launcher imports NCCL", pkg{ImportPath: module + "/launcher", Imports: own("internal/nccl")}, true},
		{"NCCL imports a driver", pkg{ImportPath: module + "/internal/nccl", Imports: own("internal/cuda")}, true},
		{"running children imports what they do", pkg{ImportPath: module + "/internal/child", Imports: own("topo")}, true},
		{"probe imports running children", pkg{ImportPath: module + "/topo/probe", Imports: own("internal/child")}, false},
		{"guarding handles imports what they stand for", pkg{ImportPath: module + "/internal/inuse", Imports: own("internal/gpu")}, true},
		{"reading files imports what is in them", pkg{ImportPath: module + "/internal/plainfile", Imports: own("topo")}, true},
		{"topo imports reading files", pkg{ImportPath: module + "/topo", Imports: own("internal/plainfile")}, false},
		{"NCCL imports guarding handles", pkg{ImportPath: module + "/internal/nccl", Imports: own("internal/inuse")}, false},
		{"allreduce imports demo", pkg{ImportPath: module + "/allreduce", Imports: own("cmd/demo")}, true},
		{"topo imports go-nvml", pkg{ImportPath: module + "/topo", Imports: lib}, true},
		{"launcher's tests import go-nvml", pkg{ImportPath: module + "/launcher", TestImports: lib}, true},
		{"demo imports go-nvml itself", pkg{ImportPath: module + "/cmd/demo", Imports: lib, Deps: lib}, true},
		{"demo reaches go-nvml", pkg{ImportPath: module + "/cmd/demo", Imports: own("topo/nvml"), Deps: lib}, false},
		{"capi reaches go-nvml", pkg{ImportPath: module + "/capi", Imports: own("allreduce"), Deps: lib}, true},
		{"allreduce reaches go-nvml", pkg{ImportPath: module + "/allreduce", Imports: own("topo/nvml"), Deps: lib}, true},
		{"a name that only starts alike", pkg{ImportPath: module + "/internal/gpux", Imports: own("cmd/demo")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.bad, len(violations([]pkg{c.pkg})) > 0, "%q", violations([]pkg{c.pkg}))
		})
	}
}
