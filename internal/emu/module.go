package emu

import (
	"crypto/sha256"
	"fmt"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// module is PTX loaded on one device: the code, and memory for its variables.
type module struct {
	dev      *device
	name     string
	code     *ptx.Module
	vars     []*area
	globals  []uint64 // their addresses, as ptx.Launch wants them
	funcs    map[string]gpu.Function
	unloaded bool
}

func (m *module) owner() *device { return m.dev }

// function is one entry of a loaded module.
type function struct {
	module *module
	name   string
	kernel *ptx.Kernel
}

func (f *function) owner() *device { return f.module.dev }

// maxThreads is the largest block it can be launched with.
func (f *function) maxThreads() int {
	if n := int(f.kernel.Sig.MaxThreads); n > 0 {
		return min(n, maxThreadsPerBlock)
	}
	return maxThreadsPerBlock
}

func (d *driver) ModuleLoad(dev int, name string, text []byte) (gpu.Module, error) {
	const op = "ModuleLoad"
	d.lock()
	defer d.mu.Unlock()
	v, err := d.healthy(op, dev)
	if err != nil {
		return 0, err
	}
	code, err := d.parse(op, v, name, text)
	if err != nil {
		return 0, err
	}
	m := &module{dev: v, name: name, code: code, funcs: map[string]gpu.Function{}}
	for i := range code.Globals {
		g := &code.Globals[i]
		a := v.mem.alloc(uint64(max(g.Size, 1)), fmt.Sprintf("variable %s of %s", g.Name, name), false)
		if a == nil {
			m.release(d)
			return 0, fail(op, dev, gpu.ErrOutOfMemory, "%d bytes for the variable %s of %s, %d of %d free", g.Size, g.Name, name, v.mem.limit-v.mem.used, v.mem.limit)
		}
		clear(a.data) // variables without an initialiser are zero
		copy(a.data, g.Init)
		m.vars, m.globals = append(m.vars, a), append(m.globals, a.base)
	}
	h := gpu.Module(d.handle())
	d.modules[h] = m
	d.counts.Modules++
	return h, nil
}

// parse compiles, or finds what it compiled before.
func (d *driver) parse(op string, v *device, name string, text []byte) (*ptx.Module, error) {
	info, err := ptx.Signatures(name, text)
	if err != nil {
		return nil, fail(op, v.ordinal, gpu.ErrInvalidPTX, "%v", err)
	}
	if newest := gpu.NewestPTX(driverVersion); info.Version > newest {
		return nil, fail(op, v.ordinal, gpu.ErrDriverTooOld, "%s is PTX %d.%d, this driver (CUDA %d.%d) reads PTX up to %d.%d; build it with an older .version, or update the driver",
			name, info.Version/10, info.Version%10, driverVersion/1000, driverVersion%1000/10, newest/10, newest%10)
	}
	if info.SM > v.info.SM() {
		return nil, fail(op, v.ordinal, gpu.ErrInvalidPTX, "%s is for %s and newer, device %d is sm_%d; build it with an older .target", name, info.Target, v.ordinal, v.info.SM())
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d %s", len(name), name)
	h.Write(text)
	key := [32]byte(h.Sum(nil))
	if code, ok := d.parsed[key]; ok {
		return code, nil
	}
	code, err := ptx.Parse(name, text)
	if err != nil {
		return nil, fail(op, v.ordinal, gpu.ErrInvalidPTX, "%v", err)
	}
	d.parsed[key] = code
	return code, nil
}

// release frees the variables.
func (m *module) release(d *driver) {
	for _, a := range m.vars {
		m.dev.mem.free(a)
	}
	d.generation++
}

func (d *driver) ModuleUnload(dev int, h gpu.Module) error {
	const op = "ModuleUnload"
	d.lock()
	defer d.mu.Unlock()
	v, err := d.device(op, dev)
	if err != nil {
		return err
	}
	m, err := lookup(d, op, dev, d.modules, h, "module")
	if err != nil {
		return err
	}
	m.release(d)
	m.unloaded = true
	for _, f := range m.funcs {
		delete(d.funcs, f)
	}
	delete(d.modules, h)
	d.counts.Modules--
	return v.fault
}

func (d *driver) ModuleFunction(dev int, h gpu.Module, entry string) (gpu.Function, error) {
	const op = "ModuleFunction"
	d.lock()
	defer d.mu.Unlock()
	if _, err := d.healthy(op, dev); err != nil {
		return 0, err
	}
	m, err := lookup(d, op, dev, d.modules, h, "module")
	if err != nil {
		return 0, err
	}
	if f, ok := m.funcs[entry]; ok {
		return f, nil
	}
	k, ok := m.code.Kernel(entry)
	if !ok {
		names := make([]string, len(m.code.Info.Entries))
		for i := range names {
			names[i] = m.code.Info.Entries[i].Name
		}
		return 0, fail(op, dev, gpu.ErrNotFound, "%s has no entry %q; it has %q", m.name, entry, names)
	}
	f := gpu.Function(d.handle())
	m.funcs[entry] = f
	d.funcs[f] = &function{module: m, name: entry, kernel: k}
	return f, nil
}

// FunctionInfo implements gpu.Driver. Registers is unknown: only real hardware allocates them.
func (d *driver) FunctionInfo(dev int, h gpu.Function) (gpu.FunctionInfo, error) {
	d.lock()
	defer d.mu.Unlock()
	f, err := d.function("FunctionInfo", dev, h)
	if err != nil {
		return gpu.FunctionInfo{}, err
	}
	return gpu.FunctionInfo{MaxThreads: f.maxThreads(), StaticShared: f.kernel.StaticShared, LocalBytes: f.kernel.Local}, nil
}

func (d *driver) function(op string, dev int, h gpu.Function) (*function, error) {
	if _, err := d.healthy(op, dev); err != nil {
		return nil, err
	}
	return lookup(d, op, dev, d.funcs, h, "function")
}

func (d *driver) MaxActiveBlocks(dev int, h gpu.Function, threads int, shared uint32) (int, error) {
	const op = "MaxActiveBlocks"
	d.lock()
	defer d.mu.Unlock()
	f, err := d.function(op, dev, h)
	if err != nil {
		return 0, err
	}
	if threads < 1 || threads > f.maxThreads() {
		return 0, fail(op, dev, gpu.ErrInvalidValue, "%d threads a block; %s takes 1 to %d", threads, f.name, f.maxThreads())
	}
	return f.module.dev.arch.residentBlocks(threads, f.kernel.StaticShared+int(shared)), nil
}
