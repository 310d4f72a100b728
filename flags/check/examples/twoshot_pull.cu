// twoshot_pull: each rank adds up one slice of everybody's staged input, posts a second flag, and gathers the slices that
// the others have added up. Two halves of everything and no closing barrier.
#include "fenceline.cuh"

namespace fl {

struct TwoShotArgs {
    const u32* in;
    u32* out;
    u32* stage[4];  // of each rank: [half][element]
    u32* sums[4];   // of each rank: [half][element of its slice]
    u32* pad[4];    // of each rank: a slot of each source for the first flag, then for the second
    u32* epoch;
    u32 slice, rank, world;
};

FL_DEVICE void exchange(const TwoShotArgs& a, u32 slots, u32 epoch) {
    const u32 t = thread();
    sync_block();
    if (t == 0) {
        fence_release();
        for (u32 r = 0; r < a.world; r++)
            if (r != a.rank) store_relaxed_sys(global(a.pad[r]) + 4 * (slots + a.rank), epoch);
    }
    if (t < a.world && t != a.rank)
        while (!reached(poll(global(a.pad[a.rank]) + 4 * (slots + t)), epoch)) {}
    sync_block();
}

FL_DEVICE void twoshot(const TwoShotArgs& a) {
    const u32 t = thread(), epoch = load_relaxed_gpu(global(a.epoch)) + 1, count = a.slice * a.world;
    const u64 half = 4 * count * (epoch & 1), part = 4 * a.slice * (epoch & 1);
    for (u32 i = t; i < count; i += 32) store4(global(a.stage[a.rank]) + half + 4 * i, load4(global(a.in) + 4 * i));
    exchange(a, 0, epoch);
    for (u32 i = t; i < a.slice; i += 32) {
        u32 sum = 0;
        for (u32 r = 0; r < a.world; r++) sum += load4(global(a.stage[r]) + half + 4 * (a.rank * a.slice + i));
        store4(global(a.sums[a.rank]) + part + 4 * i, sum);
    }
    exchange(a, 4, epoch);
    for (u32 r = 0; r < a.world; r++)
        for (u32 i = t; i < a.slice; i += 32)
            store4(global(a.out) + 4 * (r * a.slice + i), load4(global(a.sums[r]) + part + 4 * i));
    if (t == 0) store_relaxed_gpu(global(a.epoch), epoch);
}

}  // namespace fl

extern "C" __global__ void twoshot_pull(FL_PARAM fl::TwoShotArgs a) { fl::twoshot(a); }
