// allreduce_twoshot_pull_{f32,f16,bf16}
//
// Purpose: all-reduce (sum) of buffers for which one-shot pull would read too much: each rank sums one chunk of all ranks' data,
// and gathers the sums of the others. One launch per rank and call.
//
// Algorithm. The body's packs of 16 bytes are cut into one chunk for each rank, of equal size but for the last. Each thread has an
// index in the chunks, in all stages. Copy the input into this rank's staging half (in place, stage == null: leave it where
// it is); exchange start flags; add the rank's own chunk from all ranks' data into its result area; exchange end flags; copy
// the sums of all chunks to the output. The few elements outside of the body are summed by every rank for itself.
//
// Synchronisation, between block b of one rank and block b of each other, which work on the same indices:
//   start: fence.acq_rel.sys and st.relaxed.sys by one thread after the block's barrier; ld.acquire.sys by one lane per peer,
//     then a barrier. Orders the staging stores (or, in place, the stores of earlier kernels) before the peers' loads. .sys: the
//     peer is another device.
//   end: the same pair in slots of its own. Orders the stores of sums before the peers' loads of them; and, in place, this
//     block's loads of inputs before the peers' stores to out and the end of their kernels.
//   Epochs, pads and staging halves are those of one-shot pull, and calls of the two may take turns: each acquires a start flag of
//     every peer, which is all that the reuse of a half two calls later needs; oneshot_pull.cu has the argument. Between two-shot
//     calls one half would do, as the end flags of a call order all loads of staging before the next call.
//   The result area is one: it is written behind a start flag of every peer, which that peer posted behind the end of its call
//     before, and so behind every load that it made of these sums.
//   Dependent launch keeps all that: nothing is read, written or posted before wait_for_stream.
//
//   After a failed wait nothing has been written to out. The rank is poisoned and stages nothing more: it has not heard of its
//     peers' progress, and one of them may still be reading what an earlier, good call staged.
//
// Requirements: all ranks launch the same count, head, grid and mode; all blocks of all ranks are resident together; out is
// in or does not overlap it; registered inputs are 16-byte aligned at element `head`; half holds 16 bytes and count elements;
// a result area holds a chunk of packs and is 16-byte aligned; blocks <= MAX_BLOCKS; threads a multiple of 32, at least 32.
#include "reduce.cuh"

namespace fl {

// AllReduceArgs of oneshot_pull.cu, and the results. Mirrored by allreduce/args.go.
struct TwoshotArgs {
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
    void* result[MAX_RANKS];      // sums of each rank's chunk
};

// N: the world size, or 0 for one known only at run time.
template <class T, u32 N>
FL_DEVICE void twoshot_pull(const TwoshotArgs& a) {
    constexpr u32 GROUP = N != 0 ? N : 4;
    const Comm c = {global(a.control), global(a.status), a.timeout_ns, a.rank, N != 0 ? N : a.world};
    const Split s = split<T>(a.count, a.head);
    const u64 in = global(a.in), out = global(a.out);
    const bool staged = a.stage != nullptr, first_warp = thread() < 32;
    const u32 first = block() * threads() + thread(), stride = blocks() * threads();
    const u64 body = (u64)s.head * T::SIZE;
    const u32 chunk = (s.body + c.world - 1) / c.world;
    const bool in_aligned = (in + body) % 16 == 0, out_aligned = (out + body) % 16 == 0;
    // In a staging half the body starts on a 16-byte boundary, whatever the head.
    const u64 shift = staged ? (0 - body) % 16 : 0;
    const u64 my_pad = global(a.pad[c.rank]), my_result = global(a.result[c.rank]);
    // Parameters come from memory at their first use: have them before the wait for the peers, not after.
    Peers<N != 0 ? N : 1> peer = {}, result = {};
    if constexpr (N != 0)
        for (u32 r = 0; r < N; r++) {
            peer.base[r] = global(a.peer[r]);
            result.base[r] = global(a.result[r]);
        }

    // load_if has pack i of the chunks of ranks g, g + 1, … on its way together, where there is one.
    auto load_if = [&](Packed (&x)[GROUP], u32 g, u32 i, bool p) {
#pragma unroll
        for (u32 k = 0; k < GROUP; k++) {
            const u32 v = (g + k) * chunk + i;
            x[k] = load16_if(p && i < chunk && v < s.body && (N != 0 || g + k < c.world), in + body + 16 * (u64)v);
        }
    };

    const bool early = s.body < EARLY_BYTES / 16;
    needed_before_wait(in + body + 16 * (u64)first);
    wait_for_stream();
    if (early) release_stream();
    // The first packs, the epoch and the poison mark are on their way together.
    Packed x[GROUP];
    load_if(x, 0, first, staged && in_aligned);
    const u32 epoch = begin(c);
    bool failed = poisoned(c);
    const u64 half = shift + (staged && (epoch & 1) ? a.half : 0);

    if (staged && !failed) {
        const u64 stage = global(a.stage) + half;
        for (u32 i = first; i < chunk; i += stride)
            for (u32 g = 0; g < c.world; g += GROUP) {
                if (!in_aligned) {
#pragma unroll 1
                    for (u32 v = g * chunk + i, k = 0; k < GROUP && v < s.body && g + k < c.world; k++, v += chunk)
                        store16(stage + body + 16 * (u64)v, load_packed<T>(in + body + 16 * (u64)v, false));
                    continue;
                }
                if (i != first || g != 0) load_if(x, g, i, true);
#pragma unroll
                for (u32 k = 0; k < GROUP; k++) {
                    const u32 v = (g + k) * chunk + i;
                    if (v < s.body && (N != 0 || g + k < c.world)) store16(stage + body + 16 * (u64)v, x[k]);
                }
            }
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
            refresh(c, a.pad, epoch, block() + blocks());
        }
        failed = !wait(c, my_pad, SLOT_START, epoch);
    }
    if (thread() / 32 == threads() / 32 - 1) commit(c, epoch);
    if (sync_block_or(failed)) return;  // nothing has been written to out

    u32 one = 0;
    auto sums = [&](const auto& from) {
        const u32 start = c.rank * chunk, end = start < s.body ? s.body - start : 0;
        sum_each<T, N, true>(from, body + 16 * (u64)start, first, end < chunk ? end : chunk, stride, c.world,
                             [&](u32 i, const Packed& x) __attribute__((always_inline)) { store16(my_result + 16 * (u64)i, x); });
        if (block() == 0 && thread() < s.singles) one = sum_one<T, N>(from, T::SIZE * single<T>(s, thread()), c.world);
    };
    if constexpr (N != 0) {
        peer.offset = half;
        sums(peer);
    } else {
        sums(AnyPeers{a.peer, half});
    }

    sync_block();  // every sum of the block is stored, and every load of the others' data is behind this
    if (first_warp) {
        if (thread() == 0) arrive<N>(c, a.pad, SLOT_END, epoch);
        failed = !wait(c, my_pad, SLOT_END, epoch);
    }
    if (sync_block_or(failed)) return;  // nothing has been written to out

    for (u32 i = first; i < chunk; i += stride)
        for (u32 g = 0; g < c.world; g += GROUP) {
            if (!out_aligned) {
#pragma unroll 1
                for (u32 v = g * chunk + i, k = 0; k < GROUP && v < s.body && g + k < c.world; k++, v += chunk)
                    store_packed<T>(out + body + 16 * (u64)v, load16(global(a.result[g + k]) + 16 * (u64)i), false);
                continue;
            }
#pragma unroll
            for (u32 k = 0; k < GROUP; k++) {
                u64 from = 0;
                if constexpr (N != 0) from = result.base[k];
                else if (g + k < c.world) from = global(a.result[g + k]);
                x[k] = load16_if((N != 0 || g + k < c.world) && (g + k) * chunk + i < s.body, from + 16 * (u64)i);
            }
#pragma unroll
            for (u32 k = 0; k < GROUP; k++) {
                const u32 v = (g + k) * chunk + i;
                if ((N != 0 || g + k < c.world) && v < s.body) store16(out + body + 16 * (u64)v, x[k]);
            }
        }
    if (block() == 0 && thread() < s.singles) T::store(out + T::SIZE * single<T>(s, thread()), one);
    if (!early) release_stream();
}

template <class T>
FL_DEVICE void twoshot_pull_any(const TwoshotArgs& a) {
    switch (a.world) {
    case 2: return twoshot_pull<T, 2>(a);
    case 4: return twoshot_pull<T, 4>(a);
    case 8: return twoshot_pull<T, 8>(a);
    default: return twoshot_pull<T, 0>(a);
    }
}

}  // namespace fl

#define FL_ENTRY(name, T)                                                                          \
    extern "C" __global__ void __launch_bounds__(512, 2) name(FL_PARAM fl::TwoshotArgs a) {           \
        fl::twoshot_pull_any<fl::T>(a);                                                            \
    }
FL_ENTRY(allreduce_twoshot_pull_f32, F32)
FL_ENTRY(allreduce_twoshot_pull_f16, F16)
FL_ENTRY(allreduce_twoshot_pull_bf16, BF16)
