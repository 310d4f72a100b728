// Package flags is the host side of Fenceline's flags: where the words of a signal pad lie, how epochs
// compare, and what a kernel leaves behind when a wait fails.
//
// Three pieces of memory serve one rank. The Pad lies where every peer can write it; slot (kind, block,
// source rank) has that rank as its only writer, and holds the epoch of its latest post. The Control block is the
// rank's own and keeps the epoch between launches, so that a captured graph replays safely. The Status is
// pinned host memory: the host's abort word, and a Record of the first wait that failed.
//
// The layouts mirror kernels/fenceline.cuh; a test reads that file and compares.
package flags

// Sizes shared with kernels/fenceline.cuh.
const (
	MaxRanks  = 16 // MAX_RANKS
	MaxBlocks = 64 // MAX_BLOCKS
)

// SlotKind is a synchronisation point of a call. Each has slots of its own, because a fast peer may post the
// second while a slow one still polls the first.
type SlotKind uint32

const (
	Start  SlotKind = iota // SLOT_START: the data of this call may be read
	End                    // SLOT_END: I have read yours
	Packet                 // SLOT_PACKET: not a slot of a pad, but data that carries its own flag
)

func (k SlotKind) String() string {
	switch k {
	case Start:
		return "start"
	case End:
		return "end"
	case Packet:
		return "packet"
	}
	return "unknown"
}

const (
	// PadBytes is the size of a Pad.
	PadBytes = 2 * MaxBlocks * MaxRanks * 4

	// ControlBytes is the size of a Control block. EpochOffset is where its epochs begin, one 32-bit word per block;
	// PoisonedOffset is the place of the poison mark.
	ControlBytes   = MaxBlocks*4 + 4
	EpochOffset    = 0
	PoisonedOffset = MaxBlocks * 4

	// PacketControlBytes is the size of a PacketControl: a Control, and behind it the epochs of the kernels that send packets.
	PacketControlBytes = TwoshotWideOffset + MaxBlocks*4
	OneshotOffset      = ControlBytes + 63*4
	TwoshotOffset      = OneshotOffset + MaxBlocks*4
	OneshotWideOffset  = TwoshotOffset + MaxBlocks*4
	TwoshotWideOffset  = OneshotWideOffset + MaxBlocks*4

	// StatusBytes is the size of a Status; AbortOffset is the place of the abort word in it.
	StatusBytes = recordOffset + recordBytes
	AbortOffset = 0
	// CodeOffset is the place of the record's Code, which the kernel publishes last: once it is read as other than OK,
	// the record is complete.
	CodeOffset = recordOffset

	recordOffset = 16
	recordBytes  = seenOffset + 4*MaxRanks
	seenOffset   = 32 // in a record
)

// SlotOffset is the byte offset in a Pad of the slot that source rank src posts for block.
func SlotOffset(kind SlotKind, block, src int) uint64 {
	return 4 * (uint64(kind)*MaxBlocks*MaxRanks + uint64(block)*MaxRanks + uint64(src))
}

// Reached says whether epoch seen is at or after wanted. Epochs are 32-bit counters that wrap; the
// comparison holds while the two are less than 2^31 apart, and the kernels rewrite idle slots long before that.
func Reached(seen, wanted uint32) bool { return int32(seen-wanted) >= 0 }
