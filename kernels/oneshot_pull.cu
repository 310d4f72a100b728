// allreduce_oneshot_pull_{f32,f16,bf16}
//
// Purpose: all-reduce (sum) of a small buffer: every rank reads every rank's data over peer access and adds
// it up itself. One launch per rank and call.
//
// Algorithm. Staged (stage != null): copy the input into this rank's staging half, exchange start flags,
// read the halves of all ranks, add, write the output. In place (stage == null): the inputs are
// registered, so peers read them where they are; exchange start flags, read, add, write, exchange end flags.
//
// Synchronisation, between block b of one rank and block b of each other:
//   start: st.release.sys after the block's barrier, ld.acquire.sys before its next one. Orders the staging
//     stores (or, in place, the stores of earlier kernels) before the peers' loads. .sys: the peer is
//     another device.
//   end (in place only): the same pair in slots of its own. Orders this block's loads before the peer's
//     kernel ends, so that the peer may overwrite its input.
//   Staged calls need no end flag. The half written in call k is written again in call k+2. Rank A's call
//     k+2 follows A's call k+1, in which A acquired an epoch k+1 start flag of each peer B; B posted that in
//     its call k+1, which follows the end of B's call k in stream order, and so every load B made of A's half.
//     One block is enough for this, so grids may differ from call to call.
//   Dependent launch keeps that argument: nothing is read, written or posted before wait_for_stream.
//
// Requirements: registered inputs are 16-byte aligned at element `head`; all ranks launch the same count, head, grid and mode; all blocks of all ranks are resident
// together; out is in or does not overlap it, and in in-place mode out overlaps no rank's input; half holds
// 16 + count elements; blocks <= MAX_BLOCKS; threads a multiple of 32, at least 32.
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

template <class T>
FL_DEVICE void oneshot_pull(const AllReduceArgs& a) {
    const Comm c = {global(a.control), global(a.status), a.timeout_ns, a.rank, a.world};
    const Split s = split<T>(a.count, a.head);
    const u64 in = global(a.in), out = global(a.out);
    const bool staged = a.stage != nullptr, first_warp = thread() < 32;
    const u64 body = (u64)s.head * T::SIZE;
    // In a staging half the body starts on a 16-byte boundary, whatever the head.
    const u64 shift = staged ? (0 - body) % 16 : 0;
    u64 my_pad = 0, peer_pad = 0;
    if (first_warp) {
        my_pad = global(a.pad[c.rank]);
        peer_pad = global(a.pad[thread() % MAX_RANKS]);
    }

    wait_for_stream();
    release_stream();
    const u32 epoch = begin(c);
    if (poisoned(c)) return;
    const u64 half = shift + (staged && (epoch & 1) ? a.half : 0);

    if (staged) {
        const u64 stage = global(a.stage) + half;
        const bool aligned = (in + body) % 16 == 0;
        for (u64 v = block() * threads() + thread(); v < s.body; v += blocks() * threads())
            store16(stage + body + 16 * v, load_packed<T>(in + body + 16 * v, aligned));
        if (block() == 0 && thread() < s.singles) {
            const u64 o = T::SIZE * single<T>(s, thread());
            T::store(stage + o, T::load(in + o));
        }
    }

    sync_block();  // the block's staging is complete, and every thread has its epoch
    bool failed = false;
    if (first_warp) {
        failed = !arrive_and_wait(c, my_pad, peer_pad, SLOT_START, epoch);
        refresh(c, peer_pad, epoch, staged ? block() : block() + blocks());
    }
    if (thread() / 32 == threads() / 32 - 1) commit(c, epoch);
    if (sync_block_or(failed)) return;  // nothing has been written to out

    const Peers peer = {a.peer, half};
    switch (c.world) {
    case 2: sum_share<T, 2, true>(peer, out, s, 2); break;
    case 4: sum_share<T, 4, true>(peer, out, s, 4); break;
    case 8: sum_share<T, 8, true>(peer, out, s, 8); break;
    default: sum_share<T, 0, true>(peer, out, s, c.world);
    }

    if (staged) return;
    sync_block();  // every load of the block is behind this, and so before the release in the exchange
    if (first_warp) arrive_and_wait(c, my_pad, peer_pad, SLOT_END, epoch);
}

}  // namespace fl

#define FL_ENTRY(name, T) \
    extern "C" __global__ void __launch_bounds__(512) name(FL_PARAM fl::AllReduceArgs a) { fl::oneshot_pull<fl::T>(a); }
FL_ENTRY(allreduce_oneshot_pull_f32, F32)
FL_ENTRY(allreduce_oneshot_pull_f16, F16)
FL_ENTRY(allreduce_oneshot_pull_bf16, BF16)
