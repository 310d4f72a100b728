// add_peer: local[i] += peer[i], where peer is the memory of another GPU, read directly.
//
// Nothing orders this kernel against the peer's own work: the host makes sure that the peer's
// data is written before the launch and not changed before the kernel ends. A kernel that runs
// together with its peer's needs release/acquire flags; see kernels/fenceline.cuh.
//
// Built by (no CUDA SDK needed; see TestPTXIsCurrent):
//   clang-19 -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib
//     -Xclang -target-feature -Xclang +ptx70 -O3 -S addpeer.cu -o addpeer.ptx
#ifdef __clang__
#define __global__ __attribute__((global))
#define BLOCK_INDEX __nvvm_read_ptx_sreg_ctaid_x()
#define BLOCK_SIZE __nvvm_read_ptx_sreg_ntid_x()
#define THREAD_INDEX __nvvm_read_ptx_sreg_tid_x()
#else
#define BLOCK_INDEX blockIdx.x
#define BLOCK_SIZE blockDim.x
#define THREAD_INDEX threadIdx.x
#endif

extern "C" __global__ void add_peer(float* local, const float* peer, unsigned n)
{
    unsigned i = BLOCK_INDEX * BLOCK_SIZE + THREAD_INDEX;
    if (i < n)
        local[i] += peer[i];
}
