package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
)

func TestSum(t *testing.T) {
	for machine, algorithm := range map[string]string{"nvlink": "oneshot-push", "one-way": "copy", "no-p2p": "host"} {
		var out bytes.Buffer
		sum(&out, launcher.Config{Machine: machine, Devices: 3})
		require.Regexp(t, "^"+algorithm+` \(.*\nrank 0: 6 … 6\nrank 1: 6 … 6\nrank 2: 6 … 6\n$`, out.String())
	}
}

// The README shows this very program.
func TestReadme(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+string(program)+"```\n")
}
