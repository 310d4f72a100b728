// fault_scope: the start flag is released at .gpu, and its reader is on another device.
#define POST_START(a, v) asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(a), "r"(v) : "memory")
#include "mini.cuh"
