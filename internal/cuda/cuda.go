// Package cuda is the real driver behind gpu.Driver: NVIDIA's libcuda, opened with dlopen, so that building
// needs no CUDA SDK and one binary runs on machines with and without a GPU.
//
// How it is made:
//
//   - A table of function pointers is filled by dlsym, under explicit _v2 names where the header renames
//     (abi.h). A required function that is missing is ErrMissingSymbol; an optional one disables its feature.
//   - Every operation is one cgo call: a C trampoline makes the device's primary context current and does
//     the work, because contexts belong to OS threads and goroutines migrate. A context that somebody else
//     had made current on the thread (a C caller's) is put back.
//   - Waits poll in C for at most 20 ms a call, then come back to Go, so that no thread is held for long.
//   - Handles are the driver's own pointers, looked up in a table before use: libcuda does not check them,
//     and a destroyed handle would crash the process.
//   - Primary contexts are retained when a device is first used, and shared with any other CUDA user in the
//     process (PyTorch, the CUDA runtime). Capture is in relaxed mode, the only one that lets a capture
//     begin and end on different threads.
//   - The driver copies from and to Go memory inside the call; Go memory is never kept by the driver.
//
// What the driver may block on: MemFree, ModuleLoad, ModuleUnload and Close can wait for running kernels, as
// libcuda does. A kernel that spins on a peer must therefore be bounded, which Fenceline's are.
//
// Go must be able to take signals on any thread that runs C, so after libcuda's initialisation every signal
// handler in the process is checked for SA_ONSTACK, and the flag is put back where it was lost.
package cuda

import "github.com/fenceline/fenceline/internal/gpu"

// DefaultLibrary is what Open opens: the soname that the driver package installs. The plain libcuda.so is a
// link for linking, and in a CUDA toolkit a stub that cannot run anything.
const DefaultLibrary = "libcuda.so.1"

// Open opens the machine's driver and initialises it.
//
// It fails with a *gpu.Error of kind ErrNoDriver when the library or every device is absent, ErrNotSupported
// when this build cannot hold the driver (no cgo, not Linux), ErrMissingSymbol or ErrDriverTooOld when the
// driver lacks what is needed, and another kind when a driver is there and does not start: that must be seen,
// not taken for a machine without GPUs.
func Open() (gpu.Driver, error) { return OpenLibrary(DefaultLibrary) }

// OpenLibrary is Open for the driver library at path; a name without a slash is searched as dlopen does.
// The library stays loaded for the life of the process once it has been initialised.
func OpenLibrary(path string) (gpu.Driver, error) { return openLibrary(path) }
