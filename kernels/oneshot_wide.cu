// allreduce_oneshot_wide_{f32,f16,bf16}
//
// Purpose: one-shot push where bandwidth counts: the same exchange in packets that are three quarters data (wide.cuh). Needs peer
// writes only, and 128-bit atoms. One launch per rank and call.
//
// Algorithm. The buffer is cut into columns of 48 bytes, a warp takes 32 at a time. Each thread writes the four packets of its
// columns into the boxes of all peers, beginning with the next rank, so that the links share the work; then, column by column, polls
// the peers' packets in this rank's box, adds them to its own and writes the output.
//
// Synchronisation: none but the packets themselves, st.relaxed.sys and ld.relaxed.sys of 128-bit words that hold data and
// epoch. .sys: the peer is another device. packets.cuh says why that is enough, and why a half may be written again two calls
// later: each thread that has a column waits in it for every peer, and a call has one column at least.
//   Each thread sends all it has before it polls anything, and polls what depends on nothing but what peers' threads send
//     before they poll: so there is no cycle, whatever the grids' shapes.
//   A thread reads and writes the same bytes of in and out, in this order: they may be one buffer.
//   The barrier keeps commit behind every thread's begin; no peer's packet depends on it.
//   Dependent launch keeps all that: nothing is read, written or sent before wait_for_stream. A call of `early` bytes or more lets
//     the next one in when each of its blocks has had packets of the same block of every peer, if the ranks' grids are of one size. All of
//     those are there then, and the next call cannot take their room: allreduce/residency.go.
//
//   A call that fails may have written a part of out. The rank is poisoned then and sends nothing more: it has not heard of its
//     peers' progress, and one of them may still wait for what an earlier, good call sent.
//
// Requirements: all ranks launch the same count, at least 1; count fits the slots; all blocks of all ranks are resident
// together; out is in or does not overlap it; boxes hold 2 * world * slots packets, zeroed before the first call and
// 16-byte aligned; control points to a PacketControl; blocks <= MAX_BLOCKS; threads a multiple of 32, at least 32.
#include "wide.cuh"

namespace fl {

// N: the world size, or 0 for one known only at run time.
template <class T, u32 N>
FL_DEVICE void oneshot_wide(const PushArgs& a) {
    constexpr u32 GROUP = N != 0 ? N : 1;  // of how many ranks packets are under way together: four of each, in as many registers as there are
    const Comm c = {global(a.control), global(a.status), a.timeout_ns, a.rank, N != 0 ? N : a.world};
    const Comm turn = counting(c, __builtin_offsetof(PacketControl, oneshot_wide));
    const u64 in = global(a.in), out = global(a.out);
    const Packs<T> shape(in, out, a.count);
    const u32 packs = shape.packs(), columns = columns_of(packs, 1);
    const u32 first = 32 * (thread() / 32 * blocks() + block()) + (thread() & 31), stride = blocks() * threads();
    const Boxes<N> boxes(c, a.box);
    const u64 pitch = 16 * a.slots, half = c.world * pitch, step = 16 * (u64)columns;
    auto there = [&](u32 i, u32 q) { return i < columns && row_of(q) * columns + i < packs; };

    const bool early = a.count * T::SIZE < a.early;
    const Boxes<N> even = boxes.at(c.rank * pitch);
    needed_before_wait((in + 16 * (u64)first) | (turn.control + 4 * block()) | c.control | shape.full | even[1] | half);
    wait_for_stream();
    if (early) release_stream();
    // The first column, the epoch and the poison mark are on their way together.
    const u32 epoch = begin(turn);
    const bool failed = poisoned(c);
    Packed x[ROWS];
    Column<T>{shape, in, first, columns}.load(first < columns, x);
    const u64 now = epoch & 1 ? half : 0;
    const Boxes<N> mine = even.at(now);

    // One branch for both, as packets wait here.
    if (seldom(failed | publishes(epoch))) {
        if (!failed) fence_release();  // what the kernel before wrote, ahead of the packets: see packets.cuh
    }
    if (!failed) {
        for (u32 i = first;;) {
#pragma unroll
            for (u32 q = 0; q < PACKETS; q++)
                mine.send_if(there(i, q), 16 * (u64)(i + q * columns), wide(packet_words(x, q), epoch));
            i += stride;
            if (i >= columns) break;
            Column<T>{shape, in, i, columns}.load(true, x);
        }
        if (seldom(refreshes(epoch)))
            for (u32 s = block() * threads() + thread(); s < a.slots; s += stride)
                if (s / columns >= PACKETS || !there(s % columns, s / columns)) mine.send(16 * (u64)s, wide({}, epoch));
    }

    sync_block();  // every thread has its epoch
    if (thread() / 32 == threads() / 32 - 1) commit(turn, epoch);
    if (failed) return;

    for (u32 i = first; i < columns; i += stride) {
        if (first + stride < columns) Column<T>{shape, in, i, columns}.load(true, x);  // of several it still has the last
        Words v[PACKETS];
#pragma unroll
        for (u32 q = 0; q < PACKETS; q++) v[q] = packet_words(x, q);
        const u32 o = opaque(i);  // so that no comparison is kept through the loop
        auto sent = [&](u32 q) { return there(o, q); };
        collect_sum<T, N, GROUP>(c, boxes[0] + now + 16 * (u64)i, pitch, step, epoch, sent, v);
        if (!early) release_stream();
#pragma unroll
        for (u32 w = 0; w < 3 * PACKETS; w++) word_of(x, w) = v[w / 3].w[w % 3];
        Column<T>{shape, out, i, columns}.store(true, x);
    }
    if (seldom(publishes(epoch))) fence_release();  // behind the packets' loads: what peers published is then visible to the next kernel
}

template <class T>
FL_DEVICE void oneshot_wide_any(const PushArgs& a) {
    if (a.world == 2) return oneshot_wide<T, 2>(a);  // with more ranks it is two-shot that bandwidth asks for
    return oneshot_wide<T, 0>(a);
}

}  // namespace fl

#define FL_ENTRY(name, T)                                                                          \
    extern "C" __global__ void __launch_bounds__(512) name(FL_PARAM fl::PushArgs a) {              \
        fl::oneshot_wide_any<fl::T>(a);                                                            \
    }
FL_ENTRY(allreduce_oneshot_wide_f32, F32)
FL_ENTRY(allreduce_oneshot_wide_f16, F16)
FL_ENTRY(allreduce_oneshot_wide_bf16, BF16)
