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
	structBody = regexp.MustCompile(`(?s)struct (Pad|Control|PacketControl|Record|Status) \{(.*?)\n\};`)
	member     = regexp.MustCompile(`(?m)^\s*(u32|Record|Control) (\w+)((?:\[\w+\])*);`)
	dimension  = regexp.MustCompile(`\[(\w+)\]`)
)

func readHeader(t *testing.T) header {
	var text []byte
	for _, file := range []string{"fenceline.cuh", "packets.cuh"} {
		part, err := os.ReadFile("../kernels/" + file)
		require.NoError(t, err)
		text = append(text, part...)
	}
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
		"SLOT_START": int(Start), "SLOT_END": int(End), "SLOT_PACKET": int(Packet),
	} {
		want, ok := h.consts[name]
		require.True(t, ok, "%s is not in the header", name)
		require.Equal(t, want, got, name)
	}
	for name, got := range map[string]int{"Pad": PadBytes, "Control": ControlBytes, "PacketControl": PacketControlBytes, "Record": recordBytes, "Status": StatusBytes} {
		require.Equal(t, h.sizes[name], got, "size of %s", name)
	}
	for name, got := range map[string]int{
		"Pad.start":     int(SlotOffset(Start, 0, 0)),
		"Pad.end":       int(SlotOffset(End, 0, 0)),
		"Control.epoch": EpochOffset, "Control.poisoned": PoisonedOffset,
		"PacketControl.control": 0, "PacketControl.oneshot": OneshotOffset, "PacketControl.twoshot": TwoshotOffset,
		"Status.abort": AbortOffset, "Status.record": recordOffset,
		"Record.code": 0, "Record.slot": 4, "Record.block": 8, "Record.missing": 12, "Record.wanted": 16, "Record.seen": seenOffset,
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

// record gives a status with a record as the kernel writes it.
func record(code Code, slot SlotKind, block, missing, wanted uint32, seen map[int]uint32) []byte {
	status := make([]byte, StatusBytes)
	le := binary.LittleEndian
	for i, v := range []uint32{uint32(code), uint32(slot), block, missing, wanted} {
		le.PutUint32(status[recordOffset+4*i:], v)
	}
	for r, v := range seen {
		le.PutUint32(status[recordOffset+seenOffset+4*r:], v)
	}
	return status
}

func TestDiagnose(t *testing.T) {
	require.NoError(t, Diagnose(1, make([]byte, StatusBytes)))

	err := Diagnose(1, record(Aborted, Start, 0, 1<<0, 7, map[int]uint32{0: 6}))
	require.ErrorIs(t, err, ErrAborted)
	require.NotErrorIs(t, err, ErrTimeout)
	require.EqualError(t, err, "rank 1 block 0 was aborted waiting for rank 0 at the start flag: epoch seen 6, wanted 7")

	err = Diagnose(1, record(Timeout, End, 63, 1<<2|1<<15, 7, map[int]uint32{2: 5, 15: 6}))
	require.ErrorIs(t, err, ErrTimeout)
	var stuck *StuckError
	require.ErrorAs(t, err, &stuck)
	require.Equal(t, &StuckError{Rank: 1, Block: 63, Slot: End, Code: Timeout, Peer: 2, Missing: []int{2, 15},
		Seen: 5, Wanted: 7}, stuck)
	require.EqualError(t, err, "rank 1 block 63 timed out waiting for rank 2 at the end flag: epoch seen 5, wanted 7 (missing ranks: 2 15)")

	err = Diagnose(0, record(Timeout, Packet, 3, 1<<1, 7, map[int]uint32{1: 5}))
	require.EqualError(t, err, "rank 0 block 3 timed out waiting for rank 1 at the packet flag: epoch seen 5, wanted 7")

	// A record that makes no sense is reported as far as it goes.
	require.ErrorContains(t, Diagnose(0, record(9, 9, 0, 0, 1, nil)), "rank -1 at the unknown flag")
	require.ErrorContains(t, Diagnose(0, record(Timeout, Start, 0, 1<<31, 1, nil)), "rank -1")
	require.ErrorIs(t, Diagnose(0, nil), ErrStatus)
}
