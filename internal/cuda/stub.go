//go:build !linux || !cgo

package cuda

import (
	"runtime"

	"github.com/fenceline/fenceline/internal/gpu"
)

func openLibrary(string) (gpu.Driver, error) {
	detail := "built without cgo: rebuild with CGO_ENABLED=1 and a C compiler to use a GPU"
	if runtime.GOOS != "linux" {
		detail = "the CUDA driver is supported only on Linux, and this is a build for " + runtime.GOOS
	}
	return nil, &gpu.Error{Op: "Open", Device: -1, Detail: detail, Kind: gpu.ErrNotSupported}
}
