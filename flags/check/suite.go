package check

import (
	"embed"
	"fmt"
)

//go:embed testdata/*.litmus
var litmusFiles embed.FS

// LitmusSuite is the suite of litmus tests in testdata, in the order of the files' names.
func LitmusSuite() ([]*Litmus, error) {
	files, err := litmusFiles.ReadDir("testdata")
	if err != nil {
		return nil, fmt.Errorf("litmus suite: %w", err)
	}
	var all []*Litmus
	for _, f := range files {
		text, err := litmusFiles.ReadFile("testdata/" + f.Name())
		if err != nil {
			return nil, fmt.Errorf("litmus suite: %w", err)
		}
		tests, err := ParseLitmus(f.Name(), text)
		if err != nil {
			return nil, err
		}
		all = append(all, tests...)
	}
	return all, nil
}
