// Command mkptx builds kernels/ptx from kernels/*.cu with clang: the PTX, the map of its lines to those of the sources, and
// the manifest.
//
//	go run ./kernels/mkptx          rebuild
//	go run ./kernels/mkptx -check   rebuild elsewhere and compare; exit 1 on any difference
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/ptx"
	"github.com/fenceline/fenceline/kernels"
)

var flags = []string{"-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-std=c++20", "-O3",
	"-Wall", "-Werror", "-Wno-unknown-cuda-version", "-S"}

// The lowest target that runs the kernels, the first with bf16 conversions, the first with dependent launch.
var targets = []struct{ sm, ptx int }{{70, 70}, {80, 70}, {90, 78}}

// needs is the lowest PTX version of the sources that take more than their target: b128 at .sys scope.
var needs = map[string]int{"oneshot_wide.cu": 84, "twoshot_wide.cu": 84}

func main() { os.Exit(doMain(os.Args[1:], os.Stdout, os.Stderr)) }

func doMain(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("mkptx", flag.ContinueOnError)
	fs.SetOutput(stderr)
	check := fs.Bool("check", false, "compare with what is committed instead of writing")
	dir := fs.String("dir", "kernels", "folder of the sources")
	clang := fs.String("clang", "clang-19", "compiler")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	built, err := build(*dir, *clang)
	if err != nil {
		fmt.Fprintln(stderr, "mkptx:", err)
		return 1
	}
	out := filepath.Join(*dir, "ptx")
	if *check {
		err = compare(out, built)
	} else {
		err = write(out, built)
	}
	if err != nil {
		fmt.Fprintln(stderr, "mkptx:", err)
		return 1
	}
	fmt.Fprintf(stdout, "mkptx: %d files in %s up to date\n", len(built), out)
	return 0
}

// build compiles everything and returns the files of kernels/ptx by name.
func build(dir, clang string) (map[string][]byte, error) {
	compiler, err := compilerVersion(clang)
	if err != nil {
		return nil, err
	}
	sources, err := filepath.Glob(filepath.Join(dir, "*.cu"))
	if err != nil || len(sources) == 0 {
		return nil, fmt.Errorf("no .cu files in %s (run from the repository's root, or give -dir)", dir)
	}
	read := func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) }
	m := kernels.Manifest{Version: kernels.ManifestVersion, Compiler: compiler, Flags: flags}
	files := map[string][]byte{}
	for _, src := range sources {
		hash, err := kernels.SourceHash(filepath.Base(src), read)
		if err != nil {
			return nil, err
		}
		for _, t := range targets {
			t.ptx = max(t.ptx, needs[filepath.Base(src)])
			text, own, err := compile(dir, clang, filepath.Base(src), t.sm, t.ptx)
			if err != nil {
				return nil, err
			}
			name := strings.TrimSuffix(filepath.Base(src), ".cu")
			mod := kernels.Module{File: fmt.Sprintf("%s.sm_%d.ptx", name, t.sm), Source: name, SM: t.sm, PTX: t.ptx,
				Flags: own, SourceSHA256: hash, PTXSHA256: sum(text)}
			if mod.Entries, err = entries(mod.File, text); err != nil {
				return nil, err
			}
			files[mod.File] = text
			if files[kernels.LinesFile(mod.File)], err = lines(dir, clang, filepath.Base(src), t.sm, t.ptx, text, read); err != nil {
				return nil, err
			}
			m.Modules = append(m.Modules, mod)
		}
	}
	text, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return nil, err
	}
	files["manifest.json"] = append(text, '\n')
	return files, nil
}

// compile also returns the flags of the target; extra are flags of this compilation alone.
func compile(dir, clang, src string, sm, ptxVersion int, extra ...string) (text []byte, own []string, err error) {
	own = []string{fmt.Sprintf("--cuda-gpu-arch=sm_%d", sm), "-Xclang", "-target-feature", "-Xclang", fmt.Sprintf("+ptx%d", ptxVersion)}
	cmd := exec.Command(clang, slices.Concat(flags, own, extra, []string{src, "-o", "-"})...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err = cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("compile %s for sm_%d: %w\n%s", src, sm, err, stderr.String())
	}
	return text, own, nil
}

var versionLine = regexp.MustCompile(`clang version (\d+\.\d+\.\d+)`)

func compilerVersion(clang string) (string, error) {
	out, err := exec.Command(clang, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w (install clang-19, or give -clang)", clang, err)
	}
	v := versionLine.FindSubmatch(out)
	if v == nil {
		return "", fmt.Errorf("%s --version gives no version", clang)
	}
	return "clang " + string(v[1]), nil
}

func entries(file string, text []byte) ([]kernels.Entry, error) {
	info, err := ptx.Signatures(file, text)
	if err != nil {
		return nil, err
	}
	var list []kernels.Entry
	for _, s := range info.Entries {
		e := kernels.Entry{Name: s.Name, Bytes: s.ParamBytes}
		for _, p := range s.Params {
			e.Params = append(e.Params, kernels.Param{Type: p.Type, Offset: p.Offset, Size: p.Size})
		}
		list = append(list, e)
	}
	return list, nil
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func compare(out string, built map[string][]byte) error {
	for name, want := range built {
		got, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%s differs from a fresh build (compiler %s): run `make ptx` and commit", filepath.Join(out, name), manifestCompiler(built))
		}
	}
	on, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil {
		return err
	}
	for _, f := range on {
		if _, ok := built[filepath.Base(f)]; !ok {
			return fmt.Errorf("%s comes from no source: delete it", f)
		}
	}
	return nil
}

func manifestCompiler(built map[string][]byte) string {
	var m kernels.Manifest
	_ = json.Unmarshal(built["manifest.json"], &m) // written by build
	return m.Compiler
}

func write(out string, built map[string][]byte) error {
	texts, err := filepath.Glob(filepath.Join(out, "*.ptx"))
	if err != nil {
		return err
	}
	maps, err := filepath.Glob(filepath.Join(out, "*.lines"))
	if err != nil {
		return err
	}
	for _, f := range append(texts, maps...) {
		if _, ok := built[filepath.Base(f)]; !ok {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	for name, text := range built {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
