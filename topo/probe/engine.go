package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/kernels"
	"github.com/fenceline/fenceline/topo"
)

// engine makes probes on one driver, one after the other.
type engine struct {
	d       gpu.Driver
	m       *topo.Machine
	pairs   [][]topo.Measured // what was found so far
	opts    *Options
	devices []*device // by the machine's ordinal; nil until used
	ordinal []int     // the driver's ordinal of each of the machine's devices, -1 where it has none
}

// device is one that has been used: its kernels, and whether it can still be used.
type device struct {
	ord    int // the driver's
	sms    int
	module gpu.Module
	fn     map[string]gpu.Function
	lost   string // why nothing more can run on it
	stuck  bool   // a kernel on it may never end
}

var entries = []string{"fill", "copy", "post", "expect", "add", "ping", "chase"}

// newEngine matches the driver's devices to the machine's by UUID: ordinals differ between processes.
func newEngine(d gpu.Driver, m *topo.Machine, pairs [][]topo.Measured, o *Options) (*engine, error) {
	e := &engine{d: d, m: m, pairs: pairs, opts: o, devices: make([]*device, len(m.Devices)), ordinal: make([]int, len(m.Devices))}
	for i := range e.ordinal {
		e.ordinal[i] = -1
	}
	for ord := range d.DeviceCount() {
		info, err := d.DeviceInfo(ord)
		if err != nil {
			return nil, fmt.Errorf("describe device %d: %w", ord, err)
		}
		if dev, ok := m.Device(gpu.UUIDString(info.UUID)); ok {
			e.ordinal[dev.Ordinal] = ord
		}
	}
	return e, nil
}

// device makes device i of the machine ready.
func (e *engine) device(i int) (*device, error) {
	if e.devices[i] != nil {
		return e.devices[i], nil
	}
	ord := e.ordinal[i]
	if ord < 0 {
		return nil, fmt.Errorf("device %d (%s) is not among those of the driver: check CUDA_VISIBLE_DEVICES", i, e.m.Devices[i].UUID)
	}
	info, err := e.d.DeviceInfo(ord)
	if err != nil {
		return nil, err
	}
	mod, err := kernels.Find("probe", info.SM(), e.d.Info().Version)
	if err != nil {
		return nil, err
	}
	text, err := mod.Text()
	if err != nil {
		return nil, err
	}
	dev := &device{ord: ord, sms: info.SMs, fn: map[string]gpu.Function{}}
	if dev.module, err = e.d.ModuleLoad(ord, mod.File, text); err != nil {
		return nil, err
	}
	for _, name := range entries {
		if dev.fn[name], err = e.d.ModuleFunction(ord, dev.module, "probe_"+name); err != nil {
			return nil, errors.Join(err, e.d.ModuleUnload(ord, dev.module))
		}
	}
	e.devices[i] = dev
	return dev, nil
}

// close unloads the kernels, where none of them is running.
func (e *engine) close() {
	for _, dev := range e.devices {
		if dev != nil && dev.lost == "" && !dev.stuck {
			_ = e.d.ModuleUnload(dev.ord, dev.module) // fails only with its device, and then there is nothing to unload
		}
	}
}

// do makes one probe. What does not work is in the result; the error is for what kept it from being made.
func (e *engine) do(ctx context.Context, it item) (Result, error) {
	st := findStep(it.Step)
	if st == nil {
		return Result{}, fmt.Errorf("%w: there is no probe %q", ErrOptions, it.Step)
	}
	r := Result{Pair: it.Pair, Step: it.Step}
	same := it.Pair.From == it.Pair.To
	claim := e.m.Pairs[it.Pair.From][it.Pair.To]
	if why := e.prevented(st, it.Pair, claim, same); why != "" {
		return r.skipped(st, why), nil
	}
	near, err := e.device(it.Pair.From)
	if err != nil {
		return r, err
	}
	far, err := e.device(it.Pair.To)
	if err != nil {
		return r, err
	}
	for _, dev := range []*device{near, far} {
		if dev.lost != "" {
			return r.skipped(st, dev.lost), nil
		}
	}
	limited, cancel := context.WithTimeout(ctx, e.opts.stepLimit())
	defer cancel()
	s := &session{engine: e, pair: it.Pair, near: &side{device: near}, far: &side{device: far}}
	err = s.run(limited, st, &r)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = &hangError{after: e.opts.stepLimit()}
	}
	if err = errors.Join(err, s.close()); err == nil {
		return r, nil
	}
	return e.finding(r, st, near, far, err)
}

// prevented says why a step is not made at all.
func (e *engine) prevented(st *step, p Pair, claim topo.Pair, same bool) string {
	m, back := &e.pairs[p.From][p.To], &e.pairs[p.To][p.From]
	if st.access >= withOne && !same && claim.Access == topo.No {
		return "the driver gives no peer access"
	}
	if st.access == withBoth && !same && e.m.Pairs[p.To][p.From].Access == topo.No {
		return "the driver gives no peer access in the opposite direction"
	}
	return st.needs(m, back, claim, same)
}

// skipped is the result of a step that was not made.
func (r Result) skipped(st *step, why string) Result {
	if st.number() {
		r.Note = "not measured: " + why
	} else {
		r.Check = &topo.Check{Detail: "not probed: " + why}
	}
	return r
}

// hangError is work that did not end.
type hangError struct{ after time.Duration }

func (e *hangError) Error() string { return fmt.Sprintf("timed out after %v", e.after) }

// finding turns an error that says something about the pair into a result, and returns any other.
func (e *engine) finding(r Result, st *step, near, far *device, err error) (Result, error) {
	var hang *hangError
	lost := false
	switch {
	case errors.As(err, &hang):
		// The emulator goes on beside work that never ends; on a GPU its context is as good as gone.
		lost = !e.m.Emulated
	case errors.Is(err, gpu.ErrIllegalAddress), errors.Is(err, gpu.ErrMisaligned), errors.Is(err, gpu.ErrLaunchFailed),
		errors.Is(err, gpu.ErrDeadlock), errors.Is(err, gpu.ErrUnknown):
		lost = true
	case errors.Is(err, gpu.ErrPeerAccess):
	default:
		return r, err
	}
	if st.number() {
		r.Note = err.Error()
	} else {
		r.Check = &topo.Check{Answer: topo.No, Detail: err.Error()}
	}
	if r.Lost = lost; lost {
		for _, dev := range []*device{near, far} {
			dev.lost = fmt.Sprintf("the process cannot use the device after probe %v, %s: %v", r.Pair, r.Step, err)
		}
	}
	return r, nil
}
