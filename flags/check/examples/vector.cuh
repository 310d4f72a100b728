// vector.cuh: every rank pushes its input to every peer, each element together with the call's epoch, and needs no flag
// besides. PUSH and PULL say how the two travel.
#pragma once
#include "fenceline.cuh"

namespace fl {

struct PushArgs {
    const u32* in;
    u32* out;
    void* inbox[4];  // of each rank: [half][source][element], 8 bytes each
    u32* epoch;
    u32 count, rank, world;
};

FL_DEVICE void push(const PushArgs& a) {
    const u32 t = thread(), epoch = load_relaxed_gpu(global(a.epoch)) + 1;
    const u64 half = 8 * (u64)a.count * a.world * (epoch & 1);
    for (u32 i = t; i < a.count; i += 32) {
        const u32 v = load4(global(a.in) + 4 * i);
        for (u32 r = 0; r < a.world; r++)
            if (r != a.rank) PUSH(global(a.inbox[r]) + half + 8 * (a.rank * a.count + i), v, epoch);
    }
    for (u32 i = t; i < a.count; i += 32) {
        u32 sum = 0;
        for (u32 r = 0; r < a.world; r++) {
            u32 v = load4(global(a.in) + 4 * i), seen = epoch;
            if (r != a.rank) do PULL(v, seen, global(a.inbox[a.rank]) + half + 8 * (r * a.count + i)); while (seen != epoch);
            sum += v;
        }
        store4(global(a.out) + 4 * i, sum);
    }
    sync_block();  // every thread has its epoch
    if (t == 0) store_relaxed_gpu(global(a.epoch), epoch);
}

}  // namespace fl

extern "C" __global__ void push(FL_PARAM fl::PushArgs a) { fl::push(a); }
