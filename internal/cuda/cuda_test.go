package cuda

import (
	"errors"
	"testing"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/gpu/gputest"
)

// TestConformance runs the suite of the seam on the machine's own driver.
func TestConformance(t *testing.T) {
	gputest.Run(t, func(t *testing.T) gpu.Driver {
		d, err := Open()
		if err == nil {
			return d
		}
		if errors.Is(err, gpu.ErrNoDriver) || errors.Is(err, gpu.ErrNotSupported) {
			gputest.RequireGPU(t, err)
		}
		t.Fatal(err)
		return nil
	})
}
