// fault_closing: the closing flag is relaxed on both sides, so the next call overwrites what a peer still reads.
#define POST_END(a, v) asm volatile("st.relaxed.sys.global.u32 [%0], %1;" :: "l"(a), "r"(v) : "memory")
#define POLL_END(v, a) asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(a) : "memory")
#include "mini.cuh"
