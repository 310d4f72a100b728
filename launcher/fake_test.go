package launcher

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

// fake is a driver that runs everything at once on Go memory and executes no kernel. It checks
// that handles are alive and on their own device, as a real driver would not.
type fake struct {
	version, sm int
	devices     int
	stuck       atomic.Bool // streams and events never finish
	fail        atomic.Pointer[gpu.Error]
	failOn      string
	log         bool // note calls in calls; off for the allocation tests

	mu        sync.Mutex
	next      uintptr
	mem       map[gpu.Ptr]fakeMem
	handles   map[uintptr]fakeHandle
	dependent bool // the last launch
	calls     []string
	closed    bool
	launches  atomic.Int64
	lastArgs  []byte
}

type fakeMem struct {
	dev  int
	data []byte
}

type fakeHandle struct {
	kind string
	dev  int
}

func newFake(devices int) *fake {
	return &fake{version: 12020, sm: 90, devices: devices, next: 0x1000, log: true,
		mem: make(map[gpu.Ptr]fakeMem), handles: make(map[uintptr]fakeHandle)}
}

// openFake gives a runtime that must be closed clean, or by the test itself.
func openFake(t testing.TB, devices int) (*Runtime, *fake) {
	f := newFake(devices)
	rt := OpenWith(f)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	return rt, f
}

func (f *fake) note(format string, args ...any) error {
	if f.log {
		f.mu.Lock()
		f.calls = append(f.calls, fmt.Sprintf(format, args...))
		f.mu.Unlock()
	}
	return nil
}

func (f *fake) noted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fake) failing(op string) error {
	if e := f.fail.Load(); e != nil && f.failOn == op {
		return e
	}
	return nil
}

func (f *fake) create(kind string, dev int) (uintptr, error) {
	if err := f.failing(kind); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	f.handles[f.next] = fakeHandle{kind, dev}
	return f.next, nil
}

func (f *fake) check(kind string, dev int, h uintptr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return gpu.ErrClosed
	}
	if f.handles[h] != (fakeHandle{kind, dev}) {
		return &gpu.Error{Op: kind, Device: dev, Kind: gpu.ErrInvalidHandle}
	}
	return nil
}

func (f *fake) destroy(kind string, dev int, h uintptr) error {
	if err := f.check(kind, dev, h); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.handles, h)
	return nil
}

func (f *fake) Info() gpu.DriverInfo {
	return gpu.DriverInfo{Name: "fake", Emulated: true, Version: f.version, Detail: "test"}
}
func (f *fake) DeviceCount() int { return f.devices }
func (f *fake) DeviceInfo(dev int) (gpu.DeviceInfo, error) {
	if err := f.failing("DeviceInfo"); err != nil {
		return gpu.DeviceInfo{}, err
	}
	return gpu.DeviceInfo{Ordinal: dev, Name: "Fake GPU", Major: f.sm / 10, Minor: f.sm % 10}, nil
}
func (f *fake) MemInfo(int) (uint64, uint64, error) { return 0, 0, gpu.ErrNotSupported }
func (f *fake) P2P(dev, peer int) (gpu.P2PInfo, error) {
	return gpu.P2PInfo{Access: true, PerfRank: 10*dev + peer}, nil
}
func (f *fake) EnablePeerAccess(dev, peer int) error  { return f.note("enable %d %d", dev, peer) }
func (f *fake) DisablePeerAccess(dev, peer int) error { return f.note("disable %d %d", dev, peer) }

func (f *fake) alloc(dev int, size uint64) (gpu.Ptr, []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, b := gpu.Ptr((f.next+0x1fff)&^0xfff), make([]byte, size)
	f.next = uintptr(p) + uintptr(size)
	f.mem[p] = fakeMem{dev, b}
	return p, b
}

func (f *fake) MemAlloc(dev int, size uint64) (gpu.Ptr, error) {
	if err := f.failing("MemAlloc"); err != nil {
		return 0, err
	}
	p, _ := f.alloc(dev, size)
	return p, nil
}

func (f *fake) MemFree(dev int, p gpu.Ptr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m, ok := f.mem[p]; !ok || m.dev != dev {
		return gpu.ErrInvalidValue
	}
	delete(f.mem, p)
	return nil
}

func (f *fake) HostAlloc(size uint64) (gpu.HostMem, error) {
	p, b := f.alloc(-1, size)
	return gpu.HostMem{Ptr: p, Bytes: b}, nil
}
func (f *fake) HostFree(m gpu.HostMem) error { return f.MemFree(-1, m.Ptr) }
func (f *fake) HostLoad32(m gpu.HostMem, off uint64) (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint32(f.mem[m.Ptr].data[off]), nil
}
func (f *fake) HostStore32(m gpu.HostMem, off uint64, v uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mem[m.Ptr].data[off] = byte(v)
	return nil
}

func (f *fake) PointerInfo(p gpu.Ptr) (gpu.PointerInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for base, m := range f.mem {
		if p >= base && p < base+gpu.Ptr(len(m.data)) {
			kind := gpu.MemDevice
			if m.dev == -1 {
				kind = gpu.MemHost
			}
			return gpu.PointerInfo{Kind: kind, Device: m.dev, Base: base, Size: uint64(len(m.data))}, nil
		}
	}
	return gpu.PointerInfo{}, &gpu.Error{Op: "PointerInfo", Device: -1, Kind: gpu.ErrInvalidValue}
}

// bytes is the memory at p; out of range is a bug of the launcher and panics.
func (f *fake) bytes(p gpu.Ptr, n uint64) []byte {
	info, err := f.PointerInfo(p)
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mem[info.Base].data[p-info.Base:][:n]
}

func (f *fake) Memset(dev int, s gpu.Stream, p gpu.Ptr, v byte, n uint64) error {
	b := f.bytes(p, n)
	for i := range b {
		b[i] = v
	}
	return f.queued("memset", dev, s)
}
func (f *fake) Copy(dev int, s gpu.Stream, dst, src gpu.Ptr, n uint64) error {
	copy(f.bytes(dst, n), f.bytes(src, n))
	return f.queued("copy", dev, s)
}
func (f *fake) CopyPeer(dev int, s gpu.Stream, dst gpu.Ptr, dstDev int, src gpu.Ptr, srcDev int, n uint64) error {
	copy(f.bytes(dst, n), f.bytes(src, n))
	return f.queued(fmt.Sprintf("peer copy %d<-%d", dstDev, srcDev), dev, s)
}
func (f *fake) CopyIn(dev int, s gpu.Stream, dst gpu.Ptr, src []byte) error {
	copy(f.bytes(dst, uint64(len(src))), src)
	return f.queued("copy in", dev, s)
}
func (f *fake) CopyOut(dev int, s gpu.Stream, dst []byte, src gpu.Ptr) error {
	copy(dst, f.bytes(src, uint64(len(dst))))
	return f.queued("copy out", dev, s)
}

func (f *fake) queued(what string, dev int, s gpu.Stream) error {
	if err := f.check("stream", dev, uintptr(s)); err != nil {
		return err
	}
	return f.note("%s on %d", what, dev)
}

func (f *fake) StreamCreate(dev int) (gpu.Stream, error) {
	h, err := f.create("stream", dev)
	return gpu.Stream(h), err
}
func (f *fake) StreamDestroy(dev int, s gpu.Stream) error {
	return f.destroy("stream", dev, uintptr(s))
}
func (f *fake) StreamAdopt(_ int, _ gpu.Stream) error { return f.failing("adopt") }
func (f *fake) StreamCapturing(_ int, _ gpu.Stream) (bool, error) {
	return false, f.failing("capturing")
}
func (f *fake) StreamWait(dev int, s gpu.Stream, limit time.Duration) (bool, error) {
	return f.waited("stream", dev, uintptr(s), limit)
}
func (f *fake) waited(kind string, dev int, h uintptr, limit time.Duration) (bool, error) {
	if err := f.failing("wait"); err != nil {
		return false, err
	}
	if f.stuck.Load() {
		time.Sleep(limit)
		return false, f.check(kind, dev, h)
	}
	return true, f.check(kind, dev, h)
}
func (f *fake) StreamWaitEvent(dev int, s gpu.Stream, _ gpu.Event) error {
	return f.queued("event wait", dev, s)
}
func (f *fake) EventCreate(dev int, _ bool) (gpu.Event, error) {
	h, err := f.create("event", dev)
	return gpu.Event(h), err
}
func (f *fake) EventDestroy(dev int, e gpu.Event) error { return f.destroy("event", dev, uintptr(e)) }
func (f *fake) EventRecord(dev int, e gpu.Event, s gpu.Stream) error {
	if err := f.check("event", dev, uintptr(e)); err != nil {
		return err
	}
	return f.queued("record", dev, s)
}
func (f *fake) EventWait(dev int, e gpu.Event, limit time.Duration) (bool, error) {
	return f.waited("event", dev, uintptr(e), limit)
}
func (f *fake) EventElapsed(dev int, from, to gpu.Event) (time.Duration, error) {
	if err := f.check("event", dev, uintptr(from)); err != nil {
		return 0, err
	}
	return time.Duration(to-from) * time.Microsecond, f.check("event", dev, uintptr(to))
}

func (f *fake) ModuleLoad(dev int, _ string, _ []byte) (gpu.Module, error) {
	if err := f.failing(fmt.Sprintf("module %d", dev)); err != nil {
		return 0, err
	}
	h, err := f.create("module", dev)
	return gpu.Module(h), err
}
func (f *fake) ModuleUnload(dev int, m gpu.Module) error {
	return f.destroy("module", dev, uintptr(m))
}
func (f *fake) ModuleFunction(dev int, m gpu.Module, _ string) (gpu.Function, error) {
	return gpu.Function(m), f.check("module", dev, uintptr(m))
}
func (f *fake) FunctionInfo(int, gpu.Function) (gpu.FunctionInfo, error) {
	return gpu.FunctionInfo{MaxThreads: 1024, Registers: 8}, nil
}
func (f *fake) MaxActiveBlocks(_ int, _ gpu.Function, threads int, _ uint32) (int, error) {
	return min(32, 2048/threads), nil
}
func (f *fake) Launch(dev int, s gpu.Stream, fn gpu.Function, cfg *gpu.LaunchConfig, args []byte) error {
	f.launches.Add(1)
	if !f.log {
		return nil
	}
	if err := f.check("module", dev, uintptr(fn)); err != nil {
		return err
	}
	f.mu.Lock()
	f.lastArgs, f.dependent = append(f.lastArgs[:0], args...), cfg.Dependent
	f.mu.Unlock()
	return f.queued("launch", dev, s)
}

func (f *fake) BeginCapture(dev int, s gpu.Stream) error { return f.queued("begin", dev, s) }
func (f *fake) EndCapture(dev int, s gpu.Stream) (gpu.Graph, error) {
	if err := f.failing("end"); err != nil {
		return 0, err
	}
	h, _ := f.create("graph", dev)
	return gpu.Graph(h), f.queued("end", dev, s)
}
func (f *fake) GraphInstantiate(dev int, g gpu.Graph) (gpu.GraphExec, error) {
	if err := f.check("graph", dev, uintptr(g)); err != nil {
		return 0, err
	}
	h, err := f.create("exec", dev)
	return gpu.GraphExec(h), err
}
func (f *fake) GraphLaunch(dev int, x gpu.GraphExec, s gpu.Stream) error {
	if err := f.check("exec", dev, uintptr(x)); err != nil {
		return err
	}
	return f.queued("graph", dev, s)
}
func (f *fake) GraphDestroy(dev int, g gpu.Graph) error { return f.destroy("graph", dev, uintptr(g)) }
func (f *fake) GraphExecDestroy(dev int, x gpu.GraphExec) error {
	return f.destroy("exec", dev, uintptr(x))
}

func (f *fake) Live() gpu.Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	var c gpu.Counts
	for _, m := range f.mem {
		if m.dev == -1 {
			c.HostAllocs++
		} else {
			c.Allocs++
		}
	}
	for _, h := range f.handles {
		n := map[string]*int{"stream": &c.Streams, "event": &c.Events, "module": &c.Modules,
			"graph": &c.Graphs, "exec": &c.GraphExecs}[h.kind]
		*n++
	}
	return c
}

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}
