package emu

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// Every device looks like an H100-class GPU. Residency limits are those of compute capability 9.0 in the
// CUDA programming guide's table of technical specifications.
const (
	smMajor, smMinor   = 9, 0
	numSMs             = 132
	maxThreadsPerSM    = 2048
	maxBlocksPerSM     = 32
	maxThreadsPerBlock = 1024
	sharedPerSM        = 228 << 10
	sharedPerBlock     = 227 << 10
	sharedReserved     = 1 << 10 // of each resident block, by the system
	// Less than a real device has: it all has to fit in the memory of one computer, which Go dies without.
	totalMem   = 2 << 30
	maxHostMem = 2 << 30
)

// device is one emulated GPU.
type device struct {
	ordinal int
	info    gpu.DeviceInfo
	mem     *space
	view    *view
	links   []link // to each other device
	peers   []bool // whether access to it is enabled
	fault   error  // sticky; a *gpu.FaultError
	sms     []sm
	cursor  int   // the SM to try first for the next block
	grids   []*op // kernels with blocks still to be placed, in order of their start
}

// sm is what a streaming multiprocessor has in use.
type sm struct {
	threads, blocks int
	shared          int
}

func newDevice(d *driver, ordinal, n int) *device {
	uuid := sha256.Sum256(fmt.Appendf(nil, "fenceline emulated device %s/%d", d.machine.name, ordinal))
	// Version and variant of RFC 9562, so that it reads as a UUID everywhere.
	uuid[6] = uuid[6]&0x0f | 0x80
	uuid[8] = uuid[8]&0x3f | 0x80
	dev := &device{
		ordinal: ordinal,
		info: gpu.DeviceInfo{
			Ordinal: ordinal, Name: fmt.Sprintf("Emulated GPU (%s)", d.machine.name), UUID: [16]byte(uuid[:16]),
			PCI: fmt.Sprintf("0000:%02x:00.0", 0x10+ordinal), Major: smMajor, Minor: smMinor, SMs: numSMs,
			MaxThreadsPerSM: maxThreadsPerSM, MaxThreadsPerBlock: maxThreadsPerBlock, SharedPerBlock: sharedPerBlock,
			TotalMem: totalMem, CanMapHost: true,
		},
		mem:   newSpace(ordinal, totalMem),
		links: make([]link, n),
		peers: make([]bool, n),
		sms:   make([]sm, numSMs),
	}
	for to := range n {
		if to != ordinal {
			dev.links[to] = d.machine.link(ordinal, to)
		}
	}
	dev.view = &view{d: d, dev: dev}
	return dev
}

// blocksPerSM is how many blocks of this shape fit on an SM at once.
func blocksPerSM(threads, shared int) int {
	if threads > maxThreadsPerBlock || shared > sharedPerBlock {
		return 0
	}
	return min(maxBlocksPerSM, maxThreadsPerSM/warpThreads(threads), sharedPerSM/(shared+sharedReserved))
}

// warpThreads rounds up to whole warps, which is what a block occupies.
func warpThreads(threads int) int { return max(32, (threads+31)&^31) }

// claim takes room for one block of the kernel on some SM, breadth first as the hardware's distributor.
func (dev *device) claim(o *op) (int, bool) {
	for range dev.sms {
		i := dev.cursor
		dev.cursor = (dev.cursor + 1) % len(dev.sms)
		s := &dev.sms[i]
		if s.blocks < maxBlocksPerSM && s.threads+o.threads <= maxThreadsPerSM && s.shared+o.shared <= sharedPerSM {
			s.blocks++
			s.threads += o.threads
			s.shared += o.shared
			return i, true
		}
	}
	return 0, false
}

// release gives the room back.
func (dev *device) release(i int, o *op) {
	s := &dev.sms[i]
	s.blocks--
	s.threads -= o.threads
	s.shared -= o.shared
	dev.cursor = i // it has room now: the next block need not search
}

// kernelFault turns the engine's fault into the seam's. steps is how many warp instructions the block executed.
func kernelFault(dev *device, o *op, err error, steps uint64) *gpu.FaultError {
	out := &gpu.FaultError{Kind: gpu.ErrLaunchFailed, Device: dev.ordinal, Kernel: o.fn.name}
	var f *ptx.Fault
	if !errors.As(err, &f) {
		out.Detail = err.Error()
		return out
	}
	out.Block, out.Thread = gpu.Dim3{X: f.Block[0], Y: f.Block[1], Z: f.Block[2]}, gpu.Dim3{X: f.Thread[0], Y: f.Thread[1], Z: f.Thread[2]}
	out.File, out.Line, out.Text, out.Addr, out.Size = f.File, f.Line, f.Text, f.Addr, f.Size
	switch f.Kind {
	case ptx.BadAddress:
		out.Kind = gpu.ErrIllegalAddress
	case ptx.Misaligned:
		out.Kind = gpu.ErrMisaligned
	case ptx.Trap:
		out.Detail = "trap instruction"
	case ptx.Deadlock:
		out.Kind = gpu.ErrDeadlock
	}
	if f.Err != nil {
		out.Detail = f.Err.Error()
	}
	if f.Kind == ptx.Deadlock && steps >= o.launch.StepLimit {
		out.Detail += "; it waits for what never happens, or needs a StepBudget above that"
	}
	return out
}
