package cuda

import (
	"errors"
	"os"
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
		// A driver that is there and does not work is a failure, not a reason to skip.
		absent := errors.Is(err, gpu.ErrNoDriver) || errors.Is(err, gpu.ErrNotSupported)
		if absent && os.Getenv("REQUIRE_GPU") != "1" {
			t.Skip(err)
		}
		t.Fatal(err)
		return nil
	})
}
