package launcher

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
)

// Info says what a runtime runs on.
type Info struct {
	Backend       string `json:"backend"`        // "cuda" or "emu"
	Emulated      bool   `json:"emulated"`       // true when no GPU executes anything: times mean nothing
	DriverVersion int    `json:"driver_version"` // CUDA driver API version, 1000*major + 10*minor
	Detail        string `json:"detail"`         // library path and version, or the emulated machine
	Why           string `json:"why"`            // why this backend
}

// Device describes one device.
//
//	Ordinal            int      // its number here, from 0
//	Name               string   // "NVIDIA H200"
//	UUID               [16]byte // as NVML and nvidia-smi have it, in binary
//	PCI                string   // bus address
//	Major, Minor       int      // compute capability
//	SMs                int
//	MaxThreadsPerSM    int
//	MaxThreadsPerBlock int
//	SharedPerBlock     int      // bytes of shared memory that a block may have
//	TotalMem           uint64   // bytes
//	CanMapHost         bool     // its kernels can use pinned host memory
//	MIG                bool     // a MIG instance; false on a real machine may mean unknown: topo/nvml knows
//	NUMA               *int     // nearest host NUMA node; nil when unknown
//
// Its method SM is the compute capability as PTX targets have it: 90 for sm_90.
type Device = gpu.DeviceInfo

// P2PInfo is what the driver claims of one device reaching another's memory.
//
//	Access        bool   // it can be enabled with Runtime.EnablePeer
//	NativeAtomics bool   // the link carries atomics
//	PerfRank      int    // lower is faster, 0 is best
//	Link          string // NV#, PIX, PXB, PHB, NODE or SYS; "" when unknown: on a real machine topo/nvml knows
type P2PInfo = gpu.P2PInfo

// Runtime is an open driver and what was made through it.
type Runtime struct {
	d         gpu.Driver
	info      Info
	devices   []Device
	waitLimit time.Duration
	closed    atomic.Bool
	broken    error // the driver could not describe its devices
}

// OpenWith makes a runtime over a driver, which it owns from then on. It is for tests of this
// module; a driver that cannot describe its devices gives a runtime whose calls return that error.
func OpenWith(d gpu.Driver) *Runtime {
	return newRuntime(d, "driver given by the caller", defaultWaitLimit)
}

func newRuntime(d gpu.Driver, why string, limit time.Duration) *Runtime {
	di := d.Info()
	rt := &Runtime{
		d:         d,
		info:      Info{Backend: di.Name, Emulated: di.Emulated, DriverVersion: di.Version, Detail: di.Detail, Why: why},
		waitLimit: limit,
	}
	for dev := range d.DeviceCount() {
		info, err := d.DeviceInfo(dev)
		if err != nil {
			rt.broken = err
			return rt
		}
		rt.devices = append(rt.devices, info)
	}
	return rt
}

// Info says which backend this is and why it was chosen.
func (rt *Runtime) Info() Info { return rt.info }

// Driver is the driver below, for code of this module that needs more than the runtime offers.
func (rt *Runtime) Driver() gpu.Driver { return rt.d }

// Devices lists the devices; a device's index is its ordinal.
func (rt *Runtime) Devices() []Device { return slices.Clone(rt.devices) }

// P2P reports what the driver claims of dev reaching peer's memory. It enables nothing.
func (rt *Runtime) P2P(dev, peer int) (P2PInfo, error) {
	if err := rt.checkPair("P2P", dev, peer); err != nil {
		return P2PInfo{}, err
	}
	return rt.d.P2P(dev, peer)
}

// EnablePeer lets kernels on dev access peer's memory, in that direction only. Already enabled is
// success. A pair without peer access is ErrPeerAccess.
func (rt *Runtime) EnablePeer(dev, peer int) error {
	if err := rt.checkPair("EnablePeer", dev, peer); err != nil {
		return err
	}
	return rt.d.EnablePeerAccess(dev, peer)
}

// DisablePeer takes the access away again. Not enabled is success.
func (rt *Runtime) DisablePeer(dev, peer int) error {
	if err := rt.checkPair("DisablePeer", dev, peer); err != nil {
		return err
	}
	return rt.d.DisablePeerAccess(dev, peer)
}

// Close releases everything the runtime still holds and the driver with it. What others had not
// closed is reported as a *LeakError. Closing again does nothing.
func (rt *Runtime) Close() error {
	if rt.closed.Swap(true) {
		return nil
	}
	live := rt.d.Live()
	if err := rt.d.Close(); err != nil {
		return fmt.Errorf("close runtime: %w", err)
	}
	if live != (gpu.Counts{}) {
		leak := LeakError(live)
		return &leak
	}
	return nil
}

// alive refuses work on a closed or broken runtime.
func (rt *Runtime) alive(op string) error {
	if rt.closed.Load() {
		return &ClosedError{op, "runtime"}
	}
	return rt.broken
}

// check refuses a closed runtime and a device that does not exist.
func (rt *Runtime) check(op string, dev int) error {
	if err := rt.alive(op); err != nil {
		return err
	}
	if n := len(rt.devices); dev < 0 || dev >= n {
		return invalid(op, dev, "no such device: the machine has %d, numbered from 0", n)
	}
	return nil
}

func (rt *Runtime) checkPair(op string, dev, peer int) error {
	if err := rt.check(op, dev); err != nil {
		return err
	}
	if err := rt.check(op, peer); err != nil {
		return err
	}
	if dev == peer {
		return invalid(op, dev, "a device is not its own peer; name two devices")
	}
	return nil
}

// waitSlice is the longest single wait asked of the driver: cancellation of the context and
// closing of the handle are noticed this soon.
const waitSlice = 20 * time.Millisecond

// wait repeats step, which waits up to a limit and says whether it is done, until it is, or
// until ctx or the runtime's own limit ends the wait with t.
func (rt *Runtime) wait(ctx context.Context, t TimeoutError, step func(time.Duration) (bool, error)) error {
	start := time.Now()
	end := start.Add(rt.waitLimit)
	if d, ok := ctx.Deadline(); ok {
		end = d
	}
	for {
		limit := min(waitSlice, time.Until(end))
		expired := limit <= 0 || ctx.Err() != nil
		if expired {
			limit = 0 // still ask once: work that is done is no timeout
		}
		done, err := step(limit)
		if done || err != nil {
			return err
		}
		if expired {
			t.Waited = time.Since(start)
			t.Cause = context.Cause(ctx)
			if t.Cause == nil {
				t.Cause = context.DeadlineExceeded
			}
			return &t
		}
	}
}
