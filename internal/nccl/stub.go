//go:build !linux || !cgo

package nccl

import "runtime"

// Library is a loaded NCCL.
type Library struct{}

// Clique is the communicators of this process.
type Clique struct{}

func unavailable() error {
	detail := "this build needs cgo: rebuild with CGO_ENABLED=1 and a C compiler to compare with NCCL"
	if runtime.GOOS != "linux" {
		detail = "NCCL is loaded only on Linux, and this is a build for " + runtime.GOOS
	}
	return &Error{Op: "load NCCL", Kind: ErrUnavailable, Detail: detail}
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

// AllReduce answers ErrUnavailable.
func (*Clique) AllReduce([]Call, uint64, DType) error { return unavailable() }

// Err answers ErrUnavailable.
func (*Clique) Err() error { return unavailable() }

// Close answers ErrUnavailable.
func (*Clique) Close() error { return unavailable() }

// Abort answers ErrUnavailable.
func (*Clique) Abort() error { return unavailable() }
