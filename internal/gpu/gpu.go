// Package gpu is the driver seam: the small, driver-shaped interface that the
// rest of Fenceline runs on. It has two implementations, internal/cuda (the real
// driver, through dlopen) and internal/emu (emulated devices that run the same
// PTX), and one conformance suite, internal/gpu/gputest, that holds both to the
// same contract.
//
// The contract in short:
//
//   - Devices are named by ordinal, 0 ≤ dev < DeviceCount(). Every call that
//     touches a device takes its ordinal, sets what context it needs, and is safe
//     from any goroutine.
//   - Handles (Stream, Event, …) are opaque, never zero when valid, and belong to
//     the device they were made for. Whoever creates a handle destroys it.
//   - Work is asynchronous and ordered within a stream. A failure of asynchronous
//     work is returned by a later call on that device, as on CUDA; a fault
//     (illegal address and its like) is sticky: the device answers every later
//     call with the same error until the driver is closed.
//   - No call blocks without a bound, except CopyIn and CopyOut, which wait for the
//     work already queued on their stream.
//   - What an implementation cannot do is an error matching ErrNotSupported.
package gpu

import "time"

// Ptr is an address in the unified address space of a driver: device memory of any
// device, or pinned host memory. Zero is null.
type Ptr uint64

// Opaque handles. Zero is never a valid handle.
type (
	Stream    uintptr
	Event     uintptr
	Module    uintptr
	Function  uintptr
	Graph     uintptr
	GraphExec uintptr
)

// DriverInfo says which driver this is.
type DriverInfo struct {
	Name     string `json:"name"`     // "cuda" or "emu"
	Emulated bool   `json:"emulated"` // true when no GPU executes anything
	Version  int    `json:"version"`  // CUDA driver API version, 1000*major + 10*minor: 13000 is 13.0
	Detail   string `json:"detail"`   // library path and version, or the emulated machine's name and seed
}

// DeviceInfo describes one device. Sizes are bytes.
type DeviceInfo struct {
	Ordinal            int      `json:"ordinal"`
	Name               string   `json:"name"`
	UUID               [16]byte `json:"-"` // see UUIDString
	PCI                string   `json:"pci"`
	Major              int      `json:"major"` // compute capability
	Minor              int      `json:"minor"`
	SMs                int      `json:"sms"`
	MaxThreadsPerSM    int      `json:"max_threads_per_sm"`
	MaxThreadsPerBlock int      `json:"max_threads_per_block"`
	SharedPerBlock     int      `json:"shared_per_block"`
	TotalMem           uint64   `json:"total_mem"`
	CanMapHost         bool     `json:"can_map_host"`
	// Known to the emulator only: on a real machine NVML has them.
	MIG  bool `json:"mig,omitempty"`  // a MIG instance; false may mean unknown
	NUMA *int `json:"numa,omitempty"` // host NUMA node nearest to the device; nil when unknown
}

// SM is the compute capability as PTX targets write it: 90 for sm_90.
func (d DeviceInfo) SM() int { return d.Major*10 + d.Minor }

// P2PInfo is what the driver claims of the ordered pair (dev reaches peer's memory).
type P2PInfo struct {
	Access        bool `json:"access"`
	NativeAtomics bool `json:"native_atomics"`
	PerfRank      int  `json:"perf_rank"` // lower is faster, 0 is best
	// Link is the path in nvidia-smi's words: NV#, PIX, PXB, PHB, NODE or SYS. Empty when unknown: on a
	// real machine NVML has it.
	Link string `json:"link,omitempty"`
}

// MemKind says where an address points.
type MemKind int

const (
	MemDevice MemKind = iota + 1 // memory of one device
	MemHost                      // pinned host memory, mapped into every device
)

// PointerInfo describes the allocation that holds an address.
type PointerInfo struct {
	Kind   MemKind
	Device int    // owner; -1 for host memory
	Base   Ptr    // start of the allocation
	Size   uint64 // bytes of the whole allocation
}

// HostMem is pinned host memory that every device can read and write at Ptr.
type HostMem struct {
	Ptr   Ptr
	Bytes []byte // the same memory, as the host sees it; valid until HostFree
}

// Dim3 is a grid or block shape. A zero component is refused.
type Dim3 struct{ X, Y, Z uint32 }

// Count is the number of elements of the shape.
func (d Dim3) Count() uint64 { return uint64(d.X) * uint64(d.Y) * uint64(d.Z) }

// LaunchConfig is the shape of one launch.
type LaunchConfig struct {
	Grid, Block Dim3
	Shared      uint32 // dynamic shared memory, bytes
	// Dependent asks for programmatic dependent launch: the kernel may start before
	// the one ahead of it in the stream has ended, and orders itself with
	// griddepcontrol.wait. Only for kernels built for it; a driver that cannot do it
	// runs the launch fully ordered.
	Dependent bool
}

// FunctionInfo is what the driver knows of a loaded kernel.
type FunctionInfo struct {
	MaxThreads   int // largest block it can be launched with
	Registers    int // per thread; 0 when unknown
	StaticShared int // bytes per block
	LocalBytes   int // bytes per thread
}

// Driver is the seam. See the package comment for the contract.
type Driver interface {
	Info() DriverInfo
	DeviceCount() int
	DeviceInfo(dev int) (DeviceInfo, error)
	MemInfo(dev int) (free, total uint64, err error)

	// P2P reports what the driver claims for dev reaching peer's memory. dev == peer is ErrInvalidValue.
	P2P(dev, peer int) (P2PInfo, error)
	// EnablePeerAccess lets kernels and copies on dev reach peer's memory, in that direction
	// only. Already enabled is success. Without P2P access it is ErrPeerAccess.
	EnablePeerAccess(dev, peer int) error
	// DisablePeerAccess takes it away again; not enabled is success.
	DisablePeerAccess(dev, peer int) error

	// MemAlloc returns size bytes of dev's memory, aligned to at least 256 bytes.
	MemAlloc(dev int, size uint64) (Ptr, error)
	// MemFree frees an allocation by its base address. No queued work may still use it: that is the caller's to know.
	MemFree(dev int, p Ptr) error
	HostAlloc(size uint64) (HostMem, error)
	HostFree(m HostMem) error
	// HostLoad32 and HostStore32 access an aligned 32-bit word of pinned memory while kernels may be
	// accessing it too. They are atomic and, in the emulator, let emulated time pass.
	HostLoad32(m HostMem, offset uint64) (uint32, error)
	HostStore32(m HostMem, offset uint64, v uint32) error
	PointerInfo(p Ptr) (PointerInfo, error)

	// Memset fills n bytes at p with value, in stream order.
	Memset(dev int, s Stream, p Ptr, value byte, n uint64) error
	// Copy copies n bytes in stream order between any two addresses that dev can reach or that
	// belong to host memory. For memory of two devices use CopyPeer, which needs no peer access.
	Copy(dev int, s Stream, dst, src Ptr, n uint64) error
	CopyPeer(dev int, s Stream, dst Ptr, dstDev int, src Ptr, srcDev int, n uint64) error
	// CopyIn and CopyOut copy from and to Go memory, after the work queued on s, and return when done.
	CopyIn(dev int, s Stream, dst Ptr, src []byte) error
	CopyOut(dev int, s Stream, dst []byte, src Ptr) error

	// Streams never synchronise with a default stream.
	StreamCreate(dev int) (Stream, error)
	StreamDestroy(dev int, s Stream) error
	// StreamAdopt makes s known, a stream that somebody else made in the device's primary context and keeps: it must outlive
	// its use here, and StreamDestroy only forgets it. A default stream is ErrInvalidHandle; the emulator has none to adopt and
	// says ErrNotSupported.
	StreamAdopt(dev int, s Stream) error
	// StreamCapturing is whether what is queued on s is recorded. Of a capture that is void it says true and ErrCapture.
	StreamCapturing(dev int, s Stream) (bool, error)
	// StreamWait waits up to limit (0: just asks) for the work queued on s to end.
	StreamWait(dev int, s Stream, limit time.Duration) (done bool, err error)
	// StreamWaitEvent makes later work on s wait for what e recorded; e may belong to another device.
	StreamWaitEvent(dev int, s Stream, e Event) error

	EventCreate(dev int, timing bool) (Event, error)
	EventDestroy(dev int, e Event) error
	EventRecord(dev int, e Event, s Stream) error
	// EventWait is StreamWait for one event. An event never recorded is done.
	EventWait(dev int, e Event, limit time.Duration) (done bool, err error)
	// EventElapsed is the device time between two recorded and finished timing events.
	EventElapsed(dev int, from, to Event) (time.Duration, error)

	// ModuleLoad compiles PTX text for dev and loads it completely (no lazy loading). name is for messages.
	ModuleLoad(dev int, name string, ptx []byte) (Module, error)
	ModuleUnload(dev int, m Module) error
	// ModuleFunction finds an entry. An unknown name is ErrNotFound.
	ModuleFunction(dev int, m Module, entry string) (Function, error)
	FunctionInfo(dev int, f Function) (FunctionInfo, error)
	// MaxActiveBlocks is how many blocks of this shape can be resident on one SM.
	MaxActiveBlocks(dev int, f Function, threads int, shared uint32) (int, error)
	// Launch queues the kernel. args is the parameter buffer, laid out as the entry declares
	// (each parameter at its natural alignment); it is copied before Launch returns. It allocates nothing.
	Launch(dev int, s Stream, f Function, cfg *LaunchConfig, args []byte) error

	// BeginCapture starts recording work queued on s instead of running it. Streams that wait on an
	// event recorded in the capture join it. Events must join back to s before EndCapture.
	BeginCapture(dev int, s Stream) error
	EndCapture(dev int, s Stream) (Graph, error)
	GraphInstantiate(dev int, g Graph) (GraphExec, error)
	GraphLaunch(dev int, x GraphExec, s Stream) error
	GraphDestroy(dev int, g Graph) error
	GraphExecDestroy(dev int, x GraphExec) error

	// Live counts what was created and not yet destroyed, for leak checks.
	Live() Counts
	// Close releases everything. Calls after Close are ErrClosed.
	Close() error
}

// Counts is the number of live objects of each kind.
type Counts struct {
	Allocs, HostAllocs, Streams, Events, Modules, Graphs, GraphExecs int
}
