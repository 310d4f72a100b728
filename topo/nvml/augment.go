//go:build cgo && linux && !nonvml

package nvml

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	nv "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/fenceline/fenceline/topo"
)

const libraryName = "libnvidia-ml.so.1"

// required are the symbols without which nothing here works. They are looked up before go-nvml
// runs, because a call to a symbol the library lacks ends the process.
var required = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlDeviceGetHandleByUUID",
}

// opening serialises use of go-nvml: loading and unloading write its package variables.
var opening sync.Mutex

// Augment opens NVML and fills in, for the devices of m found by UUID: PCI address, NUMA node, MIG,
// BAR1 size, NVLink count; and for their pairs: link and its version, and NVML's codes of every peer capability. The driver's own
// answers stay; what NVML could not tell is left as it was and noted in m.Notes.
//
// ErrUnavailable (library absent or unusable, emulated machine) leaves m unchanged. ErrNoMatch
// and ErrQuery name the devices that were left out; the others are filled.
func Augment(m *topo.Machine) error { return augmentFrom(libraryName, m) }

func augmentFrom(path string, m *topo.Machine) error {
	if m.Emulated {
		return emulatedError()
	}
	opening.Lock()
	defer opening.Unlock()
	if err := check(path); err != nil {
		return err
	}
	return augment(nv.New(nv.WithLibraryPath(path)), m)
}

// check opens the library by itself and looks for the required symbols.
func check(path string) error {
	// NODELETE: once a call has been bound to the library, unloading it would leave the
	// binding dangling for the next Augment.
	l := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL|dl.RTLD_NODELETE)
	if err := l.Open(); err != nil {
		return &Error{Op: "open " + path, Kind: ErrUnavailable, Text: err.Error(),
			Detail: "install the NVIDIA driver, or in a container grant the \"utility\" driver capability"}
	}
	defer l.Close() //nolint:errcheck // only the reference is dropped
	for _, s := range required {
		if err := l.Lookup(s); err != nil {
			return &Error{Op: "open " + path, Kind: ErrUnavailable, Text: err.Error(),
				Detail: "the library lacks " + s + ": it is not NVIDIA's, or of a driver too old"}
		}
	}
	return nil
}

// session is an initialised library and the machine being filled.
type session struct {
	lib  nv.Interface
	m    *topo.Machine
	devs []*device // by ordinal, nil when not matched
}

// device is one device of the machine as NVML has it.
type device struct {
	nv.Device      // the GPU; for a MIG instance, the GPU it is part of
	mig       bool // has no links and no peer access of its own
	pci       pciAddr
	links     []link // active NVLinks, nil when unknown
}

// augment is Augment on any implementation of NVML.
func augment(lib nv.Interface, m *topo.Machine) error {
	if m.Emulated {
		return emulatedError()
	}
	// After a failed Init go-nvml keeps its reference to the library; it is pinned anyway.
	if ret := lib.Init(); ret != nv.SUCCESS {
		return &Error{Op: "nvmlInit_v2", Code: int(ret), Text: ret.Error(), Kind: ErrUnavailable, Detail: initRemedy(ret)}
	}
	defer lib.Shutdown()

	s := &session{lib: lib, m: m, devs: make([]*device, len(m.Devices))}
	if s.has("nvmlSystemGetDriverVersion") {
		if v, ret := lib.SystemGetDriverVersion(); ret == nv.SUCCESS {
			m.Driver.Release = v
		}
	}
	var errs []error
	for i := range m.Devices {
		if err := s.match(i); err != nil {
			errs = append(errs, err)
			continue
		}
		s.describe(i)
	}
	for i := range s.devs {
		for j := range s.devs {
			if i != j && s.devs[i] != nil && s.devs[j] != nil {
				s.pair(i, j)
			}
		}
	}
	return errors.Join(errs...)
}

func initRemedy(ret nv.Return) string {
	switch ret {
	case nv.ERROR_DRIVER_NOT_LOADED:
		return "the kernel module is not loaded: modprobe nvidia"
	case nv.ERROR_LIB_RM_VERSION_MISMATCH:
		return "library and kernel module are of different releases: reboot, or reload the nvidia module"
	case nv.ERROR_NO_PERMISSION:
		return "no permission for /dev/nvidiactl"
	case nv.ERROR_LIBRARY_NOT_FOUND:
		return "install the NVIDIA driver"
	}
	return ""
}

// has is whether the library has a function; without it the function must not be called.
// What is missing is noted once.
func (s *session) has(symbol string) bool {
	if s.lib.Extensions().LookupSymbol(symbol) != nil {
		s.m.Note("NVML lacks %s: a newer driver has it", symbol)
		return false
	}
	return true
}

// failed notes a query that NVML did not answer; "not supported" is an answer.
func (s *session) failed(symbol string, ret nv.Return, what string) {
	if ret != nv.ERROR_NOT_SUPPORTED {
		s.m.Note("%s: %s: %s", symbol, what, ret.Error())
	}
}

// match finds device i by UUID. Never by index: NVML's order knows nothing of CUDA_VISIBLE_DEVICES.
func (s *session) match(i int) error {
	uuid := s.m.Devices[i].UUID
	h, ret := s.lib.DeviceGetHandleByUUID(uuid)
	if ret == nv.SUCCESS {
		s.devs[i] = &device{Device: h}
		return nil
	}
	// For a MIG instance CUDA tells the instance's own UUID, which NVML writes with another prefix.
	bare := strings.TrimPrefix(strings.TrimPrefix(uuid, "GPU-"), "MIG-")
	inst, migRet := s.lib.DeviceGetHandleByUUID("MIG-" + bare)
	if migRet == nv.SUCCESS {
		parent := inst
		if s.has("nvmlDeviceGetDeviceHandleFromMigDeviceHandle") {
			if p, r := inst.GetDeviceHandleFromMigDeviceHandle(); r == nv.SUCCESS {
				parent = p
				s.m.Devices[i].Slice = s.slice(p, inst, i)
			}
		}
		s.devs[i] = &device{Device: parent, mig: true}
		return nil
	}
	kind := ErrQuery
	if ret == nv.ERROR_NOT_FOUND || ret == nv.ERROR_INVALID_ARGUMENT {
		kind = ErrNoMatch
	}
	return &Error{Op: "nvmlDeviceGetHandleByUUID", Code: int(ret), Text: ret.Error(), Kind: kind,
		Detail: fmt.Sprintf("device %d, %s (%s)", i, uuid, s.m.Devices[i].Name)}
}
