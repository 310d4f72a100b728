//go:build linux && cgo

package cuda

// #include "tramp.h"
// #cgo noescape fl_module_load
// #cgo nocallback fl_module_load
// #cgo nocallback fl_module_unload
// #cgo noescape fl_module_function
// #cgo nocallback fl_module_function
// #cgo nocallback fl_func_shared
// #cgo noescape fl_occupancy
// #cgo nocallback fl_occupancy
// #cgo noescape fl_launch
// #cgo nocallback fl_launch
import "C"

import (
	"fmt"
	"strings"

	"github.com/fenceline/fenceline/internal/gpu"
)

// jitLog is how much of the compiler's complaint is kept, in bytes.
const jitLog = 16 << 10

func (d *driver) ModuleLoad(dev int, name string, ptx []byte) (gpu.Module, error) {
	dv, ctx, err := d.begin("ModuleLoad", dev)
	if err != nil {
		return 0, err
	}
	defer d.life.RUnlock()
	if err := checkPTX(dev, name, ptx, d.version, dv.info.SM()); err != nil {
		return 0, err
	}
	text := append(ptx[:len(ptx):len(ptx)], 0) // the driver finds the end by a zero byte
	log := make([]byte, jitLog)
	var m C.CUmodule
	r := C.fl_module_load(d.lib, ctx, (*C.uchar)(&text[0]), (*C.uchar)(&log[0]), C.size_t(len(log)), &m)
	why := cString(log)
	// Some drivers say "invalid PTX" of a version they do not know, and only the log says which.
	if r == resInvalidPTX && strings.Contains(why, "Unsupported .version") {
		r = resUnsupportedPTX
	}
	switch lookup(int(r)).kind {
	case gpu.ErrInvalidPTX:
		return 0, d.fail("cuModuleLoadDataEx", dv, r, explainLog(name, ptx, why))
	case gpu.ErrDriverTooOld:
		return 0, d.fail("cuModuleLoadDataEx", dv, r, name+": "+tooNew(ptx, d.version))
	}
	if r != 0 {
		return 0, d.fail("cuModuleLoadDataEx", dv, r, name)
	}
	d.tab.Lock()
	d.modules[gpu.Module(m)] = &module{dev: dev, name: name}
	d.tab.Unlock()
	return gpu.Module(m), nil
}

func (d *driver) ModuleUnload(dev int, m gpu.Module) error {
	dv, ctx, err := d.begin("ModuleUnload", dev)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	mod, err := takeHandle(d, d.modules, "ModuleUnload", dev, "module", m, func(m *module) int { return m.dev })
	if err != nil {
		return err
	}
	d.tab.Lock()
	for f, fn := range d.funcs {
		if fn.mod == m {
			delete(d.funcs, f)
		}
	}
	d.tab.Unlock()
	if r := C.fl_module_unload(d.lib, ctx, C.CUmodule(m)); r != 0 {
		putHandle(d, d.modules, m, mod)
		return d.fail("cuModuleUnload", dv, r, mod.name)
	}
	return nil
}

func (d *driver) ModuleFunction(dev int, m gpu.Module, entry string) (gpu.Function, error) {
	const op = "ModuleFunction"
	dv, ctx, err := d.begin(op, dev)
	if err != nil {
		return 0, err
	}
	defer d.life.RUnlock()
	d.tab.RLock()
	mod := d.modules[m]
	d.tab.RUnlock()
	if mod == nil {
		return 0, refuseHandle(op, dev, "module", uintptr(m), -1)
	}
	if mod.dev != dev {
		return 0, refuseHandle(op, dev, "module", uintptr(m), mod.dev)
	}
	if entry == "" || strings.IndexByte(entry, 0) >= 0 {
		return 0, refuse(op, dev, gpu.ErrNotFound, "%s has no entry %q", mod.name, entry)
	}
	cname := append([]byte(entry), 0)
	var f C.CUfunction
	var c C.fl_func
	if r := C.fl_module_function(d.lib, ctx, C.CUmodule(m), (*C.uchar)(&cname[0]), &f, &c); r != 0 {
		return 0, d.fail("cuModuleGetFunction", dv, r, fmt.Sprintf("entry %q of %s", entry, mod.name))
	}
	fn := &function{dev: dev, mod: m, name: entry, paramBytes: int(c.paramBytes), info: gpu.FunctionInfo{
		MaxThreads: int(c.maxThreads), Registers: int(c.registers), StaticShared: int(c.staticShared), LocalBytes: int(c.localBytes)}}
	fn.dynamic.Store(int64(c.maxDynamic))
	d.tab.Lock()
	if d.funcs[gpu.Function(f)] == nil { // asking twice gives the same handle
		d.funcs[gpu.Function(f)] = fn
	}
	d.tab.Unlock()
	return gpu.Function(f), nil
}

func (d *driver) function(op string, dev int, f gpu.Function) (*function, error) {
	d.tab.RLock()
	fn := d.funcs[f]
	d.tab.RUnlock()
	if fn == nil {
		return nil, refuseHandle(op, dev, "function", uintptr(f), -1)
	}
	if fn.dev != dev {
		return nil, refuseHandle(op, dev, "function", uintptr(f), fn.dev)
	}
	return fn, nil
}

func (d *driver) FunctionInfo(dev int, f gpu.Function) (gpu.FunctionInfo, error) {
	if _, err := d.enter("FunctionInfo", dev); err != nil {
		return gpu.FunctionInfo{}, err
	}
	defer d.life.RUnlock()
	fn, err := d.function("FunctionInfo", dev, f)
	if err != nil {
		return gpu.FunctionInfo{}, err
	}
	return fn.info, nil
}

// allowShared raises the kernel's limit of dynamic shared memory where a launch asks for more than the
// portable 48 KiB. It is done only then: a raised limit may change how the device splits shared memory and L1.
func (d *driver) allowShared(op string, dv *device, ctx C.CUcontext, f gpu.Function, fn *function, shared uint32) error {
	if int64(shared) <= fn.dynamic.Load() {
		return nil
	}
	if most := dv.info.SharedPerBlock - fn.info.StaticShared; int64(shared) > int64(most) {
		return refuse(op, dv.ord, gpu.ErrInvalidValue, "%s: %d bytes of dynamic shared memory; at most %d beside the kernel's own %d",
			fn.name, shared, most, fn.info.StaticShared)
	}
	if r := C.fl_func_shared(d.lib, ctx, C.CUfunction(f), C.int(shared)); r != 0 {
		return d.fail("cuFuncSetAttribute", dv, r, fmt.Sprintf("%s: %d bytes of dynamic shared memory", fn.name, shared))
	}
	fn.dynamic.Store(int64(shared))
	return nil
}

func (d *driver) MaxActiveBlocks(dev int, f gpu.Function, threads int, shared uint32) (int, error) {
	const op = "MaxActiveBlocks"
	dv, ctx, err := d.begin(op, dev)
	if err != nil {
		return 0, err
	}
	defer d.life.RUnlock()
	fn, err := d.function(op, dev, f)
	if err != nil {
		return 0, err
	}
	if threads <= 0 || threads > fn.info.MaxThreads {
		return 0, refuse(op, dev, gpu.ErrInvalidValue, "%s: %d threads in a block; it can have 1 to %d", fn.name, threads, fn.info.MaxThreads)
	}
	if err := d.allowShared(op, dv, ctx, f, fn, shared); err != nil {
		return 0, err
	}
	var n C.int
	if r := C.fl_occupancy(d.lib, ctx, C.CUfunction(f), C.int(threads), C.size_t(shared), &n); r != 0 {
		return 0, d.fail("cuOccupancyMaxActiveBlocksPerMultiprocessor", dv, r, fn.name)
	}
	return int(n), nil
}

// Launch is the hot path: two table look-ups, one C call, no allocation.
func (d *driver) Launch(dev int, s gpu.Stream, f gpu.Function, cfg *gpu.LaunchConfig, args []byte) error {
	const op = "Launch"
	dv, ctx, err := d.begin(op, dev)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	d.tab.RLock()
	st, fn := d.streams[s], d.funcs[f]
	d.tab.RUnlock()
	if st == nil || st.dev != dev {
		_, err := d.stream(op, dev, s)
		return err
	}
	if fn == nil || fn.dev != dev {
		_, err := d.function(op, dev, f)
		return err
	}
	if err := checkLaunch(op, dev, fn, cfg, len(args)); err != nil {
		return err
	}
	if int64(cfg.Shared) > fn.dynamic.Load() {
		if err := d.allowShared(op, dv, ctx, f, fn, cfg.Shared); err != nil {
			return err
		}
	}
	var buf *C.uchar
	if len(args) > 0 {
		buf = (*C.uchar)(&args[0])
	}
	dependent := C.int(0)
	if cfg.Dependent && dv.info.Major >= 9 { // programmatic launch needs sm_90; older devices run in order
		dependent = 1
	}
	g, b := &cfg.Grid, &cfg.Block
	r := C.fl_launch(d.lib, ctx, C.CUstream(s), C.CUfunction(f), C.uint32_t(g.X), C.uint32_t(g.Y), C.uint32_t(g.Z),
		C.uint32_t(b.X), C.uint32_t(b.Y), C.uint32_t(b.Z), C.uint32_t(cfg.Shared), dependent, buf, C.size_t(len(args)))
	if r != 0 {
		return d.fail("cuLaunchKernel", dv, r, fmt.Sprintf("%s, grid %v, block %v, %d bytes shared, %d of arguments",
			fn.name, *g, *b, cfg.Shared, len(args)))
	}
	return nil
}

// checkLaunch refuses shapes before the driver sees them: it would answer "invalid value" for each.
func checkLaunch(op string, dev int, fn *function, cfg *gpu.LaunchConfig, args int) error {
	if cfg == nil {
		return refuse(op, dev, gpu.ErrInvalidValue, "%s: no launch configuration", fn.name)
	}
	g, b := cfg.Grid, cfg.Block
	if g.X == 0 || g.Y == 0 || g.Z == 0 || b.X == 0 || b.Y == 0 || b.Z == 0 {
		return refuse(op, dev, gpu.ErrInvalidValue, "%s: grid %v, block %v: a component is zero", fn.name, g, b)
	}
	// The limits of every architecture since sm_30 (CUDA programming guide, compute capabilities).
	if g.X > 1<<31-1 || g.Y > 65535 || g.Z > 65535 {
		return refuse(op, dev, gpu.ErrInvalidValue, "%s: grid %v is beyond 2147483647 × 65535 × 65535", fn.name, g)
	}
	if b.X > 1024 || b.Y > 1024 || b.Z > 64 || b.Count() > uint64(fn.info.MaxThreads) {
		return refuse(op, dev, gpu.ErrInvalidValue, "%s: block %v has %d threads; this kernel can have %d here, and at most 1024 × 1024 × 64",
			fn.name, b, b.Count(), fn.info.MaxThreads)
	}
	if fn.paramBytes >= 0 && args != fn.paramBytes {
		return refuse(op, dev, gpu.ErrInvalidValue, "%s: %d bytes of arguments; its parameters take %d", fn.name, args, fn.paramBytes)
	}
	return nil
}
