// fenceline.cuh: the device side of Fenceline's flags, and the small pieces that peer kernels are made of.
// Compiles with clang (no CUDA SDK) and nvcc alike: special registers and ordered accesses are inline PTX, so the scope and
// strength of each is what is written here. Layouts are mirrored in package flags, where a test reads this file. Namespace fl.
// A kernel of your own needs Pad, Control and Status memory as package flags lays out, and does, in this order: wait_for_stream;
// begin; ask poisoned: if so, it writes no shared data, posts and awaits nothing; one or two times, with SLOT_START, then
// SLOT_END: write data, barrier, arrive from one thread, wait from one warp, barrier, read peers' data. The thread that
// arrives first calls refresh right behind, or old flags come true after 2^31 calls. One whole warp calls commit, once, behind
// the first barrier, poisoned or not: all epochs stay equal. A wait that fails has reported it and poisoned the rank: tell the
// whole block (sync_block_or in the place of the barrier), and return without a result. oneshot_pull.cu does all of this.
#pragma once

#if defined(__clang__) && !defined(__global__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#endif
#if defined(__CUDACC__) && !defined(__clang__)
#define FL_PARAM const __grid_constant__  // parameters indexed at run time stay in constant memory
#else
#define FL_PARAM const
#endif
#define FL_DEVICE __device__ __forceinline__

namespace fl {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// ---- Layouts. Mirrored by flags/layout.go. ----

constexpr u32 MAX_RANKS = 16;    // flags.MaxRanks
constexpr u32 MAX_BLOCKS = 64;   // flags.MaxBlocks

// The signal pad of one rank, in memory that every peer can write. Each slot has one writer: rank s
// writes [..][s]. The two arrays serve two synchronisation points, because a fast peer may post the
// second while a slow one still polls the first.
struct Pad {
    u32 start[MAX_BLOCKS][MAX_RANKS];  // "the data of this call may be read"
    u32 end[MAX_BLOCKS][MAX_RANKS];    // "I have read yours"
};

// State of one rank that outlives a launch, in its own memory. Each block owns epoch[b] during a call;
// between calls all entries are equal, whatever the grids were.
struct Control {
    u32 epoch[MAX_BLOCKS];  // number of calls so far, modulo 2^32
    u32 poisoned;           // nonzero once a wait has failed: later calls return at once
};

// Why a wait failed. Written by the first warp of the rank whose wait fails, read by the host after the
// stream has ended.
enum Code : u32 { CODE_OK = 0, CODE_TIMEOUT = 1, CODE_ABORTED = 2 };
enum SlotKind : u32 { SLOT_START = 0, SLOT_END = 1, SLOT_PACKET = 2 };  // the last: packets.cuh

struct Record {
    u32 code;     // Code; not CODE_OK: the record is filled in
    u32 slot;     // SlotKind
    u32 block;
    u32 missing;  // bit r: rank r had not arrived
    u32 wanted;   // epoch waited for
    u32 reserved[3];
    u32 seen[MAX_RANKS];  // last epoch seen of each rank
};

// Pinned host memory, one per rank.
struct Status {
    u32 abort;  // host to device: give up waiting
    u32 reserved[3];
    Record record;
};

// ---- Special registers ----

FL_DEVICE u32 thread() { u32 v; asm volatile("mov.u32 %0, %%tid.x;" : "=r"(v)); return v; }
FL_DEVICE u32 threads() { u32 v; asm volatile("mov.u32 %0, %%ntid.x;" : "=r"(v)); return v; }
FL_DEVICE u32 block() { u32 v; asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(v)); return v; }
FL_DEVICE u32 blocks() { u32 v; asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(v)); return v; }
// opaque: v, of which a compiler knows nothing, so that what is computed from it again is not kept in registers until then.
FL_DEVICE u32 opaque(u32 v) { asm volatile("mov.u32 %0, %0;" : "+r"(v)); return v; }
FL_DEVICE u64 opaque(u64 v) { asm volatile("mov.u64 %0, %0;" : "+l"(v)); return v; }
FL_DEVICE u64 now_ns() { u64 v; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v)); return v; }

// ---- Addresses ----

// A pointer that came in as a kernel argument, as an address for .global instructions.
FL_DEVICE u64 global(const void* p) {
    u64 a;
    asm("cvta.to.global.u64 %0, %1;" : "=l"(a) : "l"(p));
    return a;
}

// ---- Weak accesses: ordered by the flags around them, never by themselves ----
// volatile and "memory" keep the compiler from moving them across those flags. Not .nc: peers write
// these ranges while the kernel runs.

struct Packed { u32 w[4]; };  // 16 bytes

FL_DEVICE Packed load16(u64 a) {
    Packed v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(a) : "memory");
    return v;
}
// load16 if p, otherwise zero: no branch, so that loads around it are in flight together.
FL_DEVICE Packed load16_if(bool p, u64 a) {
    Packed v = {};
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
                 : "+r"(v.w[0]), "+r"(v.w[1]), "+r"(v.w[2]), "+r"(v.w[3]) : "l"(a), "r"((u32)p) : "memory");
    return v;
}
FL_DEVICE void store16(u64 a, const Packed& v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(a), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]) : "memory");
}
// store16 if p: no branch.
FL_DEVICE void store16_if(bool p, u64 a, const Packed& v) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t@p st.global.v4.u32 [%0], {%1, %2, %3, %4};\n\t}"
                 :: "l"(a), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]), "r"((u32)p) : "memory");
}
FL_DEVICE u32 load4(u64 a) {
    u32 v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(a) : "memory");
    return v;
}
FL_DEVICE void store4(u64 a, u32 v) { asm volatile("st.global.u32 [%0], %1;" :: "l"(a), "r"(v) : "memory"); }
FL_DEVICE u16 load2(u64 a) {
    u16 v;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(a) : "memory");
    return v;
}
// load4_if and load2_if: as load16_if.
FL_DEVICE u32 load4_if(bool p, u64 a) {
    u32 v = 0;
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t@p ld.global.u32 %0, [%1];\n\t}"
                 : "+r"(v) : "l"(a), "r"((u32)p) : "memory");
    return v;
}
FL_DEVICE u16 load2_if(bool p, u64 a) {
    u16 v = 0;
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t@p ld.global.u16 %0, [%1];\n\t}"
                 : "+h"(v) : "l"(a), "r"((u32)p) : "memory");
    return v;
}
// store4_if: as store16_if.
FL_DEVICE void store4_if(bool p, u64 a, u32 v) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t@p st.global.u32 [%0], %1;\n\t}" :: "l"(a), "r"(v), "r"((u32)p) : "memory");
}
FL_DEVICE void store2(u64 a, u16 v) { asm volatile("st.global.u16 [%0], %1;" :: "l"(a), "h"(v) : "memory"); }

// ---- Strong accesses ----

// A flag is posted by fence_release, then store_relaxed_sys: the pair is a release pattern, and publishes
// what this thread, and every thread of its block ahead of the barrier before it, wrote. Pairs with poll on the
// same word. One fence serves any number of flags; st.release would pay for one with each, and the hardware's
// system-scope fences are the dearest part of a call. .sys because the reader is on another device.
FL_DEVICE void fence_release() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
// poll reads a flag; what its poster published is then visible to this thread, and after a barrier to its block.
FL_DEVICE u32 poll(u64 slot) {
    u32 v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(slot) : "memory");
    return v;
}
// Words that by themselves order nothing: flags behind their fence, the abort word, the poison mark, the epoch.
// Relaxed, so that concurrent access is no race; .sys for other devices and the host, .gpu for a rank's own.
FL_DEVICE u32 load_relaxed_sys(u64 a) {
    u32 v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(a) : "memory");
    return v;
}
FL_DEVICE void store_relaxed_sys(u64 a, u32 v) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" :: "l"(a), "r"(v) : "memory");
}
FL_DEVICE u32 load_relaxed_gpu(u64 a) {
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(a) : "memory");
    return v;
}
FL_DEVICE void store_relaxed_gpu(u64 a, u32 v) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(a), "r"(v) : "memory");
}

// Sets a word of this device and returns what it was. Orders nothing.
FL_DEVICE u32 exchange_relaxed_gpu(u64 a, u32 v) {
    u32 old;
    asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(a), "r"(v) : "memory");
    return old;
}

// ---- Block-wide and warp-wide ----

FL_DEVICE void sync_block() { asm volatile("bar.sync 0;" ::: "memory"); }
// sync_block that also tells every thread whether any passed true.
FL_DEVICE bool sync_block_or(bool p) {
    u32 r;
    asm volatile("{\n\t.reg .pred a, b;\n\tsetp.ne.u32 a, %1, 0;\n\tbar.red.or.pred b, 0, a;\n\tselp.u32 %0, 1, 0, b;\n\t}"
                 : "=r"(r) : "r"((u32)p) : "memory");
    return r != 0;
}
FL_DEVICE void sync_warp() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
FL_DEVICE u32 warp_ballot(bool p) {
    u32 r;
    asm volatile("{\n\t.reg .pred a;\n\tsetp.ne.u32 a, %1, 0;\n\tvote.sync.ballot.b32 %0, a, 0xffffffff;\n\t}"
                 : "=r"(r) : "r"((u32)p) : "memory");
    return r;
}

// Programmatic dependent launch. wait_for_stream returns once the kernel ahead in the stream has ended and
// its writes are visible; release_stream lets the next kernel start its own preamble. Without sm_90 the
// stream does both.
FL_DEVICE void wait_for_stream() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// An assembler moves arithmetic below the wait, where it costs time, unless something above needs the result.
FL_DEVICE void needed_before_wait(u64 address) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.u64 p, %0, 0;\n\t@p trap;\n\t}" :: "l"(address) : "memory");
#endif
}
FL_DEVICE void release_stream() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// release_stream_together: once the whole block is here.
FL_DEVICE void release_stream_together() {
#if __CUDA_ARCH__ >= 900
    sync_block();
    release_stream();
#endif
}

// ---- Flags with epochs ----

// What a kernel needs to synchronise with its peers.
struct Comm {
    u64 control;     // Control of this rank
    u64 status;      // Status of this rank
    u64 timeout_ns;  // longest wait
    u32 rank, world;
};

// reached: epoch `seen` is at or after `wanted`, across the wrap.
FL_DEVICE bool reached(u32 seen, u32 wanted) { return (int)(seen - wanted) >= 0; }

// begin returns this call's epoch. Every thread gets the same, because the block's entry changes only in
// commit, which a barrier separates from this.
FL_DEVICE u32 begin(const Comm& c) { return load_relaxed_gpu(c.control + 4 * block()) + 1; }

// poisoned: an earlier call on this rank failed, so its peers' flags can no longer be trusted.
FL_DEVICE bool poisoned(const Comm& c) {
    return load_relaxed_gpu(c.control + __builtin_offsetof(Control, poisoned)) != 0;
}

// commit makes `epoch` the last one used. Call from one whole warp, after a barrier that follows begin.
// Block b also writes the entries of the blocks that this grid lacks (b + blocks, …), so that the next
// call may use any grid. Relaxed: the next reader is the next kernel in the stream.
FL_DEVICE void commit(const Comm& c, u32 epoch) {
    for (u32 j = block() + blocks() * (thread() & 31); j < MAX_BLOCKS; j += 32 * blocks())
        store_relaxed_gpu(c.control + 4 * j, epoch);
}

// slot_offset is the place of (block, source rank) in one slot array of a Pad.
FL_DEVICE u32 slot_offset(u32 kind, u32 blk, u32 src) {
    return 4 * ((kind * MAX_BLOCKS + blk) * MAX_RANKS + src);
}

// A slot that a small grid leaves alone keeps an old epoch, and after 2^31 calls an old epoch looks like a
// future one. So once in REFRESH calls every slot is written, used or not.
constexpr u32 REFRESH = 1u << 20;

// wait_slot polls until rank `peer` has posted `epoch`. False when the time is up or the host says stop.
// The clock and the host's word are looked at once in 1024 polls: a flag that is about to come costs nothing extra.
FL_DEVICE bool wait_slot(const Comm& c, u64 slot, u32 epoch, u32* seen, u32* code) {
    u64 deadline = 0;
    for (u32 n = 1;; n++) {
        *seen = poll(slot);
        if (reached(*seen, epoch)) return true;
        if (n % 1024 != 0) continue;
        u64 t = now_ns();
        if (deadline == 0) deadline = t + c.timeout_ns;
        *code = load_relaxed_sys(c.status) != 0 ? CODE_ABORTED : t > deadline ? CODE_TIMEOUT : CODE_OK;
        if (*code != CODE_OK) return false;
    }
}

// arrive posts `epoch` for this block to every peer. Call from one thread of the block, after a barrier. pad:
// the table of all ranks' pads, in kernel parameters. N: the world size, or 0 for c.world.
template <u32 N>
FL_DEVICE void arrive(const Comm& c, Pad* const* pad, u32 kind, u32 epoch) {
    // Release: everything this block wrote (or, for SLOT_END, read) ahead of the barrier comes before the
    // flags. Pairs with the poll in the peer's wait.
    fence_release();
    const u32 slot = slot_offset(kind, block(), c.rank);
    for (u32 r = 0; r < (N != 0 ? N : c.world); r++)
        if (r != c.rank) store_relaxed_sys(global(pad[r]) + slot, epoch);
}

// report fills in the rank's record, unless an earlier failure has: the poison mark elects one warp.
FL_DEVICE void report(const Comm& c, u32 kind, u32 epoch, u32 missing, u32 seen, u32 code) {
    const u32 lane = thread() & 31;
    const bool leader = missing == ((missing >> lane) << lane) && (missing >> lane & 1);
    bool first = false;
    if (leader) first = exchange_relaxed_gpu(c.control + __builtin_offsetof(Control, poisoned), 1) == 0;
    if (warp_ballot(first) == 0) return;
    const u64 rec = c.status + __builtin_offsetof(Status, record);
    if (lane < MAX_RANKS) store_relaxed_sys(rec + __builtin_offsetof(Record, seen) + 4 * lane, seen);
    sync_warp();
    if (!leader) return;
    store_relaxed_sys(rec + __builtin_offsetof(Record, slot), kind);
    store_relaxed_sys(rec + __builtin_offsetof(Record, block), block());
    store_relaxed_sys(rec + __builtin_offsetof(Record, missing), missing);
    store_relaxed_sys(rec + __builtin_offsetof(Record, wanted), epoch);
    fence_release();  // the host reads code first, and the rest once it is set
    store_relaxed_sys(rec + __builtin_offsetof(Record, code), code);
}

// wait returns true once every peer's same block has posted `epoch`; what they published is then visible to
// this warp, and after a barrier to the block. Call from a whole warp; lane r polls rank r's slot in this
// rank's pad. False: it has been reported, and the call must end without a result.
FL_DEVICE bool wait(const Comm& c, u64 my_pad, u32 kind, u32 epoch) {
    const u32 lane = thread() & 31;
    bool ok = true;
    u32 seen = epoch, code = CODE_OK;
    if (lane < c.world && lane != c.rank)
        ok = wait_slot(c, my_pad + slot_offset(kind, block(), lane), epoch, &seen, &code);
    const u32 missing = warp_ballot(!ok);
    if (missing != 0) {
        report(c, kind, epoch, missing, seen, code);
        return false;
    }
    sync_warp();  // each lane has acquired one peer's data; this gives all lanes all of it
    return true;
}

// refresh: see REFRESH. Call from the thread that called arrive, whose fence serves these flags too; `first_end` is
// the first block index whose end slot this call does not use itself.
FL_DEVICE void refresh(const Comm& c, Pad* const* pad, u32 epoch, u32 first_end) {
    if (epoch % REFRESH != 0) return;
    for (u32 r = 0; r < c.world; r++) {
        if (r == c.rank) continue;
        for (u32 j = block() + blocks(); j < MAX_BLOCKS; j += blocks())
            store_relaxed_sys(global(pad[r]) + slot_offset(SLOT_START, j, c.rank), epoch);
        for (u32 j = first_end; j < MAX_BLOCKS; j += blocks())
            store_relaxed_sys(global(pad[r]) + slot_offset(SLOT_END, j, c.rank), epoch);
    }
}

}  // namespace fl
