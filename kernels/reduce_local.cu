// reduce_local_{f32,f16,bf16}
//
// Purpose: the sum at the end of the copy and host paths, where every rank's data already lies in memory of
// this device.
//
// Algorithm: the same sum in the same order as the direct kernels, so the same bits.
//
// Synchronisation: none inside. The host orders the copies ahead of the launch and the launch ahead of any
// reuse, with events.
//
// Requirements: part[r] is rank r's data for r < world, element-aligned; out is one of the parts or overlaps none.
#include "reduce.cuh"

namespace fl {

// Mirrored by allreduce/args.go.
struct ReduceArgs {
    const void* part[MAX_RANKS];
    void* out;
    u64 count;  // elements
    u32 world;
    u32 head;   // elements before the first 16-byte boundary of the body
};

}  // namespace fl

#define FL_ENTRY(name, T)                                                                            \
    extern "C" __global__ void __launch_bounds__(512) name(FL_PARAM fl::ReduceArgs a) {              \
        fl::sum_share<fl::T, 0, false>(fl::AnyPeers{a.part, 0}, fl::global(a.out),                      \
                                       fl::split<fl::T>(a.count, a.head), a.world);                  \
    }
FL_ENTRY(reduce_local_f32, F32)
FL_ENTRY(reduce_local_f16, F16)
FL_ENTRY(reduce_local_bf16, BF16)
