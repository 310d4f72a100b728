// wide.cuh: packets that are three quarters data.
//
// A wide packet is 16 bytes: 96 bits of data below the epoch of its call, written and read by one 128-bit access, which is single-copy
// atomic: who sees the epoch has the data that was written with it. So three 16-byte packs of a buffer take four packets, where those
// of packets.cuh, whose atoms are of 64 bits, take six. What stands there of boxes, halves and epochs holds here.
//
// The b128 type with .sys scope came with PTX 8.4.
#pragma once
#include "packets.cuh"

namespace fl {

struct Words { u32 w[3]; };  // what a packet carries
struct Wide { u32 w[4]; };   // and the epoch

FL_DEVICE Wide wide(const Words& v, u32 epoch) { return {{v.w[0], v.w[1], v.w[2], epoch}}; }
FL_DEVICE Words words(const Wide& p) { return {{p.w[0], p.w[1], p.w[2]}}; }

// Relaxed: a packet brings its own flag, and orders nothing else. .sys: the other side is another device. Pairs with
// load_packet_if at the same address.
FL_DEVICE void store_packet(u64 a, const Wide& p) {
    asm volatile("{\n\t.reg .b64 l, h;\n\t.reg .b128 q;\n\tmov.b64 l, {%1, %2};\n\tmov.b64 h, {%3, %4};\n\tmov.b128 q, {l, h};\n\t"
                 "st.relaxed.sys.global.b128 [%0], q;\n\t}"
                 :: "l"(a), "r"(p.w[0]), "r"(p.w[1]), "r"(p.w[2]), "r"(p.w[3]) : "memory");
}
// load_packet_if leaves v alone unless p: no branch, so that loads around it are in flight together.
FL_DEVICE void load_packet_if(bool p, u64 a, Wide& v) {
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 l, h;\n\t.reg .b128 q;\n\tsetp.ne.u32 p, %5, 0;\n\t"
                 "mov.b64 l, {%0, %1};\n\tmov.b64 h, {%2, %3};\n\tmov.b128 q, {l, h};\n\t"
                 "@p ld.relaxed.sys.global.b128 q, [%4];\n\t"
                 "mov.b128 {l, h}, q;\n\tmov.b64 {%0, %1}, l;\n\tmov.b64 {%2, %3}, h;\n\t}"
                 : "+r"(v.w[0]), "+r"(v.w[1]), "+r"(v.w[2]), "+r"(v.w[3]) : "l"(a), "r"((u32)p) : "memory");
}

// late is 0 once the packet is of this epoch.
FL_DEVICE u32 late(const Wide& p, u32 epoch) { return p.w[3] ^ epoch; }
FL_DEVICE u32 seen_of(const Wide& p, u32) { return p.w[3]; }

// ---- Columns ----

// A chunk of a buffer is three rows of so many packs. A column is three packs, one of each row, and four packets: words 3q, 3q + 1 and
// 3q + 2 of its twelve go in packet q. Packets have rows too, four of so many. So neighbours in a warp touch neighbours in
// memory, in all rows of both. A chunk that is cut short lacks the ends of its rows, the last row first.
constexpr u32 ROWS = 3, PACKETS = 4;

// row_of is the row of packet q's first word. Where that pack is not there, nor is the packet.
FL_DEVICE u32 row_of(u32 q) { return 3 * q / 4; }

// A buffer of count elements in packs of 16 bytes; the last one may be cut short. What is beyond is read as 0, and not written.
template <class T>
struct Packs {
    static constexpr u32 E = 4 / T::SIZE;  // elements in a word
    u64 base;
    u32 count, full;  // elements; packs that are one aligned word, the first so many or none
    FL_DEVICE Packs(u64 b, u64 n) : base(b), count((u32)n), full(b % 16 == 0 ? (u32)n / T::V : 0) {}
    FL_DEVICE u32 packs() const { return (count + T::V - 1) / T::V; }
    FL_DEVICE bool whole(u32 i) const { return i < full; }
    FL_DEVICE bool ragged(u32 i) const { return i >= full && i < packs(); }  // there, and not whole
    FL_DEVICE u64 at(u32 i) const { return base + 16 * (u64)i; }
    // Words w, w + 1, … of pack i element by element, if p. No branches: the loads are in flight together.
    template <u32 W>
    FL_DEVICE void load_words(bool p, u32 i, u32 w, u32* x) const {
#pragma unroll
        for (u32 e = 0; e < W * E; e++) {
            const u32 v = T::load_if(p && i * T::V + w * E + e < count, at(i) + 4 * w + e * T::SIZE) << (e % E * T::SIZE * 8);
            x[e / E] = e % E == 0 ? v : x[e / E] | v;
        }
    }
    template <u32 W>
    FL_DEVICE void store_words(u32 i, u32 w, const u32* x) const {
#pragma unroll
        for (u32 e = 0; e < W * E; e++)
            if (i * T::V + w * E + e < count) T::store(at(i) + 4 * w + e * T::SIZE, x[e / E] >> (e % E * T::SIZE * 8));
    }
};

// A column: the packs `first`, first + apart, …. What is ragged goes row by row: of an aligned buffer that is one pack at most.
template <class T>
struct Column {
    const Packs<T>& in;
    u32 first, apart;
    FL_DEVICE u32 pack(u32 w) const { return first + w / 4 * apart; }  // where word w is
    FL_DEVICE bool ragged() const {
        return !in.whole(pack(4 * (ROWS - 1))) && (in.ragged(pack(0)) || in.ragged(pack(4)) || in.ragged(pack(8)));
    }
    // load has what is whole on its way together, if p, and waits for none of it.
    FL_DEVICE void load(bool p, Packed (&x)[ROWS]) const {
#pragma unroll
        for (u32 j = 0; j < ROWS; j++) x[j] = load16_if(p && in.whole(pack(4 * j)), in.at(pack(4 * j)));
        if (!p || !ragged()) return;
#pragma unroll 1
        for (u32 j = 0; j < ROWS; j++) {
            if (!in.ragged(pack(4 * j))) continue;
            Packed v;
            in.template load_words<4>(true, pack(4 * j), 0, v.w);
#pragma unroll
            for (u32 k = 0; k < ROWS; k++)
                for (u32 w = 0; w < 4; w++) x[k].w[w] = k == j ? v.w[w] : x[k].w[w];
        }
    }
    FL_DEVICE void store(const Packed (&x)[ROWS]) const {
#pragma unroll
        for (u32 j = 0; j < ROWS; j++)
            if (in.whole(pack(4 * j))) store16(in.at(pack(4 * j)), x[j]);
        if (!ragged()) return;
#pragma unroll 1
        for (u32 j = 0; j < ROWS; j++) {
            if (!in.ragged(pack(4 * j))) continue;
            Packed v = x[0];
#pragma unroll
            for (u32 k = 1; k < ROWS; k++)
                for (u32 w = 0; w < 4; w++) v.w[w] = k == j ? x[k].w[w] : v.w[w];
            in.template store_words<4>(pack(4 * j), 0, v.w);
        }
    }
    // The same of the words of packet q alone.
    FL_DEVICE void load(bool p, u32 q, Words& v) const {
#pragma unroll
        for (u32 e = 0; e < 3; e++) {
            const u32 w = 3 * q + e;
            v.w[e] = load4_if(p && in.whole(pack(w)), in.at(pack(w)) + 4 * (w % 4));
        }
        if (!p || !ragged()) return;
#pragma unroll
        for (u32 e = 0; e < 3; e++) {
            const u32 w = 3 * q + e;
            u32 x;
            in.template load_words<1>(in.ragged(pack(w)), pack(w), w % 4, &x);
            v.w[e] |= x;
        }
    }
    FL_DEVICE void store(u32 q, const Words& v) const {
#pragma unroll
        for (u32 e = 0; e < 3; e++) {
            const u32 w = 3 * q + e;
            if (in.whole(pack(w))) store4(in.at(pack(w)) + 4 * (w % 4), v.w[e]);
            else in.template store_words<1>(pack(w), w % 4, &v.w[e]);
        }
    }
};

// columns_of is how many columns the chunks have in which each of `chunks` owners has one of a buffer. Rows of more than one warp's
// columns begin on lines of 128 bytes, if the buffer does. Mirrored by allreduce/shape.go.
FL_DEVICE u32 columns_of(u32 packs, u32 chunks) {
    const u32 even = (packs + ROWS * chunks - 1) / (ROWS * chunks);
    return even > 32 ? (even + 7) / 8 * 8 : even;
}

// Word k of a column: of its packs, and of its packets.
FL_DEVICE u32& word_of(Packed (&x)[ROWS], u32 k) { return x[k / 4].w[k % 4]; }
FL_DEVICE Words packet_words(Packed (&x)[ROWS], u32 q) { return {{word_of(x, 3 * q), word_of(x, 3 * q + 1), word_of(x, 3 * q + 2)}}; }

// collect_sum adds to this rank's own U packets' words what all ranks sent, in rank order, G ranks at a time: the packet of (rank r, u) at
// a + r × pitch + u × step, where there(u). N: the world size, or 0.
template <class T, u32 N, u32 G, u32 U, class There>
FL_DEVICE bool collect_sum(const Comm& c, u64 a, u64 pitch, u64 step, u32 epoch, const There& there, Words (&own)[U]) {
    const u32 world = N != 0 ? N : c.world;
    float acc[U][T::V];
    for (u32 g = 0; g < world; g += G) {
        Wide p[U][G];
#pragma unroll
        for (u32 j = 0; j < U * G; j++) {
            const u32 r = g + j % G, u = j / G;
            p[u][j % G] = wide(own[u], r != c.rank && (N != 0 || r < world) && there(u) ? ~epoch : epoch);
        }
        auto at = [&](u32 u, u32 k) { return a + (g + k) * pitch + u * step; };
        auto from = [&](u32 k) { return g + k; };
        if (!collect(c, at, from, epoch, p)) return false;
#pragma unroll
        for (u32 j = 0; j < U * G; j++) {
            const Wide& q = p[j / G][j % G];
            const u32 r = g + j % G;
            if (N != 0 || r < world) accumulate<T>(acc[j / G], {{q.w[0], q.w[1], q.w[2], 0}}, r == 0);
        }
    }
#pragma unroll
    for (u32 u = 0; u < U; u++) {
        const Packed sum = T::pack(acc[u]);
        own[u] = {{sum.w[0], sum.w[1], sum.w[2]}};
    }
    return true;
}

}  // namespace fl
