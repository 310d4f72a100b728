package emu

import (
	"math"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// Launch implements gpu.Driver. PDL launches run fully ordered. In the steady state it allocates nothing: the
// op and its parameter buffer are those of an earlier launch.
func (d *driver) Launch(dev int, h gpu.Stream, fh gpu.Function, cfg *gpu.LaunchConfig, args []byte) error {
	const op = "Launch"
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(op, dev, h)
	if err != nil {
		return err
	}
	f, err := lookup(d, op, dev, d.funcs, fh, "function")
	if err != nil {
		return err
	}
	if err := f.checkLaunch(op, dev, cfg, args); err != nil {
		return err
	}
	o := d.newOp(opKernel, s.dev)
	o.fn = f
	o.params = append(o.params[:0], args...)
	o.threads = warpThreads(int(cfg.Block.Count()))
	o.shared = f.kernel.StaticShared + int(cfg.Shared) + s.dev.arch.sharedReserved
	o.grid = cfg.Grid.Count()
	o.launch = ptx.Launch{
		Kernel: f.kernel,
		Grid:   [3]uint32{cfg.Grid.X, cfg.Grid.Y, cfg.Grid.Z}, Block: [3]uint32{cfg.Block.X, cfg.Block.Y, cfg.Block.Z},
		Shared: int(cfg.Shared), Params: o.params, Globals: f.module.globals,
		Memory: s.dev.view, Clock: d.sched.clock, SM: d.sched.smid, StepLimit: d.cfg.StepBudget,
	}
	return d.submit(op, s, o)
}

// checkLaunch refuses what no GPU of this kind could run. The limits are those of the CUDA programming guide.
func (f *function) checkLaunch(op string, dev int, cfg *gpu.LaunchConfig, args []byte) error {
	if cfg == nil {
		return fail(op, dev, gpu.ErrInvalidValue, "%s without a LaunchConfig", f.name)
	}
	g, b := cfg.Grid, cfg.Block
	shared := uint64(f.kernel.StaticShared) + uint64(cfg.Shared)
	switch {
	case g.X == 0 || g.Y == 0 || g.Z == 0:
		return fail(op, dev, gpu.ErrInvalidValue, "%s with a grid of (%d,%d,%d): every size must be at least 1", f.name, g.X, g.Y, g.Z)
	case g.X > math.MaxInt32 || g.Y > math.MaxUint16 || g.Z > math.MaxUint16:
		return fail(op, dev, gpu.ErrInvalidValue, "%s with a grid of (%d,%d,%d): at most (2147483647,65535,65535)", f.name, g.X, g.Y, g.Z)
	case b.X == 0 || b.Y == 0 || b.Z == 0:
		return fail(op, dev, gpu.ErrInvalidValue, "%s with a block of (%d,%d,%d): every size must be at least 1", f.name, b.X, b.Y, b.Z)
	case b.X > 1024 || b.Y > 1024 || b.Z > 64 || b.Count() > uint64(f.maxThreads()):
		return fail(op, dev, gpu.ErrInvalidValue, "%s with a block of (%d,%d,%d): at most (1024,1024,64), and %d threads in all", f.name, b.X, b.Y, b.Z, f.maxThreads())
	case shared > uint64(f.module.dev.arch.sharedPerBlock):
		return fail(op, dev, gpu.ErrInvalidValue, "%s with %d bytes of shared memory a block (%d static): at most %d", f.name, shared, f.kernel.StaticShared, f.module.dev.arch.sharedPerBlock)
	case len(args) != f.kernel.Sig.ParamBytes:
		return fail(op, dev, gpu.ErrInvalidValue, "%s takes %d bytes of parameters, got %d", f.name, f.kernel.Sig.ParamBytes, len(args))
	}
	return nil
}
