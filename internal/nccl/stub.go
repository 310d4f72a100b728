//go:build !linux || !cgo

package nccl

import (
	"runtime"
	"time"
)

// Library is a loaded NCCL.
type Library struct{}

// Clique is the communicators of this process.
type Clique struct{}

func unavailable() error {
	e := &Error{Op: "load NCCL", Kind: ErrUnavailable, Text: "this build has no cgo", Detail: "rebuild with CGO_ENABLED=1 and a C compiler"}
	if runtime.GOOS != "linux" {
		e.Text, e.Detail = "this is a build for "+runtime.GOOS, "NCCL is loaded only on Linux"
	}
	return e
}

// Open answers ErrUnavailable.
func Open(string) (*Library, error) { return nil, unavailable() }

// Version is 0.
func (*Library) Version() int { return 0 }

// UniqueID answers ErrUnavailable.
func (*Library) UniqueID() ([]byte, error) { return nil, unavailable() }

// InitRank answers ErrUnavailable.
func (*Library) InitRank(int, []byte, int) (*Clique, error) { return nil, unavailable() }

// InitAll answers ErrUnavailable.
func (*Library) InitAll([]int) (*Clique, error) { return nil, unavailable() }

// Join answers ErrUnavailable.
func (*Library) Join([]Member, time.Duration) (Ranks, error) { return nil, unavailable() }

// AllReduce answers ErrUnavailable.
func (*Clique) AllReduce([]Call, uint64, DType, time.Duration) error { return unavailable() }

// Err answers ErrUnavailable.
func (*Clique) Err() error { return unavailable() }

// Close answers ErrUnavailable.
func (*Clique) Close() error { return unavailable() }

// Abort answers ErrUnavailable.
func (*Clique) Abort() error { return unavailable() }
