package flags

import (
	"encoding/binary"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// header reads kernels/fenceline.cuh: its constants, and the offset of each struct member.
type header struct {
	consts map[string]int
	fields map[string]int // "Pad.end" → byte offset
	sizes  map[string]int // "Pad" → bytes
}

var (
	constLine  = regexp.MustCompile(`constexpr u32 (\w+) = ([^;]+);`)
	enumLine   = regexp.MustCompile(`enum \w+ : u32 \{([^}]*)\};`)
	structBody = regexp.MustCompile(`(?s)struct (Pad|Control|Record|Status) \{(.*?)\n\};`)
	member     = regexp.MustCompile(`(?m)^\s*(u32|Record) (\w+)((?:\[\w+\])*);`)
	dimension  = regexp.MustCompile(`\[(\w+)\]`)
)

func readHeader(t *testing.T) header {
	text, err := os.ReadFile("../kernels/fenceline.cuh")
	require.NoError(t, err)
	h := header{map[string]int{}, map[string]int{}, map[string]int{"u32": 4}}
	for _, m := range constLine.FindAllStringSubmatch(string(text), -1) {
		if v, err := strconv.Atoi(m[2]); err == nil {
			h.consts[m[1]] = v
		}
	}
	for _, m := range enumLine.FindAllStringSubmatch(string(text), -1) {
		for _, item := range strings.Split(m[1], ",") {
			name, value, ok := strings.Cut(item, "=")
			require.True(t, ok, item)
			v, err := strconv.Atoi(strings.TrimSpace(value))
			require.NoError(t, err)
			h.consts[strings.TrimSpace(name)] = v
		}
	}
	for _, s := range structBody.FindAllStringSubmatch(string(text), -1) {
		at := 0
		for _, m := range member.FindAllStringSubmatch(s[2], -1) {
			h.fields[s[1]+"."+m[2]] = at
			n := h.sizes[m[1]]
			require.NotZero(t, n, "size of %s", m[1])
			for _, d := range dimension.FindAllStringSubmatch(m[3], -1) {
				v, err := strconv.Atoi(d[1])
				if err != nil {
					v = h.consts[d[1]]
				}
				require.NotZero(t, v, "dimension %s of %s.%s", d[1], s[1], m[2])
				n *= v
			}
			at += n
		}
		h.sizes[s[1]] = at
	}
	return h
}

func TestLayoutMirrorsHeader(t *testing.T) {
	h := readHeader(t)
	for name, got := range map[string]int{
		"MAX_RANKS": MaxRanks, "MAX_BLOCKS": MaxBlocks,
		"CODE_OK": int(OK), "CODE_TIMEOUT": int(Timeout), "CODE_ABORTED": int(Aborted),
		"SLOT_START": int(Start), "SLOT_END": int(End),
	} {
		want, ok := h.consts[name]
		require.True(t, ok, "%s is not in the header", name)
		require.Equal(t, want, got, name)
	}
	for name, got := range map[string]int{"Pad": PadBytes, "Control": ControlBytes, "Record": recordBytes, "Status": StatusBytes} {
		require.Equal(t, h.sizes[name], got, "size of %s", name)
	}
	for name, got := range map[string]int{
		"Pad.start":     int(SlotOffset(Start, 0, 0)),
		"Pad.end":       int(SlotOffset(End, 0, 0)),
		"Control.epoch": EpochOffset, "Control.poisoned": PoisonedOffset,
		"Status.abort": AbortOffset, "Status.failed": FailedOffset, "Status.record": recordsOffset,
		"Record.code": 0, "Record.slot": 4, "Record.missing": 8, "Record.wanted": 12, "Record.seen": 16,
	} {
		want, ok := h.fields[name]
		require.True(t, ok, "%s is not in the header", name)
		require.Equal(t, want, got, name)
	}
}

func TestSlotsAreDistinct(t *testing.T) {
	seen := map[uint64]bool{}
	for _, k := range []SlotKind{Start, End} {
		for b := range MaxBlocks {
			for r := range MaxRanks {
				off := SlotOffset(k, b, r)
				require.False(t, seen[off], "%v %d %d", k, b, r)
				require.Zero(t, off%4)
				require.Less(t, off, uint64(PadBytes))
				seen[off] = true
			}
		}
	}
}

func TestReachedAcrossWrap(t *testing.T) {
	for _, c := range []struct {
		seen, wanted uint32
		want         bool
	}{
		{0, 1, false}, {1, 1, true}, {2, 1, true},
		{0xffffffff, 0, false}, {0, 0xffffffff, true}, {0, 0, true},
		{0x7fffffff, 0x80000000, false}, {0x80000000, 0x7fffffff, true},
	} {
		require.Equal(t, c.want, Reached(c.seen, c.wanted), "%#x %#x", c.seen, c.wanted)
	}
}

// fill writes a record as the kernel does.
func fill(status []byte, block int, code Code, slot SlotKind, missing, wanted uint32, seen map[int]uint32) {
	le := binary.LittleEndian
	le.PutUint32(status[FailedOffset:], 1)
	at := recordsOffset + block*recordBytes
	for i, v := range []uint32{uint32(code), uint32(slot), missing, wanted} {
		le.PutUint32(status[at+4*i:], v)
	}
	for r, v := range seen {
		le.PutUint32(status[at+16+4*r:], v)
	}
}

func TestDiagnose(t *testing.T) {
	status := make([]byte, StatusBytes)
	require.NoError(t, Diagnose(1, status))
	fill(status, 0, Aborted, Start, 1<<0, 7, map[int]uint32{0: 6})
	err := Diagnose(1, status)
	require.ErrorIs(t, err, ErrAborted)
	require.NotErrorIs(t, err, ErrTimeout)

	fill(status, 63, Timeout, End, 1<<2|1<<15, 7, map[int]uint32{2: 5, 15: 6})
	err = Diagnose(1, status)
	require.ErrorIs(t, err, ErrTimeout)
	var stuck *StuckError
	require.ErrorAs(t, err, &stuck)
	require.Equal(t, &StuckError{Rank: 1, Block: 63, Slot: End, Code: Timeout, Peer: 2, Missing: []int{2, 15},
		Seen: 5, Wanted: 7, Blocks: 2}, stuck)
	require.Equal(t, "rank 1 block 63 timed out waiting for rank 2 at the end flag: epoch seen 5, wanted 7"+
		" (missing ranks: 2 15); 2 block(s) stuck", err.Error())

	_, err = Decode(status[:10])
	require.ErrorContains(t, err, "status of 10 bytes")
}
