// What compilers make of ordinary device code: control flow, calls, local and shared memory, warp
// intrinsics, conversions, libm. features_test.go holds the expected values.
//
//   nvcc  --ptx -arch=sm_75 -o nvcc.sm_75.ptx features.cu
//   nvcc  --ptx -arch=sm_90 -lineinfo -o nvcc.sm_90.ptx features.cu
//   clang -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib -O2 -S -o clang.sm_70.ptx features.cu
//   clang … -O0 -g -fdebug-compilation-dir=. -o clang-debug.sm_70.ptx features.cu
#if defined(__clang__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
__device__ inline unsigned tid() { return __nvvm_read_ptx_sreg_tid_x(); }
__device__ inline void sync() { __nvvm_bar_sync(0); }
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
__device__ inline unsigned tid() { return threadIdx.x; }
__device__ inline void sync() { __syncthreads(); }
#endif
using u32 = unsigned;
using u64 = unsigned long long;

struct Args {
    u32* out;
    const u32* in;
    u64 count;
    u32 bias[5];
    unsigned short half;
    signed char small;
};

__constant__ u32 table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ u32 counter = 100;

struct Pair { u32 a; u64 b; };

__device__ __attribute__((noinline)) Pair swap_add(Pair p, u32 x) { return {(u32)p.b + x, (u64)p.a * x}; }

__device__ __attribute__((noinline)) u32 collatz(u32 n) {
    u32 steps = 0;
    while (n != 1 && steps < 200) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        steps++;
    }
    return steps;
}

__device__ u32 classify(u32 x) {
    switch (x % 9) {
    case 0: return x + 7;
    case 1: return x * 3;
    case 2: return x ^ 0x55;
    case 3: if (x > 20) return 1; return 2;
    case 4: return x << 3;
    case 6: return ~x;
    case 7: return x / 5;
    default: return 1000 + x;
    }
}

__device__ u32 sort_middle(const u32* in, u32 t) {
    u32 v[8];
    for (u32 i = 0; i < 8; i++) v[i] = in[(t * 7 + i * 5) % 64] >> 3;
    for (u32 i = 1; i < 8; i++)
        for (u32 j = i; j > 0 && v[j - 1] > v[j]; j--) {
            u32 s = v[j];
            v[j] = v[j - 1];
            v[j - 1] = s;
        }
    return v[t % 8];
}

extern "C" __global__ void features(const Args a) {
    __shared__ u32 box[64];
    const u32 t = tid(), x = a.in[t];
    u32* out = a.out + t;
    u32 n = 0;
    auto put = [&](u32 v) { out[64 * n++] = v; };

    put(classify(t));                                               // 0
    put(collatz(t + 1));                                            // 1
    const Pair p = swap_add({x, (u64)t << 33 | 5}, t + 1);
    put(p.a ^ (u32)p.b ^ (u32)(p.b >> 32));                         // 2
    put(sort_middle(a.in, t));                                      // 3
    put(a.bias[t % 5] + table[t % 8] + a.half + a.small);           // 4
    box[t] = x;
    sync();
    u32 sum = 0;
    for (u32 i = 0; i <= t; i++) sum += box[(t + i * 3) % 64];
    put(sum);                                                       // 5
    put((u32)((u64)x * x / (t + 3)));                               // 6
    put((u32)((long long)(int)x / -7 % 1000));                      // 7
    put((u32)((int)x % ((int)t - 40 ? (int)t - 40 : 1)));           // 8
    put((u32)(float)x);                                             // 9
    put(__builtin_bit_cast(u32, (float)x * 0.1f + (float)t));       // 10
    put((u32)(long long)((double)x / 3.0 - 1e9));                   // 11
    put((u32)(signed char)x + (u32)(short)(x >> 3));                // 12
    put(x >> (t & 31) | x << (-t & 31));                            // 13
    put((u32)(u64)(((u64)x << 20) >> (t & 63)));                    // 14
    u32 bits = 0;
    for (u32 v = x; v; v &= v - 1) bits++;
    put(bits);                                                      // 15
    float f = 1;
    for (u32 i = 0; i < t % 13; i++) f = f * 1.5f - (float)i;
    put(f > 3.0f ? 1 : f < -2.0f ? 2 : f == 1.0f ? 3 : 4);          // 16
    const u64 wide = (u64)x * 0x9e3779b97f4a7c15ull + t;
    put((u32)(wide >> 32) ^ (u32)(wide % 1000003));                 // 17
    __attribute__((aligned(16))) u32 quad[4] = {x, t, x + t, x - t};
    put(quad[x % 4]);                                               // 18
    bool even = (t & 1) == 0, big = x > 0x80000000u;
    put(even && big ? 1 : even || big ? 2 : 3);                     // 19
}

#if !defined(__clang__)
extern "C" __global__ void intrinsics(u32* outs, const u32* in) {
    extern __shared__ u32 dyn[];
    const u32 t = tid(), x = in[t];
    u32* out = outs + t;
    u32 n = 0;
    auto put = [&](u32 v) { out[64 * n++] = v; };
    put(__popc(x) + 100 * __clz(x) + 10000 * __ffs(x));             // 0
    put(__brev(x));                                                 // 1
    put(__byte_perm(x, ~x, 0x3715));                                // 2
    put(__umulhi(x, 0xdeadbeef));                                   // 3
    put(__shfl_xor_sync(~0u, x, 9));                                // 4
    put(__shfl_down_sync(~0u, x, 3, 16));                           // 5
    put(__ballot_sync(~0u, x & 4));                                 // 6
    put(__match_any_sync(~0u, x & 3));                              // 7
    u32 r = x & 0xfff;
    for (int d = 16; d; d /= 2) r += __shfl_xor_sync(~0u, r, d);
    put(r);                                                         // 8
    put(__syncthreads_count(x & 1));                                // 9
    dyn[t] = 0;
    __syncthreads();
    atomicAdd(&dyn[x % 8], t);
    atomicMax(&dyn[8 + x % 8], x);
    atomicXor(&dyn[16 + x % 4], x);
    __syncthreads();
    put(dyn[t]);                                                    // 10
    __half h = __ushort_as_half((unsigned short)(x & 0xbfff));
    put(__half_as_ushort(__hfma(h, h, __float2half(0.5f))));        // 11
    __nv_bfloat16 b = __ushort_as_bfloat16((unsigned short)(x >> 16 & 0xbfff));
    put(__bfloat16_as_ushort(__float2bfloat16(__bfloat162float(b) * 3.0f)));  // 12
    put(__float_as_uint(__fsqrt_rn((float)x)));                     // 13
    put(__float_as_uint(__fmaf_rz((float)x, 1.1f, -3.0f)));         // 14
    put(__float2int_rd((float)(int)x * 1e-3f));                     // 15
    float s = sinf((float)t * 1000.0f), e = expf((float)t * 0.1f), l = logf((float)t + 1.0f);
    put((u32)(s * 10000.0f + 20000.0f));                            // 16: within one
    put((u32)(e * 100.0f));                                         // 17: within one
    put((u32)(l * 10000.0f));                                       // 18: within one
    put((u32)(pow((double)t + 1.0, 1.5) * 100.0));                  // 19: within one
    long long d = (long long)in[0] * in[t] - 5;
    put((u32)(d / ((long long)t * 12345 + 7)));                     // 20
    put(__funnelshift_l(x, ~x, t));                                 // 21
    put(__dp4a((int)x, 0x01ff0203, 7));                             // 22
    if (t < 32) {
        u32 ticket = 0;
        for (u32 i = 0; i < 32; i++) {
            __syncwarp();
            if (t == i) ticket = atomicAdd(&dyn[40], i);
        }
        put(ticket);                                                // 23
    }
}
#endif
