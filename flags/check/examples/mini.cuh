// mini.cuh: a small all-reduce of one warp, for examples: every rank stages its input, posts a start flag to every peer,
// waits for theirs, adds up what all have staged, and posts an end flag so that the staging may be written again. What
// is defined below is right; the fault examples define one thing otherwise.
#pragma once
#include "fenceline.cuh"

#ifndef POST_START  // orders the staging stores before the flag, towards another device
#define POST_START(a, v) asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(a), "r"(v) : "memory")
#endif
#ifndef POST_END    // orders the loads of this call before the peer's next stores
#define POST_END(a, v) asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(a), "r"(v) : "memory")
#endif
#ifndef POLL_END
#define POLL_END(v, a) asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(a) : "memory")
#endif
#ifndef END_SLOT    // a slot of its own
#define END_SLOT 4
#endif
#ifndef EPOCH       // kept on the device, so that a graph may replay the launch
#define EPOCH(a) (fl::load_relaxed_gpu(fl::global((a).epoch)) + 1)
#endif

namespace fl {

struct MiniArgs {
    const u32* in;
    u32* out;
    u32* stage[4];  // of each rank
    u32* pad[4];    // of each rank: a start slot and an end slot for each source
    u32* epoch;
    u32 count, rank, world, host_epoch;
};

FL_DEVICE void mini(const MiniArgs& a) {
    const u32 t = thread(), epoch = EPOCH(a);
    const u64 mine = global(a.pad[a.rank]);
    for (u32 i = t; i < a.count; i += 32) store4(global(a.stage[a.rank]) + 4 * i, load4(global(a.in) + 4 * i));
    sync_block();
    if (t == 0)
        for (u32 r = 0; r < a.world; r++)
            if (r != a.rank) POST_START(global(a.pad[r]) + 4 * a.rank, epoch);
    if (t < a.world && t != a.rank)
        while (!reached(poll(mine + 4 * t), epoch)) {}
    sync_block();
    for (u32 i = t; i < a.count; i += 32) {
        u32 sum = 0;
        for (u32 r = 0; r < a.world; r++) sum += load4(global(a.stage[r]) + 4 * i);
        store4(global(a.out) + 4 * i, sum);
    }
    sync_block();
    if (t == 0)
        for (u32 r = 0; r < a.world; r++)
            if (r != a.rank) POST_END(global(a.pad[r]) + 4 * (END_SLOT + a.rank), epoch);
    if (t < a.world && t != a.rank)
        for (u32 seen = epoch - 1; !reached(seen, epoch);) POLL_END(seen, mine + 4 * (END_SLOT + t));
    if (t == 0) store_relaxed_gpu(global(a.epoch), epoch);
}

}  // namespace fl

extern "C" __global__ void mini(FL_PARAM fl::MiniArgs a) { fl::mini(a); }
