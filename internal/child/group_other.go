//go:build !unix

package child

import "os/exec"

// OwnGroup does nothing where there are no process groups: the child alone is killed.
func OwnGroup(*exec.Cmd) {}
