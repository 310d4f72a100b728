//go:build unix

package emu_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/fenceline/fenceline/internal/emu"
)

// TestIdle: waiting for kernels that sleep, or for nothing at all, leaves the CPU alone.
func TestIdle(t *testing.T) {
	b := newBench(t, emu.Config{Devices: 1})
	m, err := b.d.HostAlloc(4)
	b.NoError(err)
	s := b.stream(0)
	for range 8 {
		b.launch(0, b.stream(0), b.kernel(0, "doze"), 1, 32, m.Ptr)
	}
	b.launch(0, s, b.kernel(0, "doze"), 1, 32, m.Ptr)
	before := cpu(t)
	const wall = 400 * time.Millisecond
	done, err := b.d.StreamWait(0, s, wall)
	b.NoError(err)
	b.False(done)
	b.Less(cpu(t)-before, wall/2)
	b.NoError(b.d.HostStore32(m, 0, 1))
	b.wait(0, s)
}

// TestIdleStalled is the same for work that waits for an answer that never comes.
func TestIdleStalled(t *testing.T) {
	b := newBench(t, emu.Config{Machine: "write-only", Devices: 2})
	b.NoError(b.d.EnablePeerAccess(0, 1))
	s, far := b.stream(0), b.fives(1)
	b.launch(0, s, b.kernel(0, "load"), 100, 256, far, b.alloc(0, 4))
	b.NoError(b.d.Copy(0, b.stream(0), b.alloc(0, 4), far, 4))
	b.False(b.ends(0, s))
	before := cpu(t)
	const wall = 400 * time.Millisecond
	done, err := b.d.StreamWait(0, s, wall)
	b.NoError(err)
	b.False(done)
	b.Less(cpu(t)-before, wall/4)
}

// cpu is the processor time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
