// reduce.cuh: sums of packed elements in rank order, and the split of a buffer into head, body and tail.
//
// A sum starts from rank 0's value, adds rank 1's, and so on in fp32, and is rounded once at the end. Every
// algorithm uses these functions, so all give the same bits. A NaN result is the canonical NaN of its type
// (what the hardware's own instructions give), except that a world of one returns f32 unchanged.
#pragma once
#include "fenceline.cuh"

namespace fl {

// Each element type: V elements in 16 bytes, unpacked to V floats.
struct F32 {
    static constexpr u32 V = 4, SIZE = 4;
    static FL_DEVICE u32 load(u64 a) { return load4(a); }
    static FL_DEVICE u32 load_if(bool p, u64 a) { return load4_if(p, a); }
    static FL_DEVICE void store(u64 a, u32 bits) { store4(a, bits); }
    static FL_DEVICE void unpack(float* f, const Packed& p) {
        for (int i = 0; i < 4; i++) f[i] = __builtin_bit_cast(float, p.w[i]);
    }
    static FL_DEVICE Packed pack(const float* f) {
        Packed p;
        for (int i = 0; i < 4; i++) p.w[i] = __builtin_bit_cast(u32, f[i]);
        return p;
    }
};

struct F16 {
    static constexpr u32 V = 8, SIZE = 2;
    static FL_DEVICE u32 load(u64 a) { return load2(a); }
    static FL_DEVICE u32 load_if(bool p, u64 a) { return load2_if(p, a); }
    static FL_DEVICE void store(u64 a, u32 bits) { store2(a, (u16)bits); }
    static FL_DEVICE void unpack2(float* lo, float* hi, u32 w) {
        asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;\n\t}"
            : "=f"(*lo), "=f"(*hi) : "r"(w));
    }
    static FL_DEVICE u32 pack2(float lo, float hi) {
        u32 w;
#if __CUDA_ARCH__ >= 800
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
#else
        asm("{\n\t.reg .b16 l, h;\n\tcvt.rn.f16.f32 l, %1;\n\tcvt.rn.f16.f32 h, %2;\n\tmov.b32 %0, {l, h};\n\t}"
            : "=r"(w) : "f"(lo), "f"(hi));
#endif
        return w;
    }
    static FL_DEVICE void unpack(float* f, const Packed& p) {
        for (int i = 0; i < 4; i++) unpack2(&f[2 * i], &f[2 * i + 1], p.w[i]);
    }
    static FL_DEVICE Packed pack(const float* f) {
        Packed p;
        for (int i = 0; i < 4; i++) p.w[i] = pack2(f[2 * i], f[2 * i + 1]);
        return p;
    }
};

struct BF16 {
    static constexpr u32 V = 8, SIZE = 2;
    static FL_DEVICE u32 load(u64 a) { return load2(a); }
    static FL_DEVICE u32 load_if(bool p, u64 a) { return load2_if(p, a); }
    static FL_DEVICE void store(u64 a, u32 bits) { store2(a, (u16)bits); }
#if __CUDA_ARCH__ < 800
    // Round to nearest even in integers; NaN becomes the 0x7fff that cvt.rn.bf16.f32 gives.
    static FL_DEVICE u32 round(float f) {
        const u32 x = __builtin_bit_cast(u32, f);
        const u32 r = (x + 0x7fff + ((x >> 16) & 1)) >> 16;
        return (x & 0x7fffffff) > 0x7f800000 ? 0x7fff : r;
    }
#endif
    static FL_DEVICE u32 pack2(float lo, float hi) {
        u32 w;
#if __CUDA_ARCH__ >= 800
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
#else
        w = round(lo) | round(hi) << 16;
#endif
        return w;
    }
    static FL_DEVICE void unpack(float* f, const Packed& p) {
        for (int i = 0; i < 4; i++) {
            f[2 * i] = __builtin_bit_cast(float, p.w[i] << 16);
            f[2 * i + 1] = __builtin_bit_cast(float, p.w[i] & 0xffff0000);
        }
    }
    static FL_DEVICE Packed pack(const float* f) {
        Packed p;
        for (int i = 0; i < 4; i++) p.w[i] = pack2(f[2 * i], f[2 * i + 1]);
        return p;
    }
};

// accumulate: acc = x for the first rank, acc + x for the others.
template <class T>
FL_DEVICE void accumulate(float* acc, const Packed& x, bool first) {
    float f[T::V];
    T::unpack(f, x);
#pragma unroll
    for (u32 i = 0; i < T::V; i++) acc[i] = first ? f[i] : acc[i] + f[i];
}

// load_packed and store_packed move 16 bytes of a local buffer; element by element where it is not
// 16-byte aligned.
template <class T>
FL_DEVICE Packed load_packed(u64 a, bool aligned) {
    if (aligned) return load16(a);
    Packed p = {{0, 0, 0, 0}};
#pragma unroll
    for (u32 i = 0; i < T::V; i++) p.w[i * T::SIZE / 4] |= T::load(a + i * T::SIZE) << (i * T::SIZE % 4 * 8);
    return p;
}
template <class T>
FL_DEVICE void store_packed(u64 a, const Packed& p, bool aligned) {
    if (aligned) return store16(a, p);
#pragma unroll
    for (u32 i = 0; i < T::V; i++) T::store(a + i * T::SIZE, p.w[i * T::SIZE / 4] >> (i * T::SIZE % 4 * 8));
}

// Where each rank's contribution begins, for a world size known only at run time. The table stays in kernel
// parameters, which index like an array at no cost; a copy would live in local memory.
struct AnyPeers {
    const void* const* table;
    u64 offset;
    FL_DEVICE u64 operator[](u32 r) const { return global(table[r]) + offset; }
};

// The same for N ranks, in registers.
template <u32 N>
struct Peers {
    u64 base[N], offset;
    FL_DEVICE u64 operator[](u32 r) const { return base[r] + offset; }
};

// sum adds the 16 bytes at peer[r] + offset of every rank r, in rank order. The loads of a group of ranks are
// issued before the first is used, so that their latencies overlap. N: the world size when it is known
// at compile time, or 0. ALIGNED: every address is a multiple of 16.
template <class T, u32 N, bool ALIGNED, class P>
FL_DEVICE Packed sum(const P& peer, u64 offset, u32 world) {
    constexpr u32 GROUP = N != 0 ? N : 4;
    float acc[T::V];
    for (u32 g = 0; g < (N != 0 ? N : world); g += GROUP) {
        Packed x[GROUP];
#pragma unroll
        for (u32 k = 0; k < GROUP; k++)
            if (N != 0 || g + k < world) {
                const u64 at = peer[g + k] + offset;
                x[k] = load_packed<T>(at, ALIGNED || at % 16 == 0);
            }
#pragma unroll
        for (u32 k = 0; k < GROUP; k++)
            if (N != 0 || g + k < world) accumulate<T>(acc, x[k], g + k == 0);
    }
    return T::pack(acc);
}

// UNDER_WAY is how many packs of each rank a thread has under way at a time. What is resident of a few ranks on one device has too few
// threads to keep its memory busy with one; more ranks have as many loads without.
template <u32 N>
constexpr u32 UNDER_WAY = N == 2 || N == 4 ? 2 : 1;

// sum_each calls put(v, the sum of the 16 bytes at peer[r] + offset + 16 v) for v = first, first + stride, … below end.
template <class T, u32 N, bool ALIGNED, class P, class Put>
FL_DEVICE void sum_each(const P& peer, u64 offset, u32 first, u32 end, u32 stride, u32 world, const Put& put) {
    constexpr u32 U = UNDER_WAY<N>;
    if constexpr (U == 1 || !ALIGNED) {
        for (u32 v = first; v < end; v += stride) put(v, sum<T, N, ALIGNED>(peer, offset + 16 * (u64)v, world));
    } else {
        for (u32 v = first; v < end; v += U * stride) {
            Packed x[U][N];
#pragma unroll
            for (u32 j = 0; j < U * N; j++) {
                const u32 at = v + j / N * stride;
                x[j / N][j % N] = load16_if(at < end, peer[j % N] + offset + 16 * (u64)at);
            }
#pragma unroll
            for (u32 u = 0; u < U; u++) {
                float acc[T::V];
#pragma unroll
                for (u32 r = 0; r < N; r++) accumulate<T>(acc, x[u][r], r == 0);
                if (v + u * stride < end) put(v + u * stride, T::pack(acc));
            }
        }
    }
}

// sum_one is sum for a single element.
template <class T, u32 N, class P>
FL_DEVICE u32 sum_one(const P& peer, u64 offset, u32 world) {
    float acc[T::V];
    for (u32 r = 0; r < (N != 0 ? N : world); r++) {
        Packed x = {{T::load(peer[r] + offset), 0, 0, 0}};
        accumulate<T>(acc, x, r == 0);
    }
    return T::pack(acc).w[0];
}

// The split of count elements: `head` single elements, `body` packs of 16 bytes, the rest single again.
// All ranks use the same split, so block b of every rank works on the same elements. A launch is for 32 GiB at most: packs have
// 32-bit indices, which halve the arithmetic.
struct Split {
    u32 head, singles;
    u32 body;
};
template <class T>
FL_DEVICE Split split(u64 count, u32 head) {
    Split s;
    s.head = head < count ? head : (u32)count;
    s.body = (u32)((count - s.head) / T::V);
    s.singles = (u32)(count - (u64)s.body * T::V);
    return s;
}
// single: the index of the i-th element outside the body.
template <class T>
FL_DEVICE u64 single(const Split& s, u32 i) { return i < s.head ? i : i + (u64)s.body * T::V; }

// sum_share sums this block's share of all elements into out.
template <class T, u32 N, bool ALIGNED, class P>
FL_DEVICE void sum_share(const P& peer, u64 out, const Split& s, u32 world) {
    const u64 body = (u64)s.head * T::SIZE;
    const bool aligned = (out + body) % 16 == 0;
    auto put = [&](u32 v, const Packed& x) __attribute__((always_inline)) { store_packed<T>(out + body + 16 * (u64)v, x, aligned); };
    sum_each<T, N, ALIGNED>(peer, body, block() * threads() + thread(), s.body, blocks() * threads(), world, put);
    if (block() == 0 && thread() < s.singles) {
        const u64 o = T::SIZE * single<T>(s, thread());
        T::store(out + o, sum_one<T, N>(peer, o, world));
    }
}

// Calls of fewer bytes let the next one in as early as possible. In a larger one its blocks, which can only wait, would take room
// and bandwidth from those that work. Measured.
constexpr u64 EARLY_BYTES = 512 << 10;

}  // namespace fl
