// allreduce_twoshot_push_{f32,f16,bf16}
//
// Purpose: all-reduce (sum) of buffers for which one-shot push would send too much: each rank sums one chunk and sends the sum
// to all. Needs peer writes only, and has no barrier between ranks. One launch per rank and call.
//
// Algorithm. The buffer is cut into slots of 8 bytes, and these into one chunk for each rank, of equal size but for the last. Each
// thread has an index in the chunks and does three things, each for all of its indices before the next: it sends its slots of
// every chunk to the chunk's owner; adds what came for its slots of the rank's own chunk and sends the sums to all; writes the
// sums that came of the other chunks to the output. A sum is rounded once, by its owner.
//
// Synchronisation: none but the packets themselves, as in oneshot_push.cu and for the reasons in packets.cuh. .sys: the peer is
// another device. Slot 0 of chunk 0 is never missing, rank 0 sends its sum when every rank has sent a part, and every rank
// waits for that sum; so each rank ends a call behind the end of every rank's call before.
//   A thread waits for parts when it has sent all parts it has, and for sums when it has sent all sums it has. What it
//     waits for are parts that peers' threads send before they wait, and sums that they send once such parts are there: so
//     there is no cycle, whatever the grids' shapes.
//   A thread reads and writes the same slots of in and out, in this order: they may be one buffer.
//   The barrier keeps commit behind every thread's begin; no peer's packet depends on it.
//   Dependent launch keeps all that: nothing is read, written or sent before wait_for_stream.
//
//   A call that fails may have written a part of out. The rank is poisoned then and sends nothing more: it has not heard of its
//     peers' progress, and one of them may still wait for what an earlier, good call sent.
//
// Requirements: all ranks launch the same count, at least 1; a chunk fits the slots; all blocks of all ranks are resident
// together; out is in or does not overlap it; boxes hold 2 * world * slots packets, zeroed before the first call and
// 16-byte aligned; control points to a PacketControl; blocks <= MAX_BLOCKS; threads a multiple of 32, at least 32.
#include "packets.cuh"

namespace fl {

// N: the world size, or 0 for one known only at run time.
template <class T, u32 N>
FL_DEVICE void twoshot_push(const PushArgs& a) {
    constexpr u32 GROUP = N != 0 ? N : 4;
    const Comm c = {global(a.control), global(a.status), a.timeout_ns, a.rank, N != 0 ? N : a.world};
    const Comm turn = counting(c, __builtin_offsetof(PacketControl, twoshot));
    const Pairs<T> in(global(a.in), a.count), out(global(a.out), a.count);
    const u32 first = block() * threads() + thread(), stride = blocks() * threads(), pairs = in.pairs();
    const u32 chunk = (pairs + c.world - 1) / c.world, my_chunk = c.rank * chunk, last_chunk = (c.world - 1) * chunk;
    const Boxes<N> boxes(c, a.box);
    const u64 pitch = 16 * a.slots;

    // load has slot i of the chunks of ranks dest(g), dest(g + 1), … on its way together, where it is whole.
    auto load = [&](Pair (&x)[GROUP], u32 g, u32 i) {
#pragma unroll
        for (u32 k = 0; k < GROUP; k++) {
            const u32 at = boxes.dest(g + k) * chunk + i;
            x[k] = load8_if((N != 0 || g + k < c.world) && i < chunk && in.whole(at), in.at(at));
        }
    };
    // load_rest loads those that are there and not whole, one by one: of an aligned buffer that is one in all, and none where the
    // last chunk's is whole.
    auto load_rest = [&](Pair (&x)[GROUP], u32 g, u32 i) __attribute__((always_inline)) {
        if (in.whole(last_chunk + i)) return;
#pragma unroll 1
        for (u32 k = 0; k < GROUP && (N != 0 || g + k < c.world); k++) {
            const u32 at = boxes.dest(g + k) * chunk + i;
            if (!in.broken(at)) continue;
            const Pair p = in.load(at);
#pragma unroll
            for (u32 j = 0; j < GROUP; j++)
                if (j == k) x[j] = p;
        }
    };

    const bool early = pairs < EARLY_BYTES / 8;
    needed_before_wait(in.at(my_chunk + first) | in.full);
    wait_for_stream();
    if (early) release_stream();
    // The first pairs, the epoch and the poison mark are on their way together.
    Pair x[GROUP];
    load(x, 0, first);
    const u32 epoch = begin(turn);
    const bool failed = poisoned(c);
    if (first < chunk) load_rest(x, 0, first);
    const u64 part = c.rank * pitch, sum = c.world * pitch + part;  // where this rank sends

    Pair own[1] = {x[0]};
    if (!failed) {
        if (publishes(epoch)) fence_release();  // what the kernel before wrote, ahead of the packets: see packets.cuh
        u32 i = first, g = 0;
        while (i < chunk) {
#pragma unroll
            for (u32 k = 0; k < GROUP; k++)
                if (g + k != 0 && (N != 0 || g + k < c.world) && boxes.dest(g + k) * chunk + i < pairs)
                    store_packet(boxes[g + k] + part + 16 * (u64)i, packet(x[k], epoch));
            g += GROUP;
            if (N != 0 || g >= c.world) {
                g = 0;
                i += stride;
            }
            if (i >= chunk) break;
            load(x, g, i);
            load_rest(x, g, i);
        }
        if (refreshes(epoch))
            for (u64 i = first; i < a.slots; i += stride)
                for (u32 k = 1; k < c.world; k++)
                    if (i >= chunk || boxes.dest(k) * chunk + i >= pairs) store_packet(global(a.box[boxes.dest(k)]) + part + 16 * i, packet({}, epoch));
    }

    sync_block();  // every thread has its epoch
    if (thread() / 32 == threads() / 32 - 1) commit(turn, epoch);
    if (failed) return;

    const u64 parts = boxes[0], sums = parts + c.world * pitch;
    for (u32 i = first; i < chunk && my_chunk + i < pairs; i += stride) {
        if (i != first) own[0] = in.load(my_chunk + i);
        collect_sum<T, N>(c, parts + 16 * (u64)i, pitch, 0, 1, epoch, own);
        if (N != 2 && publishes(epoch)) fence_release();  // what peers published goes on with the sums, to those it is new to
        boxes.send(sum + 16 * (u64)i, packet(own[0], epoch));
        out.store(my_chunk + i, own[0]);
    }

    for (u32 i = first; i < chunk; i += stride)
        for (u32 g = 0; g < c.world; g += GROUP) {
            Packet p[1][GROUP];
            u32 mine = opaque(1u << c.rank);  // a mask, not the same here and below: no predicate is kept through the loop between, which needs them
#pragma unroll
            for (u32 k = 0; k < GROUP; k++) {
                const bool there = (mine >> (g + k) & 1) != 0 || (N == 0 && g + k >= c.world) || (g + k) * chunk + i >= pairs;
                p[0][k] = packet({}, there ? epoch : ~epoch);
            }
            const u64 base = sums + g * pitch + 16 * (u64)i;
            auto at = [&](u32, u32 k) { return base + k * pitch; };
            auto from = [&](u32 k) { return g + k; };
            collect(c, at, from, epoch, p);
            mine = opaque(2u << c.rank);
#pragma unroll
            for (u32 k = 0; k < GROUP; k++)
                store8_if((mine >> (g + k) & 2) == 0 && (N != 0 || g + k < c.world) && out.whole((g + k) * chunk + i), out.at((g + k) * chunk + i),
                          {{data_of(p[0][k].w[0]), data_of(p[0][k].w[1])}});
            if (!out.whole(last_chunk + i)) {
                const u32 o = opaque(i);  // so that no comparison above is kept for here
#pragma unroll
                for (u32 k = 0; k < GROUP; k++)
                    if ((mine >> (g + k) & 2) == 0 && (N != 0 || g + k < c.world) && out.broken((g + k) * chunk + o))
                        out.store((g + k) * chunk + o, {{data_of(p[0][k].w[0]), data_of(p[0][k].w[1])}});
            }
        }
    if (refreshes(epoch)) {  // the slots of sums that are not used: peers may poll them until they have ended the call before
        // Thread 0 of block 0 has waited for a sum of chunk 0, or for its parts, if it is still here.
        const bool heard = sync_block_or(block() == 0 && thread() == 0);
        if (heard && thread() / 32 == threads() / 32 - 1)
            for (u64 i = thread() & 31; i < a.slots; i += 32)
                if (i >= chunk || my_chunk + i >= pairs) boxes.send(sum + 16 * i, packet({}, epoch));
    }
    if (publishes(epoch)) fence_release();  // behind the packets' loads: what peers published is then visible to the next kernel
    if (!early) release_stream();
}

template <class T>
FL_DEVICE void twoshot_push_any(const PushArgs& a) {
    switch (a.world) {
    case 2: return twoshot_push<T, 2>(a);
    case 4: return twoshot_push<T, 4>(a);
    case 8: return twoshot_push<T, 8>(a);
    default: return twoshot_push<T, 0>(a);
    }
}

}  // namespace fl

#define FL_ENTRY(name, T)                                                                          \
    extern "C" __global__ void __launch_bounds__(512) name(FL_PARAM fl::PushArgs a) {              \
        fl::twoshot_push_any<fl::T>(a);                                                            \
    }
FL_ENTRY(allreduce_twoshot_push_f32, F32)
FL_ENTRY(allreduce_twoshot_push_f16, F16)
FL_ENTRY(allreduce_twoshot_push_bf16, BF16)
