//go:build linux && cgo

package cuda

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "tramp.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"strings"
	"unsafe"

	"github.com/fenceline/fenceline/internal/gpu"
)

// minDriver is the oldest CUDA driver version that has every required function: 11.4, the R470 branch.
const minDriver = 11040

func openLibrary(path string) (gpu.Driver, error) {
	lib, err := loadLibrary(path)
	if err != nil {
		return nil, err
	}
	d := &driver{lib: lib, path: libraryPath(lib, path)}
	if err := d.start(); err != nil {
		return nil, err
	}
	return d, nil
}

// loadLibrary opens path and fills the table, without calling into the driver beyond its version: a driver
// that is too old is said to be too old, not to lack this or that function.
func loadLibrary(path string) (*C.fl_lib, error) {
	if path == "" || strings.IndexByte(path, 0) >= 0 {
		return nil, openError(gpu.ErrInvalidValue, 0, "", fmt.Sprintf("library path %q", path))
	}
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	msg := make([]byte, 512)
	lib := C.fl_open(cpath, (*C.char)(unsafe.Pointer(&msg[0])), C.size_t(len(msg)))
	if lib == nil {
		why := cString(msg)
		if absent(path, why) {
			return nil, openError(gpu.ErrNoDriver, 0, "", fmt.Sprintf("dlopen %s: %s: install NVIDIA's driver to use a GPU", path, why))
		}
		return nil, openError(gpu.ErrUnknown, 0, "", fmt.Sprintf("dlopen %s: %s: the driver library is there and does not load", path, why))
	}
	if err := checkLibrary(lib, path); err != nil {
		C.fl_drop(lib)
		return nil, err
	}
	return lib, nil
}

func checkLibrary(lib *C.fl_lib, path string) error {
	if lib.cuDriverGetVersion != nil {
		var v C.int
		if r := C.fl_version(lib, &v); r != 0 {
			return libError(lib, "cuDriverGetVersion", int(r), path)
		}
		if v < minDriver {
			return openError(gpu.ErrDriverTooOld, 0, "", fmt.Sprintf("%s is a driver for CUDA %s; CUDA %s or newer is needed (driver branch R470): update it",
				path, gpu.CUDAVersion(int(v)), gpu.CUDAVersion(minDriver)))
		}
	}
	var names []string
	for n := 0; ; n++ {
		s := C.fl_missing(lib, C.int(n))
		if s == nil {
			break
		}
		names = append(names, C.GoString(s))
	}
	if len(names) > 0 {
		return openError(gpu.ErrMissingSymbol, 0, "", fmt.Sprintf("%s lacks %s: it is not a complete NVIDIA driver library; reinstall or update the driver",
			path, strings.Join(names, ", ")))
	}
	return nil
}

// absent tells a missing library from one that is there and cannot be loaded. Only the first means "no GPU
// here". The loader's text is all that dlopen gives: glibc and musl both name the path first, and both use
// the same words for a missing dependency, but about another file.
func absent(path, why string) bool {
	if !strings.Contains(why, "No such file or directory") || strings.Contains(why, "needed by") {
		return false
	}
	return strings.HasPrefix(why, path+":") || strings.HasPrefix(why, "Error loading shared library "+path+":")
}

// start initialises CUDA and describes the devices. Contexts come later, on first use: each costs hundreds of
// megabytes of device memory.
func (d *driver) start() error {
	var v C.int
	if r := C.fl_version(d.lib, &v); r != 0 {
		return libError(d.lib, "cuDriverGetVersion", int(r), d.path)
	}
	d.version = int(v)
	r := C.fl_init(d.lib)
	d.handlers.Add(int64(C.fl_signals(1)))
	if r != 0 {
		return libError(d.lib, "cuInit", int(r), d.path)
	}
	var n C.int
	if r := C.fl_device_count(d.lib, &n); r != 0 {
		return libError(d.lib, "cuDeviceGetCount", int(r), d.path)
	}
	if n <= 0 {
		return openError(gpu.ErrNoDriver, 0, "", d.path+" reports zero devices: check CUDA_VISIBLE_DEVICES, and in a container that devices are passed through")
	}
	for i := range int(n) {
		dv, err := d.describe(i)
		if err != nil {
			return err
		}
		d.devs = append(d.devs, dv)
	}
	d.mem.init()
	d.streams = map[gpu.Stream]*stream{}
	d.events = map[gpu.Event]*event{}
	d.modules = map[gpu.Module]*module{}
	d.funcs = map[gpu.Function]*function{}
	d.graphs = map[gpu.Graph]int{}
	d.execs = map[gpu.GraphExec]int{}
	return nil
}

func (d *driver) describe(i int) (*device, error) {
	var c C.fl_device
	if r := C.fl_device_get(d.lib, C.int(i), &c); r != 0 {
		err := libError(d.lib, "cuDeviceGetAttribute", int(r), d.path)
		err.Device = i
		return nil, err
	}
	dv := &device{ord: i, cu: c.cu, info: gpu.DeviceInfo{
		Ordinal: i, Name: C.GoString(&c.name[0]), PCI: C.GoString(&c.pci[0]),
		Major: int(c.major), Minor: int(c.minor), SMs: int(c.sms),
		MaxThreadsPerSM: int(c.threadsPerSM), MaxThreadsPerBlock: int(c.threadsPerBlock),
		SharedPerBlock: int(c.sharedPerBlock), TotalMem: uint64(c.total), CanMapHost: c.canMapHost != 0,
	}}
	for k, b := range c.uuid.bytes {
		dv.info.UUID[k] = byte(b)
	}
	// The seam has one address space. Every 64-bit device since Fermi shares it with the host.
	if c.unified == 0 {
		return nil, &gpu.Error{Op: "Open", Device: i, Kind: gpu.ErrNotSupported,
			Detail: dv.info.Name + " has no unified addressing: leave it out with CUDA_VISIBLE_DEVICES"}
	}
	return dv, nil
}

func libraryPath(lib *C.fl_lib, asked string) string {
	buf := make([]byte, 4096)
	if C.fl_path(lib, (*C.char)(unsafe.Pointer(&buf[0])), C.size_t(len(buf))) == 0 {
		return asked
	}
	return cString(buf)
}

func openError(kind error, code int, name, detail string) *gpu.Error {
	return &gpu.Error{Op: "Open", Device: -1, Code: code, Name: name, Detail: detail, Kind: kind}
}

// libError is a failure before there are devices. Only an absent device may look like an absent driver.
func libError(lib *C.fl_lib, op string, code int, path string) *gpu.Error {
	e := driverError(lib, op, code)
	switch {
	case e.Detail == "":
		e.Detail = path
	default:
		e.Detail = path + ": " + e.Detail
	}
	return e
}

// driverError describes a CUresult, or a negative result that stands for a missing function.
func driverError(lib *C.fl_lib, op string, code int) *gpu.Error {
	if code < 0 {
		return &gpu.Error{Op: op, Device: -1, Kind: gpu.ErrNotSupported,
			Detail: "this libcuda lacks " + symbolName(code) + ": update the driver to use this"}
	}
	r := lookup(code)
	if r.name == "" {
		if s := C.fl_error_name(lib, C.int(code)); s != nil {
			r.name = C.GoString(s)
		} else {
			r.name = "unknown CUresult"
		}
	}
	return &gpu.Error{Op: op, Device: -1, Code: code, Name: r.name, Detail: r.remedy, Kind: r.kind}
}

func symbolName(code int) string {
	if s := C.fl_symbol(C.int(code)); s != nil {
		return C.GoString(s)
	}
	return "a function"
}

// handlersWithoutAltStack counts signal handlers that Go could not survive on a thread running its own stack.
func handlersWithoutAltStack() int { return int(C.fl_signals(0)) }

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
