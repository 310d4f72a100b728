package allreduce

import (
	"encoding/binary"

	"github.com/fenceline/fenceline/flags"
)

// Layout of fl::AllReduceArgs in kernels/oneshot_pull.cu. A test reads that file and compares.
const (
	pullPeer    = 0
	pullPad     = pullPeer + 8*flags.MaxRanks
	pullIn      = pullPad + 8*flags.MaxRanks
	pullOut     = pullIn + 8
	pullStage   = pullOut + 8
	pullControl = pullStage + 8
	pullStatus  = pullControl + 8
	pullCount   = pullStatus + 8
	pullHalf    = pullCount + 8
	pullTimeout = pullHalf + 8
	pullRank    = pullTimeout + 8
	pullWorld   = pullRank + 4
	pullHead    = pullWorld + 4
	pullBytes   = pullHead + 8
)

// Layout of fl::TwoshotArgs in kernels/twoshot_pull.cu: the above, and then the areas of results.
const (
	twoshotResult = pullBytes
	twoshotBytes  = twoshotResult + 8*flags.MaxRanks
)

// Layout of fl::PushArgs in kernels/packets.cuh.
const (
	pushBox     = 0
	pushIn      = pushBox + 8*flags.MaxRanks
	pushOut     = pushIn + 8
	pushControl = pushOut + 8
	pushStatus  = pushControl + 8
	pushCount   = pushStatus + 8
	pushSlots   = pushCount + 8
	pushTimeout = pushSlots + 8
	pushRank    = pushTimeout + 8
	pushWorld   = pushRank + 4
	pushEarly   = pushWorld + 4
	pushBytes   = pushEarly + 8
)

// Layout of fl::ReduceArgs in kernels/reduce_local.cu.
const (
	reducePart  = 0
	reduceOut   = reducePart + 8*flags.MaxRanks
	reduceCount = reduceOut + 8
	reduceWorld = reduceCount + 8
	reduceHead  = reduceWorld + 4
	reduceBytes = reduceHead + 4
)

// kernelSource is a kernel file, its entries without their dtype, and the size of their argument.
type kernelSource struct {
	file, entry string
	bytes       int
}

// sources are the kernels that sum, by algorithm.
var sources = [numAlgorithms]kernelSource{
	OneshotPull: {"oneshot_pull", "allreduce_oneshot_pull_", pullBytes},
	OneshotPush: {"oneshot_push", "allreduce_oneshot_push_", pushBytes},
	TwoshotPull: {"twoshot_pull", "allreduce_twoshot_pull_", twoshotBytes},
	TwoshotPush: {"twoshot_push", "allreduce_twoshot_push_", pushBytes},
	OneshotWide: {"oneshot_wide", "allreduce_oneshot_wide_", pushBytes},
	TwoshotWide: {"twoshot_wide", "allreduce_twoshot_wide_", pushBytes},
	Copy:        {"reduce_local", "reduce_local_", reduceBytes},
	Host:        {"reduce_local", "reduce_local_", reduceBytes},
}

func put64(b []byte, off int, v uint64) { binary.LittleEndian.PutUint64(b[off:], v) }
func put32(b []byte, off int, v uint32) { binary.LittleEndian.PutUint32(b[off:], v) }
