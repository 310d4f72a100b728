package launcher

import (
	"math"
	"slices"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// Signature is a kernel's declaration: its parameters and their places in the parameter buffer.
//
//	Name       string  // of the entry
//	Line       int     // of the declaration in the PTX, from 1
//	Params     []Param // in order
//	ParamBytes int     // size of the parameter buffer
//	MaxThreads uint32  // largest block that the PTX allows (.maxntid, .reqntid); 0 when it says nothing
//	Waits      bool    // the kernel, or a function that it calls by name, directly or through others, holds griddepcontrol.wait
type Signature = ptx.Signature

// Param is one parameter of a Signature.
//
//	Name   string // in the PTX
//	Type   string // "u64", "f32", "b8", … as declared, without the dot
//	Array  bool   // declared with [n]: a struct or array passed by value
//	Size   int    // bytes, of the whole array
//	Align  int    // bytes
//	Offset int    // bytes from the start of the parameter buffer
type Param = ptx.Param

// KernelInfo is what the driver knows of a kernel.
//
//	MaxThreads   int // largest block that it can be launched with
//	Registers    int // per thread; 0 when unknown
//	StaticShared int // bytes of shared memory per block, without LaunchConfig.Shared
//	LocalBytes   int // bytes of local memory per thread
type KernelInfo = gpu.FunctionInfo

// Dim3 is a grid or block shape. Every component of a launch's is at least 1.
//
//	X, Y, Z uint32
//
// Its method Count is the product: the number of blocks, or of threads.
type Dim3 = gpu.Dim3

// LaunchConfig is the shape of one launch. Linear makes one of one dimension.
//
//	Grid      Dim3   // blocks
//	Block     Dim3   // threads of one block
//	Shared    uint32 // dynamic shared memory of each block, bytes
//	Dependent bool   // programmatic dependent launch: the kernel may start before the one ahead of it in the stream
//	                 // has ended, and orders itself with griddepcontrol.wait. Only for kernels built for it. Where the
//	                 // device cannot do it, or the kernel never waits (Signature.Waits), the launch is fully ordered: what
//	                 // comes behind such a kernel could otherwise start while work ahead of it still runs.
type LaunchConfig = gpu.LaunchConfig

// Linear is a one-dimensional shape: so many blocks of so many threads.
func Linear(blocks, threads uint32) LaunchConfig {
	return LaunchConfig{Grid: Dim3{X: blocks, Y: 1, Z: 1}, Block: Dim3{X: threads, Y: 1, Z: 1}}
}

// Kernel is one entry of a loaded module.
type Kernel struct {
	m          *Module
	name       string
	f          gpu.Function
	info       KernelInfo
	sig        Signature
	maxThreads uint64 // of one block
}

// Name is the entry's name.
func (k *Kernel) Name() string { return k.name }

// Device is the ordinal of the device the kernel is loaded on.
func (k *Kernel) Device() int { return k.m.dev }

// Signature is the kernel's declaration, as a copy.
func (k *Kernel) Signature() Signature {
	sig := k.sig
	sig.Params = slices.Clone(sig.Params)
	return sig
}

// Info is what the driver knows of the kernel.
func (k *Kernel) Info() KernelInfo { return k.info }

// MaxActiveBlocks is how many blocks of so many threads and bytes of dynamic shared memory can
// be resident on one SM at the same time.
func (k *Kernel) MaxActiveBlocks(threads int, shared uint32) (int, error) {
	const op = "MaxActiveBlocks"
	if err := k.m.use(op); err != nil {
		return 0, err
	}
	defer k.m.life.Leave()
	if threads < 1 || uint64(threads) > k.maxThreads {
		return 0, invalid(op, k.m.dev, "kernel %s: %d threads a block; want 1 to %d", k.name, threads, k.maxThreads)
	}
	return k.m.rt.d.MaxActiveBlocks(k.m.dev, k.f, threads, shared)
}

// Launch queues the kernel on s with args packed by this kernel's Pack. Everything is checked
// before anything is queued: what does not fit together is ErrInvalidValue, what is closed or freed
// *ClosedError. Then it is one call of the driver, with no allocation. A fault of the kernel, a
// *FaultError, is returned by a later call, such as Stream.Sync.
func (k *Kernel) Launch(s *Stream, cfg LaunchConfig, a *Args) error {
	const op = "launch"
	if s == nil || a == nil || a.k != k || s.rt != k.m.rt || s.dev != k.m.dev {
		return k.misfit(op, s, a)
	}
	if !k.fits(&cfg) {
		return k.badShape(op, cfg)
	}
	for _, b := range a.bufs {
		if b != nil && b.freed.Load() {
			return &ClosedError{op + " of kernel " + k.name, b.String()}
		}
	}
	if err := k.m.use(op); err != nil {
		return err
	}
	defer k.m.life.Leave()
	if err := s.use(op); err != nil {
		return err
	}
	defer s.life.Leave()
	s.queue.Lock()
	defer s.queue.Unlock()
	s.cfg = cfg
	s.cfg.Dependent = cfg.Dependent && k.sig.Waits
	if err := k.m.rt.d.Launch(s.dev, s.h, k.f, &s.cfg, a.buf); err != nil {
		return err
	}
	s.lastK = k
	return nil
}

// Limits of every device that PTX of the versions in use runs on (CUDA programming guide, compute
// capabilities).
const (
	maxGridX  = math.MaxInt32
	maxGridYZ = 65535
	maxBlockZ = 64
)

func (k *Kernel) fits(c *LaunchConfig) bool {
	g, b := c.Grid, c.Block
	return g.X > 0 && g.Y > 0 && g.Z > 0 && g.X <= maxGridX && g.Y <= maxGridYZ && g.Z <= maxGridYZ &&
		b.X > 0 && b.Y > 0 && b.Z > 0 && b.Z <= maxBlockZ && uint64(b.X) <= k.maxThreads &&
		uint64(b.Y) <= k.maxThreads && b.Count() <= k.maxThreads
}

// badShape says what fits refused.
func (k *Kernel) badShape(op string, c LaunchConfig) error {
	g, b := c.Grid, c.Block
	if g.X == 0 || g.Y == 0 || g.Z == 0 || b.X == 0 || b.Y == 0 || b.Z == 0 {
		return invalid(op, k.m.dev, "kernel %s: grid %v, block %v: every component must be at least 1", k.name, g, b)
	}
	if g.X > maxGridX || g.Y > maxGridYZ || g.Z > maxGridYZ {
		return invalid(op, k.m.dev, "kernel %s: grid %v: at most %d, %d, %d", k.name, g, maxGridX, maxGridYZ, maxGridYZ)
	}
	return invalid(op, k.m.dev, "kernel %s: block %v: at most %d threads for this kernel, and z at most %d", k.name, b, k.maxThreads, maxBlockZ)
}

// misfit says why stream or arguments do not belong to the kernel.
func (k *Kernel) misfit(op string, s *Stream, a *Args) error {
	dev := k.m.dev
	switch {
	case s == nil:
		return invalid(op, dev, "kernel %s: nil stream", k.name)
	case a == nil:
		return invalid(op, dev, "kernel %s: nil arguments; use Pack, also for a kernel without parameters", k.name)
	case s.rt != k.m.rt:
		return invalid(op, dev, "kernel %s: the stream belongs to another runtime", k.name)
	case s.dev != dev:
		return invalid(op, dev, "kernel %s: the stream belongs to device %d; use a stream of device %d, or load the kernel on device %d",
			k.name, s.dev, dev, s.dev)
	}
	from := "nothing"
	if a.k != nil {
		from = a.k.name + " of " + a.k.m.String()
	}
	return invalid(op, dev, "kernel %s of %v: the arguments were packed for %s; pack them with this kernel", k.name, k.m, from)
}
