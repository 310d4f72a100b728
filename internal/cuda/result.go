//go:build linux && cgo

package cuda

import (
	"github.com/fenceline/fenceline/internal/gpu"
)

// CUresult values this package acts on (cuda.h, enum cudaError_enum).
const (
	resSuccess            = 0
	resInvalidValue       = 1
	resOutOfMemory        = 2
	resNoDevice           = 100
	resInvalidPTX         = 218
	resUnsupportedPTX     = 222
	resIllegalState       = 401
	resNotReady           = 600
	resPeerUnsupported    = 217
	resPeerAlreadyEnabled = 704
	resPeerNotEnabled     = 705
)

// result is what we know of one CUresult.
type result struct {
	name   string
	kind   error
	sticky bool   // the context is lost: every later call answers the same
	remedy string // empty when the name says it all
}

const (
	driverReinstall = "the user-space driver and the kernel module differ in version: reboot, or reinstall the driver; in a container, use the host's libcuda"
	ptxRemedy       = "the driver's compiler refused it"
)

// results holds the codes whose kind or remedy is more than "unspecified". The driver names the others.
var results = map[int]result{
	resInvalidValue:       {"CUDA_ERROR_INVALID_VALUE", gpu.ErrInvalidValue, false, ""},
	resOutOfMemory:        {"CUDA_ERROR_OUT_OF_MEMORY", gpu.ErrOutOfMemory, false, ""},
	3:                     {"CUDA_ERROR_NOT_INITIALIZED", gpu.ErrUnknown, false, "cuInit failed earlier, or the process forked after it: open the driver after fork"},
	4:                     {"CUDA_ERROR_DEINITIALIZED", gpu.ErrClosed, false, "the driver is shutting down with the process"},
	34:                    {"CUDA_ERROR_STUB_LIBRARY", gpu.ErrUnknown, false, "this is the CUDA toolkit's stub, not a driver: take the toolkit's stubs directory out of LD_LIBRARY_PATH"},
	36:                    {"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", gpu.ErrDriverTooOld, false, "update the driver"},
	46:                    {"CUDA_ERROR_DEVICE_UNAVAILABLE", gpu.ErrUnknown, false, "another process holds the device exclusively, or its compute mode is Prohibited: see nvidia-smi -q -d COMPUTE"},
	resNoDevice:           {"CUDA_ERROR_NO_DEVICE", gpu.ErrNoDriver, false, "the driver is installed and sees no device: check CUDA_VISIBLE_DEVICES, and in a container that devices are passed through"},
	101:                   {"CUDA_ERROR_INVALID_DEVICE", gpu.ErrInvalidValue, false, "CUDA_VISIBLE_DEVICES may name a device that does not exist"},
	102:                   {"CUDA_ERROR_DEVICE_NOT_LICENSED", gpu.ErrNotSupported, false, "the virtual GPU has no licence for compute"},
	200:                   {"CUDA_ERROR_INVALID_IMAGE", gpu.ErrInvalidPTX, false, ptxRemedy},
	209:                   {"CUDA_ERROR_NO_BINARY_FOR_GPU", gpu.ErrInvalidPTX, false, "its .target is newer than the device"},
	214:                   {"CUDA_ERROR_ECC_UNCORRECTABLE", gpu.ErrLaunchFailed, true, "uncorrectable memory error: see nvidia-smi -q -d ECC and reset the device"},
	resPeerUnsupported:    {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", gpu.ErrPeerAccess, false, "the devices cannot reach each other: see nvidia-smi topo -p2p r"},
	resInvalidPTX:         {"CUDA_ERROR_INVALID_PTX", gpu.ErrInvalidPTX, false, ptxRemedy},
	220:                   {"CUDA_ERROR_NVLINK_UNCORRECTABLE", gpu.ErrLaunchFailed, true, "uncorrectable NVLink error: see nvidia-smi nvlink -e"},
	221:                   {"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", gpu.ErrNotSupported, false, "the driver's PTX compiler, libnvidia-ptxjitcompiler.so.1, is not installed"},
	resUnsupportedPTX:     {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", gpu.ErrDriverTooOld, false, ""},
	223:                   {"CUDA_ERROR_JIT_COMPILATION_DISABLED", gpu.ErrNotSupported, false, "unset CUDA_DISABLE_PTX_JIT"},
	226:                   {"CUDA_ERROR_CONTAINED", gpu.ErrLaunchFailed, true, "a contained memory error ended the work: see nvidia-smi -q -d ECC"},
	304:                   {"CUDA_ERROR_OPERATING_SYSTEM", gpu.ErrUnknown, false, "an OS call failed: check /dev/nvidia* and the locked-memory limit (ulimit -l)"},
	400:                   {"CUDA_ERROR_INVALID_HANDLE", gpu.ErrInvalidHandle, false, ""},
	resIllegalState:       {"CUDA_ERROR_ILLEGAL_STATE", gpu.ErrInvalidValue, false, ""},
	500:                   {"CUDA_ERROR_NOT_FOUND", gpu.ErrNotFound, false, ""},
	resNotReady:           {"CUDA_ERROR_NOT_READY", gpu.ErrInvalidValue, false, "the work has not finished: wait for it first"},
	700:                   {"CUDA_ERROR_ILLEGAL_ADDRESS", gpu.ErrIllegalAddress, true, "compute-sanitizer finds the access"},
	701:                   {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", gpu.ErrInvalidValue, false, "the block needs more registers, threads or shared memory than the device has"},
	702:                   {"CUDA_ERROR_LAUNCH_TIMEOUT", gpu.ErrLaunchFailed, true, "the kernel ran beyond the display watchdog"},
	resPeerAlreadyEnabled: {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", gpu.ErrPeerAccess, false, ""},
	resPeerNotEnabled:     {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", gpu.ErrPeerAccess, false, "call Runtime.EnablePeer first"},
	709:                   {"CUDA_ERROR_CONTEXT_IS_DESTROYED", gpu.ErrLaunchFailed, true, "the primary context was reset by another CUDA user of this process"},
	710:                   {"CUDA_ERROR_ASSERT", gpu.ErrLaunchFailed, true, "a device-side assert failed"},
	711:                   {"CUDA_ERROR_TOO_MANY_PEERS", gpu.ErrPeerAccess, false, "the device has no room for another peer: disable one"},
	714:                   {"CUDA_ERROR_HARDWARE_STACK_ERROR", gpu.ErrLaunchFailed, true, ""},
	715:                   {"CUDA_ERROR_ILLEGAL_INSTRUCTION", gpu.ErrLaunchFailed, true, "a kernel executed trap or an unknown instruction"},
	716:                   {"CUDA_ERROR_MISALIGNED_ADDRESS", gpu.ErrMisaligned, true, ""},
	717:                   {"CUDA_ERROR_INVALID_ADDRESS_SPACE", gpu.ErrIllegalAddress, true, ""},
	718:                   {"CUDA_ERROR_INVALID_PC", gpu.ErrLaunchFailed, true, ""},
	719:                   {"CUDA_ERROR_LAUNCH_FAILED", gpu.ErrLaunchFailed, true, "a kernel trapped or faulted"},
	720:                   {"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", gpu.ErrInvalidValue, false, "more blocks than can be resident"},
	721:                   {"CUDA_ERROR_TENSOR_MEMORY_LEAK", gpu.ErrLaunchFailed, true, ""},
	800:                   {"CUDA_ERROR_NOT_PERMITTED", gpu.ErrNotSupported, false, ""},
	801:                   {"CUDA_ERROR_NOT_SUPPORTED", gpu.ErrNotSupported, false, ""},
	802:                   {"CUDA_ERROR_SYSTEM_NOT_READY", gpu.ErrUnknown, false, "on NVSwitch machines nvidia-fabricmanager must be running: systemctl status nvidia-fabricmanager"},
	803:                   {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", gpu.ErrUnknown, false, driverReinstall},
	804:                   {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", gpu.ErrUnknown, false, "the forward-compatibility libcuda does not serve this GPU: take it out of LD_LIBRARY_PATH"},
	805:                   {"CUDA_ERROR_MPS_CONNECTION_FAILED", gpu.ErrUnknown, false, "start the MPS daemon, or unset CUDA_MPS_PIPE_DIRECTORY"},
	999:                   {"CUDA_ERROR_UNKNOWN", gpu.ErrUnknown, false, "see the kernel log (dmesg | grep -i nvrm); nvidia-modprobe -u may be needed"},
}

// lookup describes code. A code that is not in the table has no name yet.
func lookup(code int) result {
	if code >= 900 && code <= 908 { // CUDA_ERROR_STREAM_CAPTURE_* and CUDA_ERROR_CAPTURED_EVENT
		return result{name: captureNames[code-900], kind: gpu.ErrCapture, remedy: captureRemedies[code-900]}
	}
	if r, ok := results[code]; ok {
		return r
	}
	return result{kind: gpu.ErrUnknown}
}

var captureNames = [9]string{
	"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "CUDA_ERROR_STREAM_CAPTURE_MERGE",
	"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
	"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "CUDA_ERROR_CAPTURED_EVENT", "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
}

var captureRemedies = [9]string{
	"not permitted while the stream is capturing; the capture is now invalid",
	"an earlier call broke the capture: begin again",
	"the event would merge two separate captures",
	"end the capture on the stream it began on",
	"a stream that joined the capture was not joined back: record an event on it and wait for it on the origin",
	"the event or stream is of another capture, or of work before this one",
	"the default stream would be drawn into the capture",
	"the event was last recorded in a capture: only streams of that capture may wait for it",
	"",
}
