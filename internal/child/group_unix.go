//go:build unix

package child

import (
	"os/exec"
	"syscall"
)

// OwnGroup gives a child that is yet to be started a process group, so that what a wrapper script started is killed with
// it. The command must come from exec.CommandContext.
func OwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
