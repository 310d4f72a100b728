package flags

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// Code says why a wait ended without its flag.
type Code uint32

const (
	OK      Code = iota // CODE_OK: the record is unused
	Timeout             // CODE_TIMEOUT: the deadline passed
	Aborted             // CODE_ABORTED: the host's abort word was set
)

func (c Code) String() string {
	switch c {
	case OK:
		return "ok"
	case Timeout:
		return "timeout"
	case Aborted:
		return "aborted"
	}
	return fmt.Sprintf("code %d", uint32(c))
}

// Sentinels that a StuckError matches.
var (
	ErrTimeout = errors.New("a peer did not arrive in time")
	ErrAborted = errors.New("the wait was aborted")
	ErrStatus  = errors.New("flags: not a status") // from Diagnose
)

// StuckError is a failed wait of one rank: which peer it waited for, where, and how far that peer had come.
// Of several failed waits of a rank, the kernels keep the first.
type StuckError struct {
	Rank    int // the rank that waited
	Block   int
	Slot    SlotKind
	Code    Code
	Peer    int    // the first rank that had not arrived; -1 when the record names none
	Missing []int  // all of them
	Seen    uint32 // the last epoch seen of Peer
	Wanted  uint32 // the epoch waited for
}

func (e *StuckError) Error() string {
	what := "timed out"
	if e.Code == Aborted {
		what = "was aborted"
	}
	var others string
	if len(e.Missing) > 1 {
		others = fmt.Sprintf(" (missing ranks: %s)", strings.Trim(fmt.Sprint(e.Missing), "[]"))
	}
	return fmt.Sprintf("rank %d block %d %s waiting for rank %d at the %s flag: epoch seen %d, wanted %d%s",
		e.Rank, e.Block, what, e.Peer, e.Slot, e.Seen, e.Wanted, others)
}

// Is matches ErrTimeout and ErrAborted by Code.
func (e *StuckError) Is(target error) bool {
	return target == ErrTimeout && e.Code == Timeout || target == ErrAborted && e.Code == Aborted
}

// Diagnose reads the status of a rank, at least StatusBytes long, after its stream has ended. It returns nil
// when no wait failed, a *StuckError when one did, and ErrStatus when status is not one.
func Diagnose(rank int, status []byte) error {
	if len(status) < StatusBytes {
		return fmt.Errorf("%w: %d bytes, want %d", ErrStatus, len(status), StatusBytes)
	}
	record := status[recordOffset:]
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(record[4*i:]) }
	if Code(word(0)) == OK {
		return nil
	}
	e := &StuckError{Rank: rank, Code: Code(word(0)), Slot: SlotKind(word(1)), Block: int(word(2)), Wanted: word(4), Peer: -1}
	for mask := word(3); mask != 0; mask &= mask - 1 {
		e.Missing = append(e.Missing, bits.TrailingZeros32(mask))
	}
	if len(e.Missing) > 0 && e.Missing[0] < MaxRanks {
		e.Peer = e.Missing[0]
		e.Seen = word(seenOffset/4 + e.Peer)
	}
	return e
}
