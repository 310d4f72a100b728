package allreduce

// shape is the grid of the summing kernel for a launch of n bytes on world ranks. fit(threads) is how many blocks of
// that size one rank may have, so that all ranks' blocks are resident together.
func shape(a Algorithm, n uint64, world int, fit func(threads int) int) (blocks, threads int) {
	work := workOf(a, n, world)
	threads = blockOf(a, work, world)
	return min(blocksFor(work, threads), fit(threads)), threads
}

// shapeBy is shape where a table may prefer a number of threads, of blocks, or both.
func shapeBy(want grid, a Algorithm, n uint64, world int, fit func(threads int) int) (blocks, threads int) {
	blocks, threads = shape(a, n, world, fit)
	if want.threads != 0 {
		threads = want.threads
		blocks = min(blocksFor(workOf(a, n, world), threads), fit(threads))
	}
	if want.blocks != 0 {
		blocks = min(want.blocks, fit(threads))
	}
	return blocks, threads
}

// workOf is how many threads have something of their own to do, one at least. A thread takes a pack of 16 bytes, and with
// push a packet, which carries 8; where each rank sums a chunk, the threads of a launch share the chunk.
func workOf(a Algorithm, n uint64, world int) uint64 {
	switch a {
	case OneshotPush:
		return packetsOf(n)
	case TwoshotPush:
		return chunkOf(n, world)
	}
	return packsOf(n)
}

// blockOf is the number of threads in a block. Larger blocks, and so fewer flags, pay when there is much to do. Pull:
// measured on one H200 with 2, 4 and 8 virtual ranks, 1 KB to 1 MB. Push has no flags for each block, and small
// blocks spread over more of the device: measured with prototypes at 8 KB, and to be tuned.
func blockOf(a Algorithm, work uint64, world int) int {
	small, large := uint64(256), uint64(16384)/uint64(world)
	if a.pushes() {
		small, large = 128, 32*256
	}
	switch {
	case work < small:
		return max(64, int(work+31)/32*32)
	case work > large:
		return 512
	case a.pushes() && work <= 32*128:
		return 128
	}
	return 256
}

// packsOf is how many 16-byte packs n bytes take, one at least.
func packsOf(n uint64) uint64 { return max(1, (n+15)/16) }

// packetsOf is how many packets of 8 bytes n bytes take, one at least.
func packetsOf(n uint64) uint64 { return max(1, (n+7)/8) }

// chunkOf is how many packets each rank sums in two-shot push.
func chunkOf(n uint64, world int) uint64 {
	return (packetsOf(n) + uint64(world) - 1) / uint64(world)
}

// piecesOf is how many launches a message of n bytes takes, one at least.
func piecesOf(n, most uint64) uint64 { return max(1, (n+most-1)/most) }

func blocksFor(work uint64, threads int) int {
	return int(min((work+uint64(threads)-1)/uint64(threads), mostBlocks))
}

const mostBlocks = 32
