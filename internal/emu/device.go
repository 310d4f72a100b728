package emu

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

const (
	maxThreadsPerBlock = 1024 // on every device, as the CUDA programming guide has it
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
	arch    arch
	links   []Link // to each device
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

func newDevice(d *driver, ordinal int) *device {
	m := d.machine
	uuid := sha256.Sum256(fmt.Appendf(nil, "fenceline emulated device %s/%d", m.Name, ordinal))
	// Version and variant of RFC 9562, so that it reads as a UUID everywhere.
	uuid[6] = uuid[6]&0x0f | 0x80
	uuid[8] = uuid[8]&0x3f | 0x80
	spec := m.Devices[ordinal]
	if spec.SM == 0 {
		spec.SM = defaultSM
	}
	if spec.PCI == "" {
		spec.PCI = fmt.Sprintf("0000:%02x:00.0", 0x10+ordinal)
	}
	a := archs[spec.SM]
	if spec.SMs > 0 {
		a.sms = spec.SMs
	}
	dev := &device{
		ordinal: ordinal,
		arch:    a,
		info: gpu.DeviceInfo{
			Ordinal: ordinal, Name: fmt.Sprintf("Emulated GPU (%s)", m.Name), UUID: [16]byte(uuid[:16]),
			PCI: spec.PCI, Major: spec.SM / 10, Minor: spec.SM % 10, SMs: a.sms,
			MaxThreadsPerSM: a.threadsPerSM, MaxThreadsPerBlock: maxThreadsPerBlock, SharedPerBlock: a.sharedPerBlock,
			TotalMem: totalMem, CanMapHost: true, MIG: spec.MIG, NUMA: spec.NUMA,
		},
		mem:   newSpace(ordinal, totalMem),
		links: m.Links[ordinal],
		peers: make([]bool, len(m.Devices)),
		sms:   make([]sm, a.sms),
	}
	dev.view = &view{d: d, dev: dev}
	return dev
}

// residentBlocks is how many blocks of this shape fit on an SM at once.
func (a *arch) residentBlocks(threads, shared int) int {
	if threads > maxThreadsPerBlock || shared > a.sharedPerBlock {
		return 0
	}
	n := min(a.blocksPerSM, a.threadsPerSM/warpThreads(threads))
	if room := shared + a.sharedReserved; room > 0 {
		n = min(n, a.sharedPerSM/room)
	}
	return n
}

// warpThreads rounds up to whole warps, which is what a block occupies.
func warpThreads(threads int) int { return max(32, (threads+31)&^31) }

// claim takes room for one block of the kernel on some SM, breadth first as the hardware's distributor.
func (dev *device) claim(o *op) (int, bool) {
	a := &dev.arch
	for range dev.sms {
		i := dev.cursor
		dev.cursor = (dev.cursor + 1) % len(dev.sms)
		s := &dev.sms[i]
		if s.blocks < a.blocksPerSM && s.threads+o.threads <= a.threadsPerSM && s.shared+o.shared <= a.sharedPerSM {
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
