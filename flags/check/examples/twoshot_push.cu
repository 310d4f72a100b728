// twoshot_push: each rank pushes every slice of its input to the rank that adds it up, and that one pushes the sums to
// all. Data and flag share a 64-bit word; two halves of both inboxes, and no barrier.
#include "fenceline.cuh"

namespace fl {

struct TwoPushArgs {
    const u32* in;
    u32* out;
    void* parts[4];  // of each rank: [half][source][element of its slice], 8 bytes each
    void* sums[4];   // of each rank: [half][source][element of the source's slice], 8 bytes each
    u32* epoch;
    u32 slice, rank, world;
};

FL_DEVICE void send(u64 a, u32 v, u32 epoch) {
    asm volatile("{\n\t.reg .b64 p;\n\tmov.b64 p, {%1, %2};\n\tst.relaxed.sys.global.b64 [%0], p;\n\t}"
                 :: "l"(a), "r"(v), "r"(epoch) : "memory");
}
FL_DEVICE u32 receive(u64 a, u32 epoch) {
    u32 v, seen;
    do asm volatile("{\n\t.reg .b64 p;\n\tld.relaxed.sys.global.b64 p, [%2];\n\tmov.b64 {%0, %1}, p;\n\t}"
                    : "=r"(v), "=r"(seen) : "l"(a) : "memory");
    while (seen != epoch);
    return v;
}

FL_DEVICE void twoshot(const TwoPushArgs& a) {
    const u32 t = thread(), epoch = load_relaxed_gpu(global(a.epoch)) + 1;
    const u64 half = 8 * (u64)a.slice * a.world * (epoch & 1);
    for (u32 r = 0; r < a.world; r++)
        for (u32 i = t; i < a.slice; i += 32)
            send(global(a.parts[r]) + half + 8 * (a.rank * a.slice + i), load4(global(a.in) + 4 * (r * a.slice + i)), epoch);
    for (u32 i = t; i < a.slice; i += 32) {
        u32 sum = 0;
        for (u32 r = 0; r < a.world; r++) sum += receive(global(a.parts[a.rank]) + half + 8 * (r * a.slice + i), epoch);
        for (u32 r = 0; r < a.world; r++) send(global(a.sums[r]) + half + 8 * (a.rank * a.slice + i), sum, epoch);
    }
    for (u32 r = 0; r < a.world; r++)
        for (u32 i = t; i < a.slice; i += 32)
            store4(global(a.out) + 4 * (r * a.slice + i), receive(global(a.sums[a.rank]) + half + 8 * (r * a.slice + i), epoch));
    sync_block();  // every thread has its epoch
    if (t == 0) store_relaxed_gpu(global(a.epoch), epoch);
}

}  // namespace fl

extern "C" __global__ void twoshot_push(FL_PARAM fl::TwoPushArgs a) { fl::twoshot(a); }
