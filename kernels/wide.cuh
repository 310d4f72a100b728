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
// store_packet if p: no branch.
FL_DEVICE void store_packet_if(bool p, u64 a, const Wide& v) {
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 l, h;\n\t.reg .b128 q;\n\tsetp.ne.u32 p, %5, 0;\n\t"
                 "mov.b64 l, {%1, %2};\n\tmov.b64 h, {%3, %4};\n\tmov.b128 q, {l, h};\n\t@p st.relaxed.sys.global.b128 [%0], q;\n\t}"
                 :: "l"(a), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]), "r"((u32)p) : "memory");
}
// load_packet_if leaves v alone unless p: no branch, so that loads around it are in flight together.
FL_DEVICE void load_packet_if(bool p, u64 a, Wide& v) {
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 l, h;\n\t.reg .b128 q;\n\tsetp.ne.u32 p, %5, 0;\n\t"
                 "mov.b64 l, {%0, %1};\n\tmov.b64 h, {%2, %3};\n\tmov.b128 q, {l, h};\n\t"
                 "@p ld.relaxed.sys.global.b128 q, [%4];\n\t"
                 "mov.b128 {l, h}, q;\n\tmov.b64 {%0, %1}, l;\n\tmov.b64 {%2, %3}, h;\n\t}"
                 : "+r"(v.w[0]), "+r"(v.w[1]), "+r"(v.w[2]), "+r"(v.w[3]) : "l"(a), "r"((u32)p) : "memory");
}

// late is 0 once the packet, or both, are of this epoch. Of two as of the two words in packets.cuh.
FL_DEVICE u32 late(const Wide& p, u32 epoch) { return p.w[3] ^ epoch; }
FL_DEVICE u32 late(const Wide& p, const Wide& q, u32 epoch) {
    u32 v;
    asm("lop3.b32 %0, %1, %2, %3, 0x7e;" : "=r"(v) : "r"(p.w[3]), "r"(q.w[3]), "r"(epoch));
    return v;
}
FL_DEVICE u32 seen_of(const Wide& p, u32) { return p.w[3]; }

// ---- Columns ----

// A chunk of a buffer is three rows of so many packs. A column is three packs, one of each row, and four packets: words 3q, 3q + 1 and
// 3q + 2 of its twelve go in packet q. Packets have rows too, four of so many. So neighbours in a warp touch neighbours in
// memory, in all rows of both. A chunk that is cut short lacks the ends of its rows, the last row first.
constexpr u32 ROWS = 3, PACKETS = 4;

// row_of is the row of packet q's first word. Where that pack is not there, nor is the packet.
FL_DEVICE u32 row_of(u32 q) { return 3 * q / 4; }

// How buffers of count elements go in packs of 16 bytes. What is beyond the end is read as 0, and not written. If both buffers are
// aligned they are whole packs, and behind them perhaps a tail, which is cut short; otherwise all goes element by element.
template <class T>
struct Packs {
    static constexpr u32 E = 4 / T::SIZE, NONE = ~0u;  // elements in a word; no pack
    u32 count, full, words, low;                       // elements; whole packs; whole words; 0 in the low 4 bits: both are aligned
    FL_DEVICE Packs(u64 in, u64 out, u64 n)
        : count((u32)n), full((in | out) % 16 == 0 ? (u32)n / T::V : 0), words((in | out) % 16 == 0 ? (u32)n / E : 0), low((u32)(in | out)) {}
    FL_DEVICE u32 packs() const { return (count + T::V - 1) / T::V; }
    FL_DEVICE bool aligned() const { return low % 16 == 0; }
    FL_DEVICE u32 tail() const { return aligned() && count % T::V != 0 ? count / T::V : NONE; }
    // Of the tail's words, three at most are whole, and of the next one may be half.
    FL_DEVICE bool halved() const { return count % E != 0; }
    FL_DEVICE u32 half() const { return count % T::V / E; }  // which one
};

// seldom: p, which is nearly always false, so that what is done then stands apart from the rest.
FL_DEVICE bool seldom(bool p) { return __builtin_expect(p, false); }

struct Rest { Packed v; u32 half; };  // a tail: its whole words, and the half one

// A column: the packs `first`, first + apart, … of the buffer at base.
template <class T>
struct Column {
    static constexpr u32 E = Packs<T>::E;
    Packs<T> packs;
    u64 base;
    u32 first, apart;
    FL_DEVICE u32 pack(u32 row) const { return first + row * apart; }
    FL_DEVICE u32 word(u32 w) const { return 4 * first + w + w / 4 * (4 * apart - 4); }  // of the buffer: word w of the column
    FL_DEVICE u64 pack_at(u32 i) const { return base + 16 * (u64)i; }
    FL_DEVICE u64 word_at(u32 k) const { return base + 4 * (u64)k; }

    // For needed_before_wait: the addresses of packet q's words.
    FL_DEVICE u64 words_at(u32 q) const { return word_at(word(3 * q)) | word_at(word(3 * q + 1)) | word_at(word(3 * q + 2)); }
    // Nearly all columns are plain, and a warp that has no other pays for one comparison.
    FL_DEVICE bool plain() const { return pack(ROWS - 1) < packs.full; }
    FL_DEVICE bool plain(u32 q) const { return word(3 * q + 2) < packs.words; }
    // rare is the column for what is done with others: nothing of that is computed ahead of it.
    FL_DEVICE Column rare() const {
        Packs<T> p = packs;
        p.count = opaque(p.count), p.low = opaque(p.low);
        return {p, opaque(base), opaque(first), opaque(apart)};
    }

    // All of it if p, otherwise zeros.
    FL_DEVICE void load(bool p, Packed (&x)[ROWS]) const {
        start(p, x);
        settle(p, x);
    }
    // start has whole packs on their way together, and waits for nothing. settle does the rest.
    FL_DEVICE void start(bool p, Packed (&x)[ROWS]) const {
#pragma unroll
        for (u32 j = 0; j < ROWS; j++) x[j] = load16_if(p && pack(j) < packs.full, pack_at(pack(j)));
    }
    FL_DEVICE void settle(bool p, Packed (&x)[ROWS]) const {
        if (seldom(p && !plain())) rare().load_rest(x);
    }
    FL_DEVICE void store(bool p, const Packed (&x)[ROWS]) const {
#pragma unroll
        for (u32 j = 0; j < ROWS; j++) store16_if(p && pack(j) < packs.full, pack_at(pack(j)), x[j]);
        if (seldom(p && !plain())) rare().store_rest(x);
    }
    FL_DEVICE void load_rest(Packed (&x)[ROWS]) const {
        if (!packs.aligned()) {
#pragma unroll 1
            for (u32 w = 0; w < 4 * ROWS; w++) {
                const u32 v = load_elements(true, word(w));
#pragma unroll
                for (u32 k = 0; k < 4 * ROWS; k++) x[k / 4].w[k % 4] = k == w ? v : x[k / 4].w[k % 4];
            }
        }
        const u32 row = tail_row();
        if (row == ROWS) return;
        Rest rest = {};
        load_tail(rest);
#pragma unroll
        for (u32 k = 0; k < 4; k++) rest.v.w[k] |= k == packs.half() ? rest.half : 0;
#pragma unroll
        for (u32 k = 0; k < 4 * ROWS; k++) x[k / 4].w[k % 4] = row == k / 4 ? rest.v.w[k % 4] : x[k / 4].w[k % 4];
    }
    FL_DEVICE void store_rest(const Packed (&x)[ROWS]) const {
        if (!packs.aligned()) {
#pragma unroll 1
            for (u32 w = 0; w < 4 * ROWS; w++) {
                u32 v = x[0].w[0];
#pragma unroll
                for (u32 k = 1; k < 4 * ROWS; k++) v = k == w ? x[k / 4].w[k % 4] : v;
                store_elements(word(w), v);
            }
        }
        const u32 row = tail_row();
        if (row == ROWS) return;
        Packed rest;
#pragma unroll
        for (u32 k = 0; k < 4; k++) rest.w[k] = row == 0 ? x[0].w[k] : row == 1 ? x[1].w[k] : x[2].w[k];
        store_tail(rest);
    }
    // The same of the words of packet q alone.
    FL_DEVICE void load(bool p, u32 q, Words& v) const {
        start(p, q, v);
        settle(p, q, v);
    }
    FL_DEVICE void start(bool p, u32 q, Words& v) const {
#pragma unroll
        for (u32 e = 0; e < 3; e++) v.w[e] = load4_if(p && word(3 * q + e) < packs.words, word_at(word(3 * q + e)));
    }
    FL_DEVICE void settle(bool p, u32 q, Words& v) const {
        if (seldom(p && !plain(q))) rare().load_rest(opaque(q), v);
    }
    FL_DEVICE void store(u32 q, const Words& v) const {
#pragma unroll
        for (u32 e = 0; e < 3; e++) store4_if(word(3 * q + e) < packs.words, word_at(word(3 * q + e)), v.w[e]);
        if (seldom(!plain(q))) rare().store_rest(opaque(q), v);
    }
    FL_DEVICE void load_rest(u32 q, Words& v) const {
#pragma unroll
        for (u32 e = 0; e < 3; e++) v.w[e] |= load_elements(word(3 * q + e) >= packs.words, word(3 * q + e));
    }
    FL_DEVICE void store_rest(u32 q, const Words& v) const {
#pragma unroll
        for (u32 e = 0; e < 3; e++)
            if (word(3 * q + e) >= packs.words) store_elements(word(3 * q + e), v.w[e]);
    }

    FL_DEVICE u32 tail_row() const {
        const u32 tail = packs.tail();
        return tail == pack(0) ? 0 : tail == pack(1) ? 1 : tail == pack(2) ? 2 : ROWS;
    }
    FL_DEVICE void load_tail(Rest& rest) const {
        const u64 a = pack_at(packs.tail());
#pragma unroll
        for (u32 k = 0; k < 4; k++) rest.v.w[k] = load4_if(k < packs.half(), a + 4 * k);
        if (E != 1) rest.half = T::load_if(packs.halved(), a + 4 * packs.half());
    }
    FL_DEVICE void store_tail(const Packed& v) const {
        const u64 a = pack_at(packs.tail());
        u32 half = v.w[0];
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            if (k < packs.half()) store4(a + 4 * k, v.w[k]);
            half = k == packs.half() ? v.w[k] : half;
        }
        if (packs.halved()) T::store(a + 4 * packs.half(), half);
    }
    // Word k element by element, if p. No branches: the loads are in flight together.
    FL_DEVICE u32 load_elements(bool p, u32 k) const {
        u32 v = T::load_if(p && k * E < packs.count, word_at(k));
        if (E == 2) v |= T::load_if(p && k * E + 1 < packs.count, word_at(k) + T::SIZE) << 16;
        return v;
    }
    FL_DEVICE void store_elements(u32 k, u32 v) const {
        if (k * E < packs.count) T::store(word_at(k), v);
        if (E == 2 && k * E + 1 < packs.count) T::store(word_at(k) + T::SIZE, v >> 16);
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
FL_DEVICE void collect_sum(const Comm& c, u64 a, u64 pitch, u64 step, u32 epoch, const There& there, Words (&own)[U]) {
    const u32 world = N != 0 ? N : c.world;
    float acc[U][T::V];
    for (u32 g = 0; g < world; g += G) {
        Wide p[U][G];
        // Masks, as predicates are needed in the poll loop; and words of own that are only copied would be copied in each round again.
        const u32 rank = opaque(c.rank);
        u32 missing[U], mine[G];
#pragma unroll
        for (u32 u = 0; u < U; u++) missing[u] = opaque(there(u) ? 0 : ~0u);
#pragma unroll
        for (u32 k = 0; k < G; k++) mine[k] = opaque(g + k == rank || (N == 0 && g + k >= world) ? ~0u : 0);
#pragma unroll
        for (u32 j = 0; j < U * G; j++) {
            const u32 u = j / G;
            const u32 here = missing[u] | mine[j % G];
            p[u][j % G] = wide({{own[u].w[0] & here, own[u].w[1] & here, own[u].w[2] & here}}, ~(epoch ^ here));
        }
        auto at = [&](u32 u, u32 k) { return a + (g + k) * pitch + u * step; };
        auto from = [&](u32 k) { return g + k; };
        collect(c, at, from, epoch, p);
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
}

}  // namespace fl
