// allreduce_oneshot_pull_{f32,f16,bf16}
//
// Purpose: all-reduce (sum) of a small buffer: every rank reads every rank's data over peer access and adds
// it up itself. One launch per rank and call.
//
// Algorithm. Staged (stage != null): copy the input into this rank's staging half, exchange start flags,
// read the halves of all ranks, add, write the output. Registered (stage == null): the inputs are
// registered, so peers read them where they are; exchange start flags, read, add, write, exchange end flags.
//
// Synchronisation, between block b of one rank and block b of each other:
//   start: fence.acq_rel.sys and st.relaxed.sys by one thread after the block's barrier; ld.acquire.sys by one
//     lane per peer, then a barrier. Orders the staging stores (or, in place, the stores of earlier kernels)
//     before the peers' loads. .sys: the peer is another device.
//   end (in place only): the same pair in slots of its own. Orders this block's loads before the peer's
//     kernel ends, so that the peer may overwrite its input.
//   Staged calls need no end flag. The half written in call k is written again in call k+2. Rank A's call
//     k+2 follows A's call k+1, in which A acquired an epoch k+1 start flag of each peer B; B posted that in
//     its call k+1, which follows the end of B's call k in stream order, and so every load B made of A's half.
//     One block is enough for this, so grids may differ from call to call.
//   Dependent launch keeps that argument: nothing is read, written or posted before wait_for_stream.
//
//   After a failed wait the rank is poisoned and stages nothing more: it has not heard of its peers' progress,
//     and one of them may still be reading what an earlier, good call staged.
//
// Requirements: all ranks launch the same count, head, grid and mode; all blocks of all ranks are resident
// together; out is in or does not overlap it, and in in-place mode out overlaps no rank's input; registered inputs
// are 16-byte aligned at element `head`; half holds 16 bytes and count elements; blocks <= MAX_BLOCKS; threads a
// multiple of 32, at least 32.
#include "reduce.cuh"

namespace fl {

// Mirrored by allreduce/args.go.
struct AllReduceArgs {
    const void* peer[MAX_RANKS];  // staging of each rank, or its registered input
    Pad* pad[MAX_RANKS];          // signal pad of each rank
    const void* in;
    void* out;
    void* stage;                  // this rank's staging, null for in-place reads
    Control* control;
    Status* status;
    u64 count;                    // elements
    u64 half;                     // bytes from one staging half to the other, multiple of 16
    u64 timeout_ns;
    u32 rank, world;
    u32 head;                     // elements before the first 16-byte boundary of the body
    u32 reserved;
};

// N: the world size, or 0 for one known only at run time.
template <class T, u32 N>
FL_DEVICE void oneshot_pull(const AllReduceArgs& a) {
    const Comm c = {global(a.control), global(a.status), a.timeout_ns, a.rank, N != 0 ? N : a.world};
    const Split s = split<T>(a.count, a.head);
    const u64 in = global(a.in), out = global(a.out);
    const bool staged = a.stage != nullptr, first_warp = thread() < 32;
    const u32 first = block() * threads() + thread(), stride = blocks() * threads();
    const u64 body = (u64)s.head * T::SIZE;
    const bool aligned = (in + body) % 16 == 0;
    // In a staging half the body starts on a 16-byte boundary, whatever the head.
    const u64 shift = staged ? (0 - body) % 16 : 0;
    const u64 my_pad = global(a.pad[c.rank]);
    // Parameters come from memory at their first use: have them before the wait for the peers, not after.
    Peers<N != 0 ? N : 1> peer = {};
    if constexpr (N != 0)
        for (u32 r = 0; r < N; r++) peer.base[r] = global(a.peer[r]);

    const bool early = s.body < EARLY_BYTES / 16;
    const u64 first_in = in + body + 16 * (u64)first;
    const bool first_here = staged && aligned && first < s.body;
    needed_before_wait(first_here ? first_in : c.control);
    wait_for_stream();
    if (early) release_stream();
    // The first pack, the epoch and the poison mark are on their way together.
    Packed x = load16_if(first_here, first_in);
    const u32 epoch = begin(c);
    bool failed = poisoned(c);
    const u64 half = shift + (staged && (epoch & 1) ? a.half : 0);

    if (staged && !failed) {
        const u64 stage = global(a.stage) + half;
        constexpr u32 U = 4;  // packs under way together
        if (aligned)
            for (u32 v = first; v < s.body; v += U * stride) {
                Packed y[U];
#pragma unroll
                for (u32 u = 0; u < U; u++) {
                    const bool loaded = u == 0 && v == first;
                    y[u] = loaded ? x : Packed{};
                    if (!loaded) y[u] = load16_if(v + u * stride < s.body, in + body + 16 * (u64)(v + u * stride));
                }
#pragma unroll
                for (u32 u = 0; u < U; u++)
                    if (v + u * stride < s.body) store16(stage + body + 16 * (u64)(v + u * stride), y[u]);
            }
        else
            for (u32 v = first; v < s.body; v += stride) store16(stage + body + 16 * (u64)v, load_packed<T>(in + body + 16 * (u64)v, false));
        if (block() == 0 && thread() < s.singles) {
            const u64 o = T::SIZE * single<T>(s, thread());
            T::store(stage + o, T::load(in + o));
        }
    }

    // The block's staging is complete, every thread has its epoch, and all agree whether to go on: another block may have set
    // the mark while some of these threads read it.
    failed = sync_block_or(failed);
    if (first_warp && !failed) {
        if (thread() == 0) {
            arrive<N>(c, a.pad, SLOT_START, epoch);
            refresh(c, a.pad, epoch, staged ? block() : block() + blocks());
        }
        failed = !wait(c, my_pad, SLOT_START, epoch);
    }
    if (thread() / 32 == threads() / 32 - 1) commit(c, epoch);
    if (sync_block_or(failed)) return;  // nothing has been written to out

    if constexpr (N != 0) {
        peer.offset = half;
        sum_share<T, N, true>(peer, out, s, N);
    } else {
        sum_share<T, 0, true>(AnyPeers{a.peer, half}, out, s, c.world);
    }

    if (!early) release_stream();
    if (staged) return;
    sync_block();  // every load of the block is behind this, and so before the release in arrive
    if (!first_warp) return;
    if (thread() == 0) arrive<N>(c, a.pad, SLOT_END, epoch);
    wait(c, my_pad, SLOT_END, epoch);
}

template <class T>
FL_DEVICE void oneshot_pull_any(const AllReduceArgs& a) {
    switch (a.world) {
    case 2: return oneshot_pull<T, 2>(a);
    case 4: return oneshot_pull<T, 4>(a);
    case 8: return oneshot_pull<T, 8>(a);
    default: return oneshot_pull<T, 0>(a);
    }
}

}  // namespace fl

#define FL_ENTRY(name, T)                                                                          \
    extern "C" __global__ void __launch_bounds__(512, 2) name(FL_PARAM fl::AllReduceArgs a) {         \
        fl::oneshot_pull_any<fl::T>(a);                                                            \
    }
FL_ENTRY(allreduce_oneshot_pull_f32, F32)
FL_ENTRY(allreduce_oneshot_pull_f16, F16)
FL_ENTRY(allreduce_oneshot_pull_bf16, BF16)
