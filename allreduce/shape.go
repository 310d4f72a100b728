package allreduce

import (
	"math"

	"github.com/fenceline/fenceline/flags"
)

// shape is the grid of the summing kernel for a launch of n bytes on world ranks. fit(threads) is how many blocks of
// that size one rank has room for: see Group.reserve. What a table prefers comes first.
func shape(a Algorithm, n uint64, world int, want grid, fit func(threads int) int) (blocks, threads int) {
	work := workOf(a, n, world)
	threads = want.threads
	if threads == 0 {
		threads = threadsFor(a, work, world, fit)
	}
	blocks = want.blocks
	if blocks == 0 {
		blocks = int(min((work+uint64(threads)-1)/uint64(threads), uint64(mostBlocks(a, work, world))))
	}
	return min(blocks, fit(threads), blocksWithWork(a, work, threads)), threads
}

// blocksWithWork is how many blocks can have packets to send: peers do not wait for the others, so the next call could be there before
// them. Of a small message with wide packets some of these may have none either, where the last chunk is cut short.
func blocksWithWork(a Algorithm, work uint64, threads int) int {
	switch {
	case a.wide(): // whose warps take tiles block by block
		return int(min(work/32, flags.MaxBlocks))
	case a.pushes():
		return int(min((work+uint64(threads)-1)/uint64(threads), flags.MaxBlocks))
	}
	return flags.MaxBlocks
}

// workOf is how many threads have something of their own to do, one at least. A thread takes a pack of 16 bytes; with
// push a packet, which carries 8; and with wide packets a column of 48. Where each rank sums a chunk, the threads of a launch share the chunk.
func workOf(a Algorithm, n uint64, world int) uint64 {
	switch a {
	case OneshotPush, TwoshotPush:
		return slotsOf(a, n, world)
	case OneshotWide:
		return 32 * tilesOf(n, 1)
	case TwoshotWide: // warps send and gather peers' tiles, and sum those of their own packet by packet
		return 32 * tilesOf(n, world) * max(widePackets, uint64(world)-1)
	}
	return packsOf(n)
}

// threadsFor is the number of threads in a block. Larger blocks, and so fewer flags, pay when there is much to do. Push has no
// flags for each block, and small blocks spread over more of the device: the smallest that do with one pass. Measured on one
// H200 with 2, 4 and 8 virtual ranks: pull from 1 KB to 1 MB, push from 8 KB to 512 KB.
func threadsFor(a Algorithm, work uint64, world int, fit func(threads int) int) int {
	if a.pushes() {
		total := func(threads int) int { return threads * min(fit(threads), mostBlocks(a, work, world)) }
		if a.wide() {
			return threadsOfWide(a, work, total)
		}
		return threadsToPush(a, work, world, total)
	}
	switch {
	case work < 256:
		return max(64, int(work+31)/32*32)
	case work > 16384/uint64(world):
		return 512
	}
	return 256
}

// threadsToPush finds it for total(threads) threads in all.
func threadsToPush(a Algorithm, work uint64, world int, total func(threads int) int) int {
	if work < 128 {
		return max(64, int(work+31)/32*32)
	}
	if a == OneshotPush && world == 2 && work > 2*128 && work <= 2*192 && total(192) >= 2*192 {
		return int(work+63) / 64 * 32 // two blocks: a third costs more than one warp more in each
	}
	best := 256 // where no grid is large enough, unless another has a good deal more threads
	for _, threads := range []int{128, 256, 512} {
		if uint64(total(threads)) >= work {
			return threads
		}
		if total(threads)*10 > total(best)*11 {
			best = threads
		}
	}
	return best
}

// wideThreads is the largest block of the kernels with wide packets of which an SM holds two.
const wideThreads = 256

// threadsOfWide is the same for wide packets, whose threads do more and need more registers. Two-shot needs no grid that is large enough for
// one pass: beyond so many threads the caches are what limits it. Where fewer have room, as with 8 ranks on one device, blocks of 384 did best,
// of which an SM holds one.
func threadsOfWide(a Algorithm, work uint64, total func(threads int) int) int {
	otherwise := wideThreads
	if a == TwoshotWide {
		work, otherwise = min(work, 192*flags.MaxBlocks), 384
	}
	for _, threads := range []int{64, 96, 128, 192, 256, 384, 512} {
		if uint64(total(threads)) >= work {
			return threads
		}
	}
	return otherwise
}

// mostBlocks is the largest grid without a table, where there is room. More blocks of pull have more flags, which pays for large messages. 64
// blocks are for those, for wide packets, whose blocks are small where there is room for many, and for push with one peer; other kernels would
// leave no room for another group.
func mostBlocks(a Algorithm, work uint64, world int) int {
	if world == 2 && a.pushes() || a.wide() || a.pulls() && work > packsOf(512<<10) {
		return 64
	}
	return 32
}

// lateFrom is the size from which on a launch lets the next call in only when it has heard of its peers' blocks, and so may have all the room.
// With wide packets it is what measured fastest on one H200 with 2, 4 and 8 virtual ranks. Pull decides by what is aligned of the message, which
// may be less by almost two packs. Kernels with packets of 8 bytes never know of all blocks, and so need room for two calls, although from
// EARLY_BYTES on they let the next one in at their end.
func lateFrom(a Algorithm, world int) uint64 {
	switch {
	case a.pulls():
		return earlyBytes + 32
	case a == OneshotWide:
		return 640 << 10
	case a == TwoshotWide && world <= 4:
		return 384 << 10
	case a == TwoshotWide:
		return 288 << 10
	}
	return math.MaxUint64
}

// earlyBytes is EARLY_BYTES in kernels/reduce.cuh.
const earlyBytes = 512 << 10

// late is whether a launch of n bytes lets the next call in so late.
func late(a Algorithm, n uint64, world int) bool { return n >= lateFrom(a, world) }

// fits is how many blocks of a launch of n bytes a rank may have, with room for so many, where so many launches can be there and wait: the next
// one needs room too if it may be let in at the beginning.
func fits(a Algorithm, n uint64, world, room, launches int) int {
	if late(a, n, world) {
		return room
	}
	return room / launches
}

// heardAll is whether a rank, when it lets the next call in, has had something of every block of every peer, all ranks' grids being of so many blocks that have work. With
// pull and one-shot each has had a flag or packets of the blocks of its own number. With two-shot wide packets share s of a rank, a tile of a peer's chunk, comes from block s modulo
// blocks, and the shares for one peer are every (world-1)th: see of_peer in kernels/twoshot_wide.cu. Each tile has a packet, even of the last
// chunk, as messages so large have at least 12*world columns in a chunk.
func heardAll(a Algorithm, n uint64, world, blocks int) bool {
	if !late(a, n, world) {
		return false
	}
	return a.pulls() || a == OneshotWide || world < 2 || uint64(blocks) <= tilesOf(n, world) && coprime(blocks, world-1)
}

// heard is the largest such grid of no more than so many blocks.
func heard(a Algorithm, n uint64, world, blocks int) int {
	for blocks > 1 && !heardAll(a, n, world, blocks) {
		blocks--
	}
	return blocks
}

func coprime(a, b int) bool {
	for b != 0 {
		a, b = b, a%b
	}
	return a == 1
}

// packsOf is how many 16-byte packs n bytes take, one at least.
func packsOf(n uint64) uint64 { return max(1, (n+15)/16) }

// packetsOf is how many packets of 8 bytes n bytes take, one at least.
func packetsOf(n uint64) uint64 { return max(1, (n+7)/8) }

// chunkOf is how many packets of push each of so many chunks of n bytes has.
func chunkOf(n uint64, chunks int) uint64 {
	return (packetsOf(n) + uint64(chunks) - 1) / uint64(chunks)
}

// What a wide kernel's chunk is made of: columns of three packs, which four packets carry.
const (
	wideRows    = 3
	widePackets = 4
)

// columnsOf is how many columns each of so many chunks of n bytes has; columns_of in kernels/wide.cuh.
func columnsOf(n uint64, chunks int) uint64 {
	even := (packsOf(n) + wideRows*uint64(chunks) - 1) / (wideRows * uint64(chunks))
	if even > 32 {
		return roundUp(even, 8)
	}
	return even
}

// tilesOf is how many warps' worth of columns that is.
func tilesOf(n uint64, chunks int) uint64 { return (columnsOf(n, chunks) + 31) / 32 }

// slotsOf is how many packets of one source a box has room for, for messages of up to n bytes: sizes between take no more.
func slotsOf(a Algorithm, n uint64, world int) uint64 {
	chunks := 1
	if a.twoshot() {
		chunks = world
	}
	if a.wide() {
		return widePackets * columnsOf(n, chunks)
	}
	return chunkOf(n, chunks)
}

// piecesOf is how many launches a message of n bytes takes, one at least.
func piecesOf(n, most uint64) uint64 { return max(1, (n+most-1)/most) }

// pieceOf is the size of these pieces, all but the last; a multiple of 16, as most is.
func pieceOf(n, most uint64) uint64 {
	pieces := piecesOf(n, most)
	return roundUp((n+pieces-1)/pieces, 16)
}

// Below: how copy and host share out a message. Sizes are in bytes. The bounds are estimates, from links of 25 GB/s and
// a few microseconds for each copy and each event between devices; not measured.
const (
	line       = 256       // chunks and places are multiples of it, so copy engines and the kernel find their data aligned
	gatherAll  = 1 << 20   // what a rank copies at most of its peers' data, to save the second round of copies
	chunkLeast = 256 << 10 // smaller chunks of one message cost more in copies than they gain by running side by side
	chunkMost  = 2 << 20   // larger ones gain nothing, and only take memory
)

// wholeRoom is the largest message that every rank gathers whole, where no piece may be larger than most.
func wholeRoom(most uint64, world int) uint64 {
	return min(most, gatherAll/uint64(max(1, world-1))/16*16)
}

// gatherMost is the largest piece that pays.
func gatherMost(world int) uint64 { return uint64(world) * chunkMost }

// chunkRoom is the largest chunk of pieces no larger than most.
func chunkRoom(most uint64, world int) uint64 {
	return roundUp((most+uint64(world)-1)/uint64(world), line)
}

// chunking is how a message larger than wholeRoom goes: in pieces of one size, the last one perhaps smaller, and of each a chunk for
// every rank, of one size again except that the last ranks may have less, or nothing.
type chunking struct{ bytes, piece, chunk uint64 }

// chunkingOf makes four pieces, so that copies and sums can overlap, or fewer where chunks would be too small for it to pay;
// and more where pieces would be larger than most, a multiple of 16.
func chunkingOf(n, most uint64, world int) chunking {
	pieces := max(piecesOf(n, most), min(4, n/(uint64(world)*chunkLeast)))
	piece := roundUp((n+pieces-1)/pieces, 16)
	return chunking{n, piece, chunkRoom(piece, world)}
}

// pieces is how many pieces there are.
func (c chunking) pieces() uint64 { return piecesOf(c.bytes, c.piece) }

// span is n bytes of a message from off on.
type span struct{ off, n uint64 }

// span is a rank's chunk of piece k; empty where there is none, and then there is none in later pieces.
func (c chunking) span(k, rank int) span {
	start := min(uint64(k)*c.piece, c.bytes)
	end := min(start+c.piece, c.bytes)
	off := min(start+uint64(rank)*c.chunk, end)
	return span{off, min(c.chunk, end-off)}
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }
