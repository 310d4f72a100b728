// allreduce_oneshot_push_{f32,f16,bf16}
//
// Purpose: all-reduce (sum) of a small buffer where latency is all: every rank writes its data into every peer's memory, in
// packets that carry their own flag, polls what its peers wrote into its own, and adds it up. Needs peer writes only: nothing
// is read over a link. One launch per rank and call.
//
// Algorithm. The buffer is cut into slots of 8 bytes. Each thread writes the packets of its slots into the boxes of all peers,
// beginning with the next rank, so that the links share the work; then, slot by slot, polls the peers' packets in this rank's
// box, adds them to its own and writes the output.
//
// Synchronisation: none but the packets themselves, st.relaxed.sys and ld.relaxed.sys of 64-bit words that hold data and
// epoch. .sys: the peer is another device. packets.cuh says why that is enough, and why a half may be written again two calls
// later: each thread that has a slot waits in it for every peer, and a call has one slot at least.
//   Each thread sends all it has before it polls anything, and polls what depends on nothing but what peers' threads send
//     before they poll: so there is no cycle, whatever the grids' shapes.
//   The barrier keeps commit behind every thread's begin; no peer's packet depends on it.
//   Dependent launch keeps all that: nothing is read, written or sent before wait_for_stream.
//
//   A call that fails may have written a part of out. The rank is poisoned then and sends nothing more: it has not heard of its
//     peers' progress, and one of them may still wait for what an earlier, good call sent.
//
// Requirements: all ranks launch the same count, at least 1; count fits the slots; all blocks of all ranks are resident
// together; out is in or does not overlap it; boxes hold 2 * world * slots packets, zeroed before the first call and
// 16-byte aligned; control points to a PacketControl; blocks <= MAX_BLOCKS; threads a multiple of 32, at least 32.
#include "packets.cuh"

namespace fl {

// N: the world size, or 0 for one known only at run time. With one peer there are registers for two pairs under way at once: U.
template <class T, u32 N>
FL_DEVICE void oneshot_push(const PushArgs& a) {
    constexpr u32 U = N == 2 ? 2 : 1;
    const Comm c = {global(a.control), global(a.status), a.timeout_ns, a.rank, N != 0 ? N : a.world};
    const Comm turn = counting(c, __builtin_offsetof(PacketControl, oneshot));
    const Pairs<T> in(global(a.in), a.count), out(global(a.out), a.count);
    const u32 first = block() * threads() + thread(), stride = blocks() * threads(), pairs = in.pairs();
    const Boxes<N> boxes(c, a.box);
    const u64 pitch = 16 * a.slots, half = c.world * pitch;

    // load has the pairs i, i + stride, … on their way together, where they are whole.
    auto load = [&](Pair (&x)[U], u32 i) {
#pragma unroll
        for (u32 u = 0; u < U; u++) x[u] = load8_if(in.whole(i + u * stride), in.at(i + u * stride));
    };
    // load_rest loads those that are not, and are 0 so far. Seldom is there one, so one branch asks for all. They come in registers of
    // their own: in those of the others these loads would wait for the others to come.
    auto load_rest = [&](Pair (&x)[U], u32 i) {
        Pair y[U] = {};
        bool rest = false;
#pragma unroll
        for (u32 u = 0; u < U; u++) rest |= in.broken(i + u * stride);
        if (rest) {
#pragma unroll
            for (u32 u = 0; u < U; u++)
                if (in.broken(i + u * stride)) y[u] = in.load(i + u * stride);
        }
#pragma unroll
        for (u32 u = 0; u < U; u++) x[u] = {{x[u].w[0] | y[u].w[0], x[u].w[1] | y[u].w[1]}};
    };
    // store stores pairs as these load them.
    auto store = [&](const Pair (&x)[U], u32 i) {
        bool rest = false;
#pragma unroll
        for (u32 u = 0; u < U; u++) {
            store8_if(out.whole(i + u * stride), out.at(i + u * stride), x[u]);
            rest |= out.broken(i + u * stride);
        }
        if (!rest) return;
#pragma unroll
        for (u32 u = 0; u < U; u++)
            if (out.broken(i + u * stride)) out.store(i + u * stride, x[u]);
    };

    const bool early = pairs < EARLY_BYTES / 8;
    needed_before_wait(in.at(first) | (turn.control + 4 * block()) | in.full);
    wait_for_stream();
    if (early) release_stream();
    // The first pairs, the epoch and the poison mark are on their way together.
    Pair x[U];
    load(x, first);
    const u32 epoch = begin(turn);
    const bool failed = poisoned(c);
    load_rest(x, first);
    const u64 now = epoch & 1 ? half : 0;
    const u64 mine = now + c.rank * pitch;

    if (!failed) {
        if (publishes(epoch)) fence_release();  // what the kernel before wrote, ahead of the packets: see packets.cuh
        Pair more[U];
#pragma unroll
        for (u32 u = 0; u < U; u++) more[u] = x[u];
        u32 i = first;
        while (i < pairs) {
#pragma unroll
            for (u32 u = 0; u < U; u++)
                if (i + u * stride < pairs) boxes.send(mine + 16 * (u64)(i + u * stride), packet(more[u], epoch));
            i += U * stride;
            if (i >= pairs) break;
            load(more, i);
            load_rest(more, i);
        }
        if (refreshes(epoch))
            for (u64 i = pairs + first; i < a.slots; i += stride) boxes.send(mine + 16 * i, packet({}, epoch));
    }

    sync_block();  // every thread has its epoch
    if (thread() / 32 == threads() / 32 - 1) commit(turn, epoch);
    if (failed) return;

    u32 i = first, end;
    while (i < pairs) {
        end = 1;
#pragma unroll
        for (u32 u = 1; u < U; u++) end += i + u * stride < pairs;
        collect_sum<T, N>(c, boxes[0] + now + 16 * (u64)i, pitch, 16 * (u64)stride, end, epoch, x);
        store(x, i);
        i += U * stride;
        if (i >= pairs) break;
        load(x, i);
        load_rest(x, i);
    }
    if (publishes(epoch)) fence_release();  // behind the packets' loads: what peers published is then visible to the next kernel
    if (!early) release_stream();
}

template <class T>
FL_DEVICE void oneshot_push_any(const PushArgs& a) {
    switch (a.world) {
    case 2: return oneshot_push<T, 2>(a);
    case 4: return oneshot_push<T, 4>(a);
    case 8: return oneshot_push<T, 8>(a);
    default: return oneshot_push<T, 0>(a);
    }
}

}  // namespace fl

#define FL_ENTRY(name, T)                                                                          \
    extern "C" __global__ void __launch_bounds__(512, 2) name(FL_PARAM fl::PushArgs a) {           \
        fl::oneshot_push_any<fl::T>(a);                                                            \
    }
FL_ENTRY(allreduce_oneshot_push_f32, F32)
FL_ENTRY(allreduce_oneshot_push_f16, F16)
FL_ENTRY(allreduce_oneshot_push_bf16, BF16)
