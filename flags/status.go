package flags

import (
	"encoding/binary"
	"errors"
	"fmt"
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
)

// Record is what one block of one rank left in its status when a wait failed.
type Record struct {
	Block   int
	Code    Code
	Slot    SlotKind
	Missing []int            // ranks that had not arrived
	Wanted  uint32           // the epoch waited for
	Seen    [MaxRanks]uint32 // the last epoch seen of each rank
}

// Decode reads the records of a Status. It returns those that are filled in, by block; status must be
// at least StatusBytes long.
func Decode(status []byte) ([]Record, error) {
	if len(status) < StatusBytes {
		return nil, fmt.Errorf("flags: status of %d bytes, want %d", len(status), StatusBytes)
	}
	word := func(off int) uint32 { return binary.LittleEndian.Uint32(status[off:]) }
	if word(FailedOffset) == 0 {
		return nil, nil
	}
	var list []Record
	for b := range MaxBlocks {
		at := recordsOffset + b*recordBytes
		if word(at) == uint32(OK) {
			continue
		}
		r := Record{Block: b, Code: Code(word(at)), Slot: SlotKind(word(at + 4)), Wanted: word(at + 12)}
		for mask, rank := word(at+8), 0; rank < MaxRanks; rank++ {
			if mask>>rank&1 != 0 {
				r.Missing = append(r.Missing, rank)
			}
			r.Seen[rank] = word(at + 16 + 4*rank)
		}
		list = append(list, r)
	}
	return list, nil
}

// StuckError is a failed wait of one rank: which peer it waited for, where, and how far that peer had come.
type StuckError struct {
	Rank    int // the rank that waited
	Block   int
	Slot    SlotKind
	Code    Code
	Peer    int   // the first rank that had not arrived
	Missing []int // all of them
	Seen    uint32
	Wanted  uint32
	Blocks  int // how many blocks of this rank were stuck
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
	return fmt.Sprintf("rank %d block %d %s waiting for rank %d at the %s flag: epoch seen %d, wanted %d%s; %d block(s) stuck",
		e.Rank, e.Block, what, e.Peer, e.Slot, e.Seen, e.Wanted, others, e.Blocks)
}

// Is matches ErrTimeout and ErrAborted by Code.
func (e *StuckError) Is(target error) bool {
	return target == ErrTimeout && e.Code == Timeout || target == ErrAborted && e.Code == Aborted
}

// Diagnose turns the status of a rank into a *StuckError, or nil when no wait failed. A time-out is
// reported in preference to an abort, which only follows from one elsewhere.
func Diagnose(rank int, status []byte) error {
	list, err := Decode(status)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return nil
	}
	pick := list[0]
	for _, r := range list {
		if r.Code == Timeout {
			pick = r
			break
		}
	}
	e := &StuckError{Rank: rank, Block: pick.Block, Slot: pick.Slot, Code: pick.Code, Peer: -1,
		Missing: pick.Missing, Wanted: pick.Wanted, Blocks: len(list)}
	if len(pick.Missing) > 0 {
		e.Peer = pick.Missing[0]
		e.Seen = pick.Seen[e.Peer]
	}
	return e
}
