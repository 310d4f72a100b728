package kernels

import (
	"bytes"
	"fmt"
	"path"
	"strings"
)

// Kernels of several sources that run beside each other are checked as one module, whose name joins theirs:
// "oneshot_pull+oneshot_push.sm_90.ptx". It exists in memory only; each part's lines are what the shipped file has.

// join is the module of several sources, "a+b"; the entries it lists are those of the first.
func join(sources string, first *Module) *Module {
	return &Module{File: fmt.Sprintf("%s.sm_%d.ptx", sources, first.SM), Source: sources, SM: first.SM, Entries: first.Entries}
}

// joinedParts are the files that a joined module's name stands for; nil for the name of one file.
func joinedParts(file string) []string {
	sources, rest, ok := strings.Cut(path.Base(file), ".")
	if !ok || !strings.Contains(sources, "+") {
		return nil
	}
	var parts []string
	for _, s := range strings.Split(sources, "+") {
		parts = append(parts, s+"."+rest)
	}
	return parts
}

// joinedText puts the files one after the other. The directives that begin a module are left to the first, whose .version no other
// exceeds; the others' become comments, so that lines stay where they are.
func joinedText(parts []string) ([]byte, error) {
	var all [][]byte
	for i, part := range parts {
		text, err := files.ReadFile("ptx/" + part)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			for _, directive := range []string{".version", ".target", ".address_size"} {
				text = bytes.Replace(text, []byte("\n"+directive), []byte("\n//"+directive), 1)
			}
		}
		all = append(all, text)
	}
	return bytes.Join(all, nil), nil
}
