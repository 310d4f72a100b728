// allreduce_twoshot_wide_{f32,f16,bf16}
//
// Purpose: two-shot push where bandwidth counts: the same exchange in packets that are three quarters data (wide.cuh), shared out
// among the warps so that each has few registers and much under way. Needs peer writes only, has no barrier between ranks, and needs
// 128-bit atoms. One launch per rank and call.
//
// Algorithm. The buffer is cut into one chunk for each rank, and a chunk into columns of 48 bytes, four packets each. A share is 32
// columns, one for each lane of a warp. A warp does three things, each for all of its shares before the next: it sends shares of
// peers' chunks to those peers; adds one packet of each column of a share of the rank's own chunk, and sends the
// sums to all; waits for the sums of shares, two shares at a time, and writes them out. A sum is rounded once, by its owner.
//
// Synchronisation: none but the packets themselves, st.relaxed.sys and ld.relaxed.sys of 128-bit words that hold data and epoch. .sys:
// the peer is another device. packets.cuh says why that is enough. Packet 0 of chunk 0 is never missing, rank 0 sends its sum when
// every rank has sent a part, and every rank waits for that sum; so each rank ends a call behind the end of every rank's call before.
//   A thread waits for parts when it has sent all parts it has, and for sums when it has sent all sums it has. What it
//     waits for are parts that peers' threads send before they wait, and sums that they send once such parts are there: so
//     there is no cycle, whatever the grids' shapes.
//   A thread reads and writes the same bytes of in and out, in this order: they may be one buffer. For that, a warp's share of what
//     is sent is its share of what is gathered.
//   The barrier keeps commit behind every thread's begin; no peer's packet depends on it.
//   Dependent launch keeps all that: nothing is read, written or sent before wait_for_stream. A call of `early` bytes or more lets
//     the next one in when all of its blocks have all their parts. If the ranks' grids are of one size, no larger than the tiles of a
//     chunk are many, and that size has no common factor with world - 1, then these came from every block of every peer. All of those
//     are there, and the next call cannot take their room: allreduce/residency.go.
//
//   A call that fails may have written a part of out. The rank is poisoned then and sends nothing more: it has not heard of its
//     peers' progress, and one of them may still wait for what an earlier, good call sent.
//
// Requirements: all ranks launch the same count, at least 1; a chunk fits the slots; all blocks of all ranks are resident
// together; out is in or does not overlap it; boxes hold 2 * world * slots packets, zeroed before the first call and
// 16-byte aligned; control points to a PacketControl; blocks <= MAX_BLOCKS; threads a multiple of 32, at least 32.
#include "wide.cuh"

namespace fl {

// N: the world size, or 0 for one known only at run time.
template <class T, u32 N>
FL_DEVICE void twoshot_wide(const PushArgs& a) {
    constexpr u32 GROUP = N != 0 ? N : 4;  // of how many ranks packets are under way together
    const Comm c = {global(a.control), global(a.status), a.timeout_ns, a.rank, N != 0 ? N : a.world};
    const Comm turn = counting(c, __builtin_offsetof(PacketControl, twoshot_wide));
    const u64 in = global(a.in), out = global(a.out);
    const Packs<T> shape(in, out, a.count);
    const u32 packs = shape.packs(), columns = columns_of(packs, c.world), chunk = ROWS * columns;
    const u32 lane = thread() & 31, first = thread() / 32 * blocks() + block(), warps = blocks() * threads() / 32;
    const u32 tiles = (columns + 31) / 32;                      // of 32 columns, in a chunk
    const u32 others = N != 0 ? N - 1 : c.world - (c.world > 1);  // peers, or one more than none: a divisor
    const u32 shares = tiles * (c.world - 1);
    const Boxes<N> boxes(c, a.box);
    const u64 pitch = 16 * a.slots, part = c.rank * pitch, sum = c.world * pitch + part;  // where this rank sends

    auto peer = [&](u32 share) { return boxes.dest(1 + share % others); };
    auto column = [&](u32 share) { return share / others * 32 + lane; };
    auto there = [&](u32 r, u32 i, u32 q) { return i < columns && r * chunk + row_of(q) * columns + i < packs; };

    // Share s of what goes to peers and comes from them: columns of one peer's chunk. Share s of the rank's own chunk: packets of a row.
    auto of_peer = [&](u64 b, u32 s) { return Column<T>{shape, b, peer(s) * chunk + column(s), columns}; };
    auto of_mine = [&](u64 b, u32 s) { return Column<T>{shape, b, c.rank * chunk + s / PACKETS * 32 + lane, columns}; };

    const bool early = a.count * T::SIZE < a.early;
    auto slots_of = [&](u32 r) { return global(a.box[r]) + part; };
    u32 to = peer(first), to_column = column(first);
    u64 box = opaque(slots_of(to) + 16 * (u64)to_column);
    needed_before_wait((in + 16 * (u64)of_peer(in, first).first) | of_mine(in, first).words_at(first % PACKETS) | (turn.control + 4 * block())
                       | shape.full | box | sum);
    wait_for_stream();
    if (early) release_stream();
    // The first columns, the epoch and the poison mark are on their way together.
    const u32 epoch = begin(turn);
    const bool failed = poisoned(c);
    Packed x[ROWS];
    Words own[1];
    const bool any = first < shares && column(first) < columns;
    const bool mine = first < tiles * PACKETS && first / PACKETS * 32 + lane < columns;
    of_peer(in, first).start(any, x);
    of_mine(in, first).start(mine, first % PACKETS, own[0]);
    of_peer(in, first).settle(any, x);
    of_mine(in, first).settle(mine, first % PACKETS, own[0]);

    // One branch for both, as packets wait here.
    if (seldom(failed | publishes(epoch))) {
        if (!failed) fence_release();  // what the kernel before wrote, ahead of the packets: see packets.cuh
    }
    if (!failed) {
        for (u32 s = first;;) {
#pragma unroll
            for (u32 q = 0; q < PACKETS; q++)
                store_packet_if(s < shares && there(to, to_column, q), box + 16 * (u64)(q * columns), wide(packet_words(x, q), epoch));
            s += warps;
            if (s >= shares) break;
            to = peer(s), to_column = column(s), box = slots_of(to) + 16 * (u64)to_column;
            of_peer(in, s).load(to_column < columns, x);
        }
        if (seldom(refreshes(epoch)))
            for (u32 s = block() * threads() + thread(); s < a.slots; s += blocks() * threads()) {
                const u32 q = s / columns, at = s % columns;
                for (u32 k = 1; k < c.world; k++) {
                    const u32 r = boxes.dest(k);
                    if (q >= PACKETS || !there(r, at, q)) store_packet(global(a.box[r]) + part + 16 * (u64)s, wide({}, epoch));
                }
            }
    }

    sync_block();  // every thread has its epoch
    if (thread() / 32 == threads() / 32 - 1) commit(turn, epoch);
    if (failed) return;

    const u64 parts = global(a.box[c.rank]), sums = parts + c.world * pitch;
    for (u32 s = first; s < tiles * PACKETS;) {
        const u32 q = s % PACKETS, i = s / PACKETS * 32 + lane;
        if (there(c.rank, i, q)) {
            const u64 slot = 16 * (u64)(q * columns + i);
            collect_sum<T, N, GROUP>(c, parts + slot, pitch, 0, epoch, [](u32) { return true; }, own);
            if (seldom(publishes(epoch))) fence_release();  // what peers published goes on with the sums, to those it is new to
            boxes.send(sum + slot, wide(own[0], epoch));
            of_mine(out, s).store(q, own[0]);
        }
        s += warps;
        if (s < tiles * PACKETS) of_mine(in, s).load(s / PACKETS * 32 + lane < columns, s % PACKETS, own[0]);
    }
    if (!early) release_stream_together();

    // gather waits for the sums of shares s, s + warps, …, B of them together, and writes them out.
    auto gather = [&]<u32 B>(u32 s) __attribute__((always_inline)) {
        auto owner = [&](u32 b) { return peer(s + b * warps); };
        auto at_column = [&](u32 b) { return column(s + b * warps); };
        Wide p[PACKETS][B];
        u64 slots[B];
#pragma unroll
        for (u32 b = 0; b < B; b++) {
            slots[b] = sums + owner(b) * pitch + 16 * (u64)at_column(b);
#pragma unroll
            for (u32 q = 0; q < PACKETS; q++) p[q][b] = wide({}, there(owner(b), at_column(b), q) ? ~epoch : epoch);
        }
        auto at = [&](u32 q, u32 b) { return slots[b] + 16 * (u64)(q * columns); };
        collect(c, at, owner, epoch, p);
#pragma unroll
        for (u32 b = 0; b < B; b++) {
#pragma unroll
            for (u32 k = 0; k < 3 * PACKETS; k++)
                word_of(x, k) = p[k / 3][b].w[k % 3] | late(p[k / 3][b], epoch);  // which is 0: a copy that is not made in each round
            of_peer(out, s + b * warps).store(at_column(b) < columns, x);
        }
    };
    u32 s = first;
    for (; s + warps < shares; s += 2 * warps) gather.template operator()<2>(s);
    if (s < shares) gather.template operator()<1>(s);
    if (seldom(refreshes(epoch))) {  // the slots of sums that are not used: peers may poll them until they have ended the call before
        const u32 waits = c.rank == 0 ? 0 : c.world - c.rank - 1;  // the share with the first sum of chunk 0, or its first parts
        const bool heard = sync_block_or(first == waits % warps && lane == 0);  // the thread that has waited for it is still here
        if (heard && thread() / 32 == threads() / 32 - 1)
            for (u32 s = lane; s < a.slots; s += 32)
                if (s / columns >= PACKETS || !there(c.rank, s % columns, s / columns)) boxes.send(sum + 16 * (u64)s, wide({}, epoch));
    }
    if (seldom(publishes(epoch))) fence_release();  // behind the packets' loads: what peers published is then visible to the next kernel
}

template <class T>
FL_DEVICE void twoshot_wide_any(const PushArgs& a) {
    switch (a.world) {
    case 4: return twoshot_wide<T, 4>(a);
    case 8: return twoshot_wide<T, 8>(a);
    default: return twoshot_wide<T, 0>(a);
    }
}

}  // namespace fl

#define FL_ENTRY(name, T)                                                                          \
    extern "C" __global__ void __launch_bounds__(512) name(FL_PARAM fl::PushArgs a) {              \
        fl::twoshot_wide_any<fl::T>(a);                                                            \
    }
FL_ENTRY(allreduce_twoshot_wide_f32, F32)
FL_ENTRY(allreduce_twoshot_wide_f16, F16)
FL_ENTRY(allreduce_twoshot_wide_bf16, BF16)
