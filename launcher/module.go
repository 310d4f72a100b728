package launcher

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// Module is PTX loaded on one device.
type Module struct {
	rt   *Runtime
	dev  int
	name string
	info *ptx.Info
	h    gpu.Module
	life life

	mu      sync.Mutex
	kernels map[string]*Kernel
}

// Load compiles PTX text for dev and loads it completely, so that no later launch has to. name is
// for messages, usually the file's name. PTX that does not parse, compile or suit the device is
// ErrInvalidPTX; PTX newer than the driver is ErrDriverTooOld and names the driver needed.
//
// The driver waits for the kernels that run on dev, as long as they take, and launches none there meanwhile: load ahead of a kernel that waits
// for one that is yet to be launched.
func (rt *Runtime) Load(dev int, name string, ptx []byte) (*Module, error) {
	ms, err := rt.LoadAll([]int{dev}, name, ptx)
	if err != nil {
		return nil, err
	}
	return ms[0], nil
}

// LoadAll is Load on several devices at once. The modules come in the order of devs; a device
// named twice gets one module, twice in the result. On failure nothing stays loaded.
func (rt *Runtime) LoadAll(devs []int, name string, ptx []byte) ([]*Module, error) {
	info, err := rt.signatures(devs, name, ptx)
	if err != nil {
		return nil, err
	}
	byDev := make(map[int]*Module)
	for _, dev := range devs {
		byDev[dev] = &Module{rt: rt, dev: dev, name: name, info: info, kernels: make(map[string]*Kernel)}
	}
	var wg sync.WaitGroup
	errs := make([]error, len(rt.devices))
	for dev, m := range byDev {
		wg.Go(func() { m.h, errs[dev] = rt.d.ModuleLoad(dev, name, ptx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		for dev, m := range byDev {
			if errs[dev] == nil {
				err = errors.Join(err, m.Close())
			}
		}
		return nil, fmt.Errorf("load %s: %w", name, err)
	}
	ms := make([]*Module, len(devs))
	for i, dev := range devs {
		ms[i] = byDev[dev]
	}
	return ms, nil
}

// signatures reads the declarations and checks them against all of devs.
func (rt *Runtime) signatures(devs []int, name string, src []byte) (*ptx.Info, error) {
	const op = "Load"
	if err := rt.alive(op); err != nil {
		return nil, err
	}
	if len(devs) == 0 {
		return nil, invalid(op, -1, "no device to load %s on", name)
	}
	for _, dev := range devs {
		if err := rt.check(op, dev); err != nil {
			return nil, err
		}
	}
	info, err := ptx.Signatures(name, src)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w: %w", name, gpu.ErrInvalidPTX, err)
	}
	for _, dev := range devs {
		if err := rt.suits(dev, info); err != nil {
			return nil, err
		}
	}
	return info, nil
}

// Device is the ordinal of the device the module is loaded on.
func (m *Module) Device() int { return m.dev }

// Name is the name given to Load.
func (m *Module) Name() string { return m.name }

func (m *Module) String() string { return fmt.Sprintf("module %s of device %d", m.name, m.dev) }

// Entries lists the names of the module's kernels, in the order of the PTX.
func (m *Module) Entries() []string {
	names := make([]string, len(m.info.Entries))
	for i := range m.info.Entries {
		names[i] = m.info.Entries[i].Name
	}
	return names
}

// Kernel finds an entry by its name in the PTX. An unknown name is ErrNotFound and lists those
// there are. The kernel needs no closing; it ends with the module.
func (m *Module) Kernel(entry string) (*Kernel, error) {
	if err := m.use("Kernel"); err != nil {
		return nil, err
	}
	defer m.life.Leave()
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.kernels[entry]; k != nil {
		return k, nil
	}
	sig, ok := m.info.Entry(entry)
	if !ok {
		have := strings.Join(m.Entries(), ", ")
		if have == "" {
			have = "none"
		}
		return nil, &gpu.Error{Op: "Kernel", Device: m.dev, Kind: gpu.ErrNotFound,
			Detail: fmt.Sprintf(`%s has no entry %q, but %s; C++ kernels need extern "C" to keep their names`, m.name, entry, have)}
	}
	f, err := m.rt.d.ModuleFunction(m.dev, m.h, entry)
	if err != nil {
		return nil, fmt.Errorf("kernel %s of %s: %w", entry, m.name, err)
	}
	fi, err := m.rt.d.FunctionInfo(m.dev, f)
	if err != nil {
		return nil, fmt.Errorf("kernel %s of %s: %w", entry, m.name, err)
	}
	k := &Kernel{m: m, name: entry, f: f, info: fi, sig: *sig, maxThreads: uint64(max(fi.MaxThreads, 0))}
	if n := uint64(sig.MaxThreads); n > 0 {
		k.maxThreads = min(k.maxThreads, n)
	}
	k.sig.Params = slices.Clone(sig.Params)
	m.kernels[entry] = k
	return k, nil
}

// Close unloads the module. No kernel of it may still be running. Closing again does nothing.
func (m *Module) Close() error {
	return m.life.end(m.rt, func() error {
		if err := m.rt.d.ModuleUnload(m.dev, m.h); err != nil {
			return fmt.Errorf("close %s: %w", m, err)
		}
		return nil
	})
}

func (m *Module) use(op string) error {
	if err := m.rt.alive(op); err != nil {
		return err
	}
	if !m.life.Enter() {
		return &ClosedError{op, m.String()}
	}
	return nil
}
