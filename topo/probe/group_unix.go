//go:build unix

package probe

import (
	"os/exec"
	"syscall"
)

// ownGroup gives the child a process group, so that what a wrapper script started is killed with it.
func ownGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}
