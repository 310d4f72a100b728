// probe_{fill,copy,post,expect,add,ping,chase}
//
// Purpose: find out what one device's access to another's memory really does, and how fast it is. Package
// topo/probe launches them in pairs, one on each side.
//
// Algorithm. fill writes words that depend on their place and on a seed; the host checks them. copy moves memory
// with eight 16-byte loads in flight per thread: it is the read probe, and the bandwidth of loads. post writes
// one region after another and posts a flag behind each; expect waits for each flag and copies its region away,
// for the host to check. add makes both sides add to one word, and sums what each addition returned. ping plays
// flags back and forth. chase follows a chain of dependent loads.
//
// Synchronisation:
//   post → expect, between block b of both: fence.acq_rel.sys and st.relaxed.sys by one thread after the block's
//     barrier; ld.acquire.sys by one thread of the other side, then a barrier. Orders the region's stores before
//     the copy's loads. .sys: the other side is another device. Each thread copies what another thread wrote.
//   ping: the same pair of instructions in both directions, with no data; the fence is there because a flag of an
//     all-reduce pays for it too.
//   add: relaxed .sys additions order nothing; both sides start when the host says go. The host reads words and sums
//     after both streams have ended, as it does for every other result.
//   Every wait ends at the deadline, or when the host sets the abort word, and leaves its code in result.
//
// Requirements: src, dst 16-byte aligned; expect and its post (add and add, ping and ping) run at the same time with
// the same shape, rounds and count; flags zeroed before; status is mapped host memory; result holds 16 bytes per
// block for expect and ping, 16 for chase, 8 per thread for add.
#include "fenceline.cuh"

namespace fl {

// Mirrored by topo/probe/args.go. Each kernel uses what it needs.
struct ProbeArgs {
    const void* src;
    void* dst;
    void* flag;        // where this side waits (expect, ping) or posts (post); add: the word
    void* peer_flag;   // ping: where the other side waits
    void* status;      // host memory: abort, go
    void* result;      // this side's own memory
    u64 count;         // 16-byte packs, of one round where there are rounds; chase: unused
    u64 seed;
    u64 timeout_ns;
    u32 rounds;
    u32 first;         // ping: this side serves; expect: unused
};

constexpr u32 FLAG_STRIDE = 64;  // bytes between the flags of two blocks
constexpr u32 IN_FLIGHT = 8;     // loads per thread
constexpr u32 WARM = 4;          // one round in so many only warms up

FL_DEVICE Comm probe_comm(const ProbeArgs& a) { return {0, global(a.status), a.timeout_ns, 0, 0}; }

FL_DEVICE void store8(u64 a, u64 v) { asm volatile("st.global.u64 [%0], %1;" :: "l"(a), "l"(v) : "memory"); }

// The word of index n: never zero, never all-ones. Mirrored by topo/probe/pattern.go.
FL_DEVICE u64 pattern(u64 seed, u64 n) {
    u64 x = seed + (n + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
    return (x | 1) & ~(1ull << 63);
}

// Pack v of the pattern, as two words.
FL_DEVICE Packed pattern_pack(u64 seed, u64 v) {
    const u64 lo = pattern(seed, 2 * v), hi = pattern(seed, 2 * v + 1);
    return {{(u32)lo, (u32)(lo >> 32), (u32)hi, (u32)(hi >> 32)}};
}

FL_DEVICE void fill(const ProbeArgs& a) {
    const u64 dst = global(a.dst), stride = (u64)blocks() * threads();
    for (u64 v = (u64)block() * threads() + thread(); v < a.count; v += stride)
        store16(dst + 16 * v, pattern_pack(a.seed, v));
}

// A block takes whole tiles, so that the loads of one thread are independent and its warp's are contiguous.
FL_DEVICE void copy(const ProbeArgs& a) {
    const u64 src = global(a.src), dst = global(a.dst), tile = (u64)threads() * IN_FLIGHT;
    for (u64 base = block() * tile; base < a.count; base += blocks() * tile) {
        const u64 v = base + thread();
        Packed x[IN_FLIGHT];
        if (base + tile <= a.count) {
#pragma unroll
            for (u32 i = 0; i < IN_FLIGHT; i++) x[i] = load16(src + 16 * (v + i * threads()));
#pragma unroll
            for (u32 i = 0; i < IN_FLIGHT; i++) store16(dst + 16 * (v + i * threads()), x[i]);
        } else {
            for (u64 w = v; w < a.count; w += threads()) store16(dst + 16 * w, load16(src + 16 * w));
        }
    }
}

FL_DEVICE void post(const ProbeArgs& a) {
    const u64 dst = global(a.dst), flag = global(a.flag) + FLAG_STRIDE * block();
    for (u32 r = 0; r < a.rounds; r++) {
        for (u64 v = (u64)block() * threads() + thread(); v < a.count; v += (u64)blocks() * threads())
            store16(dst + 16 * (r * a.count + v), pattern_pack(a.seed, r * a.count + v));
        sync_block();
        if (thread() != 0) continue;
        fence_release();  // pairs with the poll in expect
        store_relaxed_sys(flag, r + 1);
    }
}

FL_DEVICE void expect(const ProbeArgs& a) {
    const Comm c = probe_comm(a);
    const u64 src = global(a.src), dst = global(a.dst), flag = global(a.flag) + FLAG_STRIDE * block();
    const u32 other = (thread() + 33) % threads();
    u32 seen = 0, code = CODE_OK, r = 0;
    for (; r < a.rounds; r++) {
        bool ok = true;
        if (thread() == 0) ok = wait_slot(c, flag, r + 1, &seen, &code);
        if (sync_block_or(!ok)) break;
        for (u64 v = (u64)block() * threads() + other; v < a.count; v += (u64)blocks() * threads()) {
            const u64 o = 16 * (r * a.count + v);
            store16(dst + o, load16(src + o));
        }
    }
    if (thread() != 0) return;
    const u64 result = global(a.result) + 16 * block();
    store8(result, code);
    store8(result + 8, r);
}

FL_DEVICE u32 add_relaxed_sys(u64 a, u32 v) {
    u32 old;
    asm volatile("atom.relaxed.sys.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(a), "r"(v) : "memory");
    return old;
}

FL_DEVICE void add(const ProbeArgs& a) {
    const Comm c = probe_comm(a);
    const u64 word = global(a.flag);
    u32 seen, code;
    bool go = true;
    if (thread() == 0) go = wait_slot(c, c.status + 4, 1, &seen, &code);
    // A side that is not let go adds nothing, and the host misses its additions.
    if (sync_block_or(!go)) return;
    u64 sum = 0;
    for (u32 r = 0; r < a.rounds; r++) sum += add_relaxed_sys(word, 1);
    store8(global(a.result) + 8 * ((u64)block() * threads() + thread()), sum);
}

// One thread. The time is that of the rounds after the first quarter.
FL_DEVICE void ping(const ProbeArgs& a) {
    const Comm c = probe_comm(a);
    const u64 mine = global(a.flag), theirs = global(a.peer_flag), result = global(a.result);
    u32 seen, code = CODE_OK;
    u64 start = 0;
    for (u32 r = 1; r <= a.rounds; r++) {
        if (r == a.rounds / WARM + 1) start = now_ns();
        if (a.first) {
            fence_release();
            store_relaxed_sys(theirs, r);
        }
        if (!wait_slot(c, mine, r, &seen, &code)) break;
        if (!a.first) {
            fence_release();
            store_relaxed_sys(theirs, r);
        }
    }
    store8(result, code);
    store8(result + 8, now_ns() - start);
}

// One thread. Each word holds the byte offset of the next. Relaxed .sys loads: they do not stop at the first cache.
FL_DEVICE void chase(const ProbeArgs& a) {
    const u64 src = global(a.src), result = global(a.result);
    u32 at = 0;
    u64 start = 0;
    for (u32 r = 0; r < a.rounds; r++) {
        if (r == a.rounds / WARM) start = now_ns();
        at = load_relaxed_sys(src + at);
    }
    store8(result, at);  // needs the last load
    store8(result + 8, now_ns() - start);
}

}  // namespace fl

#define FL_ENTRY(name) \
    extern "C" __global__ void __launch_bounds__(512) probe_##name(FL_PARAM fl::ProbeArgs a) { fl::name(a); }
FL_ENTRY(fill)
FL_ENTRY(copy)
FL_ENTRY(post)
FL_ENTRY(expect)
FL_ENTRY(add)
FL_ENTRY(ping)
FL_ENTRY(chase)
