//go:build linux && (amd64 || arm64)

package doctor

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// kernelAction is struct sigaction as the kernel has it on amd64 and arm64 (include/linux/signal_types.h).
type kernelAction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const saOnStack = 0x08000000

// signalHandlers lists the handlers of this process. It only asks.
func signalHandlers() ([]handler, error) {
	var all []handler
	for sig := 1; sig <= 64; sig++ {
		var a kernelAction
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a.mask), 0, 0)
		if errno != 0 {
			return nil, fmt.Errorf("rt_sigaction(%d): %w", sig, errno)
		}
		if a.handler > 1 { // 0 is the default action, 1 ignores the signal
			all = append(all, handler{signal: sig, onStack: a.flags&saOnStack != 0})
		}
	}
	return all, nil
}

// System call numbers are the same on all architectures since 5.0.
const (
	sysPidfdOpen  = 434
	sysPidfdGetfd = 438
)

// fetchOwnDescriptor copies a descriptor of this process by pidfd_getfd. No ptrace right is needed for that: a
// failure is the kernel's age or a system call filter.
func fetchOwnDescriptor() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	pidfd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(os.Getpid()), 0, 0)
	if errno != 0 {
		return fmt.Errorf("pidfd_open: %w", errno)
	}
	defer syscall.Close(int(pidfd))
	fd, _, errno := syscall.Syscall(sysPidfdGetfd, pidfd, null.Fd(), 0)
	if errno != 0 {
		return fmt.Errorf("pidfd_getfd: %w", errno)
	}
	return syscall.Close(int(fd))
}

// diskFree is what is free for this process and the size of a file system, in bytes.
func diskFree(dir string) (free, total uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), nil
}
