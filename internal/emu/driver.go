package emu

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/ptx"
)

// driver implements gpu.Driver. One mutex guards everything: the machine, and so the memory that
// emulated kernels touch.
type driver struct {
	cfg     Config
	machine *Machine
	devices []*device
	host    *space
	epoch   time.Time // with a monotonic reading; the clock counts from it

	// urgent counts the callers that wait for the mutex but not for time to pass. A driving call
	// lets them in before its slice ends.
	urgent atomic.Int32

	mu         sync.Mutex
	closed     bool
	generation uint64 // see view.Generation
	counts     gpu.Counts
	handles    uintptr // the last handle given out, of any kind

	streams map[gpu.Stream]*stream
	events  map[gpu.Event]*event
	modules map[gpu.Module]*module
	funcs   map[gpu.Function]*function
	graphs  map[gpu.Graph]*graph
	execs   map[gpu.GraphExec]*graphExec
	parsed  map[[32]byte]*ptx.Module // by name and text: ranks load the same PTX again and again
	queues  []*stream                // all streams with work, and those not destroyed, in order of creation

	sched scheduler
}

func newDriver(cfg Config, m *Machine) *driver {
	d := &driver{
		cfg: cfg, machine: m, epoch: time.Now(), host: newSpace(hostOwner, maxHostMem), generation: 1,
		streams: map[gpu.Stream]*stream{}, events: map[gpu.Event]*event{}, modules: map[gpu.Module]*module{},
		funcs: map[gpu.Function]*function{}, graphs: map[gpu.Graph]*graph{}, execs: map[gpu.GraphExec]*graphExec{},
		parsed: map[[32]byte]*ptx.Module{},
	}
	d.sched.rng = rand.New(rand.NewPCG(cfg.Seed, 0x66656e63656c696e)) // any constant; it names the stream of numbers
	d.sched.clock = d.clock
	d.sched.smid = func([3]uint32) uint32 { return d.sched.placing }
	for i := range cfg.Devices {
		d.devices = append(d.devices, newDevice(d, i))
	}
	return d
}

// lock is for calls that do not let time pass. A driving call notices and makes way.
func (d *driver) lock() {
	d.urgent.Add(1)
	d.mu.Lock()
	d.urgent.Add(-1)
}

// clock is %globaltimer: nanoseconds of the wall clock, never going back.
func (d *driver) clock() uint64 {
	return uint64(d.epoch.UnixNano()) + uint64(time.Since(d.epoch))
}

// handle is a new handle, unlike any other of any kind.
func (d *driver) handle() uintptr {
	d.handles++
	return 0x1000 + d.handles*0x10
}

// fail makes a typed error.
func fail(op string, dev int, kind error, format string, args ...any) error {
	return &gpu.Error{Op: op, Device: dev, Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

func closedError(op string) error { return fail(op, -1, gpu.ErrClosed, "") }

// device checks the ordinal and that the driver is open. It does not look at faults.
func (d *driver) device(op string, dev int) (*device, error) {
	if d.closed {
		return nil, closedError(op)
	}
	if dev < 0 || dev >= len(d.devices) {
		return nil, fail(op, -1, gpu.ErrInvalidValue, "device %d of %d", dev, len(d.devices))
	}
	return d.devices[dev], nil
}

// healthy is device for calls that a fault forbids.
func (d *driver) healthy(op string, dev int) (*device, error) {
	v, err := d.device(op, dev)
	if err != nil {
		return nil, err
	}
	return v, v.fault
}

func (d *driver) Info() gpu.DriverInfo {
	return gpu.DriverInfo{Name: "emu", Emulated: true, Version: driverVersion,
		Detail: fmt.Sprintf("emulated machine %q (%s), %d devices, seed %d", d.machine.Name, d.machine.Description, len(d.devices), d.cfg.Seed)}
}

func (d *driver) DeviceCount() int { return len(d.devices) }

func (d *driver) DeviceInfo(dev int) (gpu.DeviceInfo, error) {
	d.lock()
	defer d.mu.Unlock()
	v, err := d.device("DeviceInfo", dev)
	if err != nil {
		return gpu.DeviceInfo{}, err
	}
	return v.info, nil
}

// P2P implements gpu.Driver. What it says is the machine's claim.
func (d *driver) P2P(dev, peer int) (gpu.P2PInfo, error) {
	d.lock()
	defer d.mu.Unlock()
	v, err := d.pair("P2P", dev, peer)
	if err != nil {
		return gpu.P2PInfo{}, err
	}
	return v.links[peer].Claim, nil
}

func (d *driver) EnablePeerAccess(dev, peer int) error {
	const op = "EnablePeerAccess"
	d.lock()
	defer d.mu.Unlock()
	v, err := d.pair(op, dev, peer)
	if err != nil {
		return err
	}
	if v.fault != nil {
		return v.fault
	}
	if !v.links[peer].Claim.Access {
		return fail(op, dev, gpu.ErrPeerAccess, "the machine %q has no P2P from device %d to device %d; copy with Stream.Copy, which needs none", d.machine.Name, dev, peer)
	}
	v.peers[peer] = true
	return nil
}

func (d *driver) DisablePeerAccess(dev, peer int) error {
	d.lock()
	defer d.mu.Unlock()
	v, err := d.pair("DisablePeerAccess", dev, peer)
	if err != nil {
		return err
	}
	if v.fault != nil {
		return v.fault
	}
	v.peers[peer] = false
	d.generation++
	return nil
}

// pair checks two ordinals, which must differ.
func (d *driver) pair(op string, dev, peer int) (*device, error) {
	v, err := d.device(op, dev)
	if err != nil {
		return nil, err
	}
	if _, err := d.device(op, peer); err != nil {
		return nil, err
	}
	if dev == peer {
		return nil, fail(op, dev, gpu.ErrInvalidValue, "a device is no peer of itself")
	}
	return v, nil
}

func (d *driver) Live() gpu.Counts {
	d.lock()
	defer d.mu.Unlock()
	return d.counts
}

// Close drops all work, running or queued, and frees everything. A call that waits meanwhile ends with ErrClosed.
func (d *driver) Close() error {
	d.lock()
	defer d.mu.Unlock()
	if d.closed {
		return closedError("Close")
	}
	d.closed = true
	d.counts = gpu.Counts{}
	d.sched.stop()
	d.streams, d.events, d.modules, d.funcs, d.graphs, d.execs = nil, nil, nil, nil, nil, nil
	d.queues, d.parsed = nil, nil
	d.host = nil
	for _, v := range d.devices {
		v.mem, v.grids = nil, nil
	}
	return nil
}
