//go:build !unix

package probe

import "os/exec"

// ownGroup does nothing where there are no process groups: the child alone is killed.
func ownGroup(*exec.Cmd) {}
