// packets.cuh: data that carries its own flag.
//
// A packet is 16 bytes: two 64-bit words, each 32 bits of data below the epoch of its call. Each word is one single-copy
// atomic access, so who sees the epoch has the data that was written with it; nothing is expected of the two words together, and
// both epochs are looked at. Any data may be sent, nothing is cleared, and no fence, barrier or acquire stands between writing
// and reading: a packet orders nothing but itself.
//
// A box is zeroed before the first call. A slot has one writer, which writes it again in a later call, and that no reader still waits for
// what it held needs no ordering either: what lets the writer come so far are packets that are sent behind that reader's poll.
//   With one-shot a box has two halves, which calls use in turn, and a slot is written again two calls later. Its writer began that
//     call behind the end of the call between, in which it had of each peer a packet of that call. The peer's kernel sent that
//     behind its own kernel before, in which every thread had left its poll with the old packet.
//   With two-shot a slot is written again in the next call. Of a part: its sender ended the call in which it sent the old one, so it had
//     the owner's sum of that packet, which the owner sends when it has all parts. Of a sum: its owner has a part of this call
//     of the rank it goes to, which that rank sent behind the end of its call before, and so behind all its polls.
// Were a poll to meet the new packet instead, it would not end, nor its kernel, nor anything be sent that the new packet waits
// for: values that would depend on themselves, which the memory model rules out.
//
// An epoch comes again after 2^32 calls. Once in REFRESH calls of each parity every slot is written, used or not, so that no
// packet is as old as that. Nobody reads what is written there, so nothing keeps a later poll from meeting the older packet
// still: the call after it has fences, ahead of all that it sends and behind all that it polls.
#pragma once
#include "reduce.cuh"

namespace fl {

// A rank's Control, and behind it the epochs of the kernels that send packets: each counts its calls apart, and apart
// from those that post flags. A packet releases nothing, so a call that sent packets says nothing of who still reads a
// staging half; and slots of one kind are refreshed only in calls of that kind. All share the poison mark.
struct PacketControl {
    Control control;
    u32 reserved[63];
    u32 oneshot[MAX_BLOCKS];
    u32 twoshot[MAX_BLOCKS];
    u32 oneshot_wide[MAX_BLOCKS];
    u32 twoshot_wide[MAX_BLOCKS];
};

// Of the kernels that send packets. Mirrored by allreduce/args.go.
struct PushArgs {
    void* box[MAX_RANKS];  // packets that were sent to each rank: [half][source][slot]; two-shot: parts [source][slot], sums [owner][slot]
    const void* in;
    void* out;
    Control* control;
    Status* status;
    u64 count;             // elements
    u64 slots;             // packets of one source in one half, or of one source or owner
    u64 timeout_ns;
    u32 rank, world;
    u64 early;             // of the wide kernels: smaller messages, in bytes, let the next call in at their beginning
};

// counting: c, for begin and commit with the epochs at this offset of PacketControl.
FL_DEVICE Comm counting(Comm c, u32 offset) {
    c.control += offset;
    return c;
}

// ---- Packets ----

struct Packet { u64 w[2]; };

FL_DEVICE u64 join(u32 data, u32 epoch) {
    u64 w;
    asm("mov.b64 %0, {%1, %2};" : "=l"(w) : "r"(data), "r"(epoch));
    return w;
}
FL_DEVICE u32 data_of(u64 w) { return (u32)w; }
FL_DEVICE u32 epoch_of(u64 w) { return (u32)(w >> 32); }

// Relaxed: a word brings its own flag, and orders nothing else. .sys: the other side is another device. Pairs with
// load_packet_if at the same address.
FL_DEVICE void store_packet(u64 a, const Packet& p) {
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" :: "l"(a), "l"(p.w[0]), "l"(p.w[1]) : "memory");
}
// load_packet_if leaves v alone unless p: no branch, so that loads around it are in flight together.
FL_DEVICE void load_packet_if(bool p, u64 a, Packet& v) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\t@p ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];\n\t}"
                 : "+l"(v.w[0]), "+l"(v.w[1]) : "l"(a), "r"((u32)p) : "memory");
}

// late is 0 once both words are of this epoch. It is (x ^ epoch) | (y ^ epoch), which a compiler left to itself takes for two
// comparisons, and many of them for a chain in which each waits for the one before.
FL_DEVICE u32 late(const Packet& p, u32 epoch) {
    u32 v;
    asm("lop3.b32 %0, %1, %2, %3, 0x7e;" : "=r"(v) : "r"(epoch_of(p.w[0])), "r"(epoch_of(p.w[1])), "r"(epoch));
    return v;
}
FL_DEVICE u32 late(const Packet& p, const Packet& q, u32 epoch) { return late(p, epoch) | late(q, epoch); }  // of two packets
// seen_of is the epoch of a late word, if one is late.
FL_DEVICE u32 seen_of(const Packet& p, u32 epoch) { return epoch_of(p.w[1]) != epoch ? epoch_of(p.w[1]) : epoch_of(p.w[0]); }

// ---- The 8 bytes that a packet carries ----

struct Pair { u32 w[2]; };

FL_DEVICE Pair load8(u64 a) {
    Pair v;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "l"(a) : "memory");
    return v;
}
FL_DEVICE Pair load8_if(bool p, u64 a) {
    Pair v = {};
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\t@p ld.global.v2.u32 {%0, %1}, [%2];\n\t}"
                 : "+r"(v.w[0]), "+r"(v.w[1]) : "l"(a), "r"((u32)p) : "memory");
    return v;
}
FL_DEVICE void store8(u64 a, const Pair& v) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" :: "l"(a), "r"(v.w[0]), "r"(v.w[1]) : "memory");
}
FL_DEVICE void store8_if(bool p, u64 a, const Pair& v) {
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\t@p st.global.v2.u32 [%0], {%1, %2};\n\t}"
                 :: "l"(a), "r"(v.w[0]), "r"(v.w[1]), "r"((u32)p) : "memory");
}

FL_DEVICE Packet packet(const Pair& v, u32 epoch) { return {{join(v.w[0], epoch), join(v.w[1], epoch)}}; }

// A buffer of count elements in pairs; the last one may be cut short. Indices have 32 bits, which hold all of a message
// that boxes may have room for, and halve the arithmetic.
template <class T>
struct Pairs {
    static constexpr u32 V = 8 / T::SIZE;
    u64 base;
    u32 count, full;  // elements; pairs that are one aligned word, the first so many or none
    FL_DEVICE Pairs(u64 b, u64 n) : base(b), count((u32)n), full(b % 8 == 0 ? (u32)n / V : 0) {}
    FL_DEVICE u32 pairs() const { return (count + V - 1) / V; }
    FL_DEVICE bool whole(u32 i) const { return i < full; }
    FL_DEVICE bool broken(u32 i) const { return (i >= full) & (i < pairs()); }
    FL_DEVICE u64 at(u32 i) const { return base + 8 * (u64)i; }
    FL_DEVICE Pair load(u32 i) const {
        u64 a = at(i);
        if (whole(i)) return load8(a);
        Pair p = {};
        a = opaque(a);  // so that no address of an element is made ready ahead of a loop
        const u32 o = opaque(i * V);
#pragma unroll
        for (u32 e = 0; e < V; e++)
            p.w[e * T::SIZE / 4] |= T::load_if(o + e < count, a + e * T::SIZE) << (e * T::SIZE % 4 * 8);
        return p;
    }
    FL_DEVICE void store(u32 i, const Pair& p) const {
        u64 a = at(i);
        if (whole(i)) return store8(a, p);
        a = opaque(a);
        const u32 o = opaque(i * V);
#pragma unroll
        for (u32 e = 0; e < V; e++)
            if (o + e < count) T::store(a + e * T::SIZE, p.w[e * T::SIZE / 4] >> (e * T::SIZE % 4 * 8));
    }
};

// refreshes: this call writes all slots, with one-shot those of its half. publishes: the call before it did.
FL_DEVICE bool refreshes(u32 epoch) { return epoch % REFRESH < 2; }
FL_DEVICE bool publishes(u32 epoch) { return refreshes(epoch - 1); }

// ---- Sending ----

// The boxes of all ranks, from this rank on: dest(0) is this rank, dest(1) the next. So ranks begin with different peers, and the
// links share the work. N: the world size, or 0 for c.world; then the table stays in kernel parameters.
template <u32 N>
struct Boxes {
    u64 base[N];
    u32 rank;
    FL_DEVICE Boxes(const Comm& c, void* const* box) : rank(c.rank) {
#pragma unroll
        for (u32 k = 0; k < N; k++) base[k] = global(box[dest(k)]);
    }
    FL_DEVICE u32 dest(u32 k) const { return (rank + k) % N; }
    FL_DEVICE u64 operator[](u32 k) const { return base[k]; }
    // The same place in all.
    FL_DEVICE Boxes at(u64 offset) const {
        Boxes b = *this;
#pragma unroll
        for (u32 k = 0; k < N; k++) b.base[k] = opaque(base[k] + offset);
        return b;
    }
    template <class P>
    FL_DEVICE void send(u64 offset, const P& p) const {
#pragma unroll
        for (u32 k = 1; k < N; k++) store_packet(base[k] + offset, p);
    }
    template <class P>
    FL_DEVICE void send_if(bool to, u64 offset, const P& p) const {
#pragma unroll
        for (u32 k = 1; k < N; k++) store_packet_if(to, base[k] + offset, p);
    }
};
template <>
struct Boxes<0> {
    void* const* box;
    u32 rank, world;
    u64 offset = 0;
    FL_DEVICE Boxes(const Comm& c, void* const* b) : box(b), rank(c.rank), world(c.world) {}
    FL_DEVICE u32 dest(u32 k) const { return rank + k < world ? rank + k : rank + k - world; }
    FL_DEVICE u64 operator[](u32 k) const { return global(box[dest(k)]) + offset; }
    FL_DEVICE Boxes at(u64 o) const {
        Boxes b = *this;
        b.offset += o;
        return b;
    }
    template <class P>
    FL_DEVICE void send(u64 offset, const P& p) const {
#pragma unroll 1
        for (u32 k = 1; k < world; k++) store_packet((*this)[k] + offset, p);
    }
    template <class P>
    FL_DEVICE void send_if(bool to, u64 offset, const P& p) const {
        if (to) send(offset, p);
    }
};

// ---- Waiting ----

// report_packets fills in the rank's record, unless an earlier failure has. Call from the one thread that gave up. from(k): the
// rank that sends packets (u, k).
template <class P, u32 G, u32 U, class From>
FL_DEVICE void report_packets(const Comm& c, u32 epoch, const From& from, const P (&p)[U][G], u32 code) {
    if (exchange_relaxed_gpu(c.control + __builtin_offsetof(Control, poisoned), 1) != 0) return;
    const u64 rec = c.status + __builtin_offsetof(Status, record);
    u32 missing = 0;
#pragma unroll
    for (u32 k = 0; k < G; k++) {
        u32 seen = epoch;
#pragma unroll
        for (u32 u = 0; u < U; u++)
            if (const u32 e = seen_of(p[u][k], epoch); e != epoch) seen = e;
        if (seen == epoch) continue;
        missing |= 1u << from(k);
        store_relaxed_sys(rec + __builtin_offsetof(Record, seen) + 4 * from(k), seen);
    }
    store_relaxed_sys(rec + __builtin_offsetof(Record, slot), SLOT_PACKET);
    store_relaxed_sys(rec + __builtin_offsetof(Record, block), block());
    store_relaxed_sys(rec + __builtin_offsetof(Record, missing), missing);
    store_relaxed_sys(rec + __builtin_offsetof(Record, wanted), epoch);
    fence_release();  // the host reads code first, and the rest once it is set
    store_relaxed_sys(rec + __builtin_offsetof(Record, code), code);
}

FL_DEVICE void end_thread() { asm volatile("exit;" ::: "memory"); }

// collect polls packets until all are of this epoch, those that are already when it is called excepted: packet (u, k) is at(u, k), and
// sent by rank from(k). The loads of one round are in flight together, and only what has not come is loaded again. When the
// time is up or the host says stop, that is reported, and the thread ends here: the loop has one way out, and what comes
// behind it need not ask which way was taken. The clock and the host's word are looked at once in
// 128 rounds: every thread polls here, so that in the emulator, where all take turns, 128 of them already take a while.
template <class P, u32 G, u32 U, class At, class From>
FL_DEVICE void collect(const Comm& c, const At& at, const From& from, u32 epoch, P (&p)[U][G]) {
    auto any_late = [&] {
        u32 any = 0;
#pragma unroll
        for (u32 j = 0; j + 1 < U * G; j += 2) any |= late(p[j / G][j % G], p[(j + 1) / G][(j + 1) % G], epoch);
        if (U * G % 2 != 0) any |= late(p[U - 1][G - 1], epoch);
        return any != 0;
    };
    u64 deadline = 0;
    u32 n = 1;
    do {
#pragma unroll
        for (u32 j = 0; j < U * G; j++) {
            P& q = p[j / G][j % G];
            load_packet_if(late(q, epoch) != 0, at(j / G, j % G), q);
        }
        if (n++ % 128 == 0) {  // while the loads are under way
            const u64 t = now_ns();
            if (deadline == 0) deadline = t + c.timeout_ns;
            const u32 code = load_relaxed_sys(c.status) != 0 ? CODE_ABORTED : t > deadline ? CODE_TIMEOUT : CODE_OK;
            if (code != CODE_OK && any_late()) {
                report_packets(c, opaque(epoch), from, p, code);
                end_thread();
            }
        }
    } while (any_late());
}

// collect_sum adds to this rank's own U pairs what all ranks sent, in rank order: that of (rank r, pair u) at a + r × pitch + u × step.
// Of pairs from `end` on there are none. N: the world size, or 0.
template <class T, u32 N, u32 U>
FL_DEVICE void collect_sum(const Comm& c, u64 a, u64 pitch, u64 step, u32 end, u32 epoch, Pair (&own)[U]) {
    constexpr u32 GROUP = N != 0 ? N : 4;
    const u32 world = N != 0 ? N : c.world;
    float acc[U][T::V];
    for (u32 g = 0; g < world; g += GROUP) {
        Packet p[U][GROUP];
        const u32 rank = opaque(c.rank);  // so that what a comparison with it gives is not kept from one loop for another
#pragma unroll
        for (u32 j = 0; j < U * GROUP; j++) {
            const u32 r = g + j % GROUP, u = j / GROUP;
            const bool there = r == rank || (N == 0 && r >= world) || (u != 0 && u >= end);
            p[u][j % GROUP] = packet(own[u], there ? epoch : ~epoch);
        }
        const u64 base = a + g * pitch;
        auto at = [&](u32 u, u32 k) { return base + k * pitch + u * step; };
        auto from = [&](u32 k) { return g + k; };
        collect(c, at, from, epoch, p);
#pragma unroll
        for (u32 j = 0; j < U * GROUP; j++) {
            const Packet& q = p[j / GROUP][j % GROUP];
            const u32 r = g + j % GROUP;
            if (N != 0 || r < world) accumulate<T>(acc[j / GROUP], {{data_of(q.w[0]), data_of(q.w[1]), 0, 0}}, r == 0);
        }
    }
#pragma unroll
    for (u32 u = 0; u < U; u++) {
        const Packed sum = T::pack(acc[u]);
        own[u] = {{sum.w[0], sum.w[1]}};
    }
}

}  // namespace fl
