// Which kernels find a place beside blocks that wait? Blocks of 512 threads, of which an SM holds two, spin on it; then another kernel
// is launched, and is to end within 50 ms. Printed are those that do not: "/high" on a stream of the highest priority. See RATIONALE.md, "Why
// do ranks that share a device leave one of its SMs empty?".
//
//   nvcc -O2 -arch=sm_90 -std=c++17 -o placement scripts/placement.cu && ./placement
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const cudaError_t code = (call);                                                           \
        if (code != cudaSuccess) printf("line %d: %s\n", __LINE__, cudaGetErrorString(code)), exit(1); \
    } while (0)

template <int STACK, int SMEM, bool SLEEP>
__global__ void __launch_bounds__(512, 2) spin(volatile unsigned* stop, unsigned* sink) {
    __shared__ unsigned shared[SMEM ? SMEM / 4 : 1];
    volatile unsigned local[STACK ? STACK / 4 : 1];
    unsigned r[44];  // so that a thread takes some 56 registers, and a block half an SM's
    for (int i = 0; i < 44; i++) r[i] = sink[i];
    if constexpr (SMEM != 0) shared[threadIdx.x] = r[3];
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
#pragma unroll
        for (int i = 0; i < 44; i++) r[i] = r[i] * 3 + r[(i + 7) % 44];
        if constexpr (STACK != 0) {
            local[r[0] % (STACK / 4)] = r[1];
            r[2] += local[r[3] % (STACK / 4)];
        }
        if (SLEEP) asm volatile("nanosleep.u32 1000;");
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (!*stop && now - begin < 3000000000ull);
    unsigned s = 0;
    for (int i = 0; i < 44; i++) s ^= r[i];
    if (s == 12345) sink[0] = s + (SMEM ? shared[s % 7] : 0);
}

template <int STACK, int SMEM>
__global__ void tiny(unsigned* p, int k) {
    __shared__ unsigned shared[SMEM ? SMEM / 4 : 1];
    volatile unsigned local[STACK ? STACK / 4 : 1];
    extern __shared__ unsigned dynamic[];
    if constexpr (SMEM != 0) {
        shared[threadIdx.x] = k;
        __syncthreads();
        k += shared[k & 3];
    }
    if constexpr (STACK != 0) {
        local[k % (STACK / 4)] = k;
        k += local[(k + 1) % (STACK / 4)];
    }
    if (k < -5) dynamic[0] = 3;
    if (threadIdx.x == 0) atomicAdd(p, k);
}

static bool ends(cudaStream_t s) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (std::chrono::steady_clock::now() < until) {
        const cudaError_t e = cudaStreamQuery(s);
        if (e == cudaSuccess) return true;
        if (e != cudaErrorNotReady) CHECK(e);
    }
    return false;
}

int main() {
    unsigned *stop, *sink, *count;
    char *a, *b;
    int low, high;
    CHECK(cudaSetDevice(0));
    CHECK(cudaHostAlloc(&stop, 4096, cudaHostAllocMapped));
    CHECK(cudaMalloc(&sink, 4096));
    CHECK(cudaMalloc(&count, 4096));
    CHECK(cudaMemset(sink, 0, 4096));
    CHECK(cudaMalloc(&a, 4 << 20));
    CHECK(cudaMalloc(&b, 4 << 20));
    CHECK(cudaDeviceGetStreamPriorityRange(&low, &high));
    using Launch = std::function<void(int, cudaStream_t)>;
    struct Kernel {
        std::string name;
        Launch launch;
    };
    const std::vector<Kernel> spins = {
        {"plain", [=](int n, cudaStream_t s) { spin<0, 0, false><<<n, 512, 0, s>>>(stop, sink); }},
        {"sleep", [=](int n, cudaStream_t s) { spin<0, 0, true><<<n, 512, 0, s>>>(stop, sink); }},
        {"stack16", [=](int n, cudaStream_t s) { spin<16, 0, false><<<n, 512, 0, s>>>(stop, sink); }},
        {"stack4096", [=](int n, cudaStream_t s) { spin<4096, 0, false><<<n, 512, 0, s>>>(stop, sink); }},
        {"smem16k", [=](int n, cudaStream_t s) { spin<0, 16384, false><<<n, 512, 0, s>>>(stop, sink); }},
    };
    CHECK((cudaFuncSetAttribute(tiny<0, 0>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10)));
    const std::vector<Kernel> others = {
        {"tiny", [=](int, cudaStream_t s) { tiny<0, 0><<<4, 128, 0, s>>>(count, 1); }},
        {"tiny1thread", [=](int, cudaStream_t s) { tiny<0, 0><<<1, 1, 0, s>>>(count, 1); }},
        {"tiny-stack16", [=](int, cudaStream_t s) { tiny<16, 0><<<4, 128, 0, s>>>(count, 1); }},
        {"tiny-stack1024", [=](int, cudaStream_t s) { tiny<1024, 0><<<4, 128, 0, s>>>(count, 1); }},
        {"tiny-stack8192", [=](int, cudaStream_t s) { tiny<8192, 0><<<4, 128, 0, s>>>(count, 1); }},
        {"tiny-smem1k", [=](int, cudaStream_t s) { tiny<0, 1024><<<4, 128, 0, s>>>(count, 1); }},
        {"tiny-smem16k", [=](int, cudaStream_t s) { tiny<0, 16384><<<4, 128, 0, s>>>(count, 1); }},
        {"tiny-smem48k", [=](int, cudaStream_t s) { tiny<0, 49152><<<4, 128, 0, s>>>(count, 1); }},
        {"tiny-dyn100k", [=](int, cudaStream_t s) { tiny<0, 0><<<4, 128, 100 << 10, s>>>(count, 1); }},
        {"tiny-dyn200k", [=](int, cudaStream_t s) { tiny<0, 0><<<4, 128, 200 << 10, s>>>(count, 1); }},
        {"memset", [=](int, cudaStream_t s) { CHECK(cudaMemsetAsync(a + 3, 7, 500000, s)); }},
        {"d2d", [=](int, cudaStream_t s) { CHECK(cudaMemcpyAsync(a + 4, b + 8, 500000, cudaMemcpyDeviceToDevice, s)); }},
    };
    cudaStream_t spinning, normal, first;
    CHECK(cudaStreamCreateWithFlags(&spinning, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&normal, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&first, cudaStreamNonBlocking, high));
    volatile unsigned* const end = stop;
    *end = 1;
    for (int i = 0; i < 2; i++) {  // nothing is loaded for the first time later on
        for (auto& s : spins) s.launch(1, spinning);
        for (auto& o : others) o.launch(0, normal), o.launch(0, first);
        CHECK(cudaDeviceSynchronize());
    }
    cudaDeviceProp prop;
    CHECK(cudaGetDeviceProperties(&prop, 0));
    const int sms = prop.multiProcessorCount;
    for (auto& s : spins)
        for (int n : {sms - 1, sms, sms + 60}) {
            printf("%-10s %3d:", s.name.c_str(), n);
            for (auto& o : others)
                for (cudaStream_t stream : {normal, first}) {
                    *end = 0;
                    s.launch(n, spinning);
                    std::this_thread::sleep_for(std::chrono::milliseconds(2));
                    o.launch(0, stream);
                    const bool placed = ends(stream);
                    *end = 1;
                    CHECK(cudaDeviceSynchronize());
                    if (!placed) printf(" %s%s", o.name.c_str(), stream == first ? "/high" : "");
                }
            printf(" .\n");
        }
}
