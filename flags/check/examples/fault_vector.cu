// fault_vector: data and flag are two elements of a vector. Each arrives by itself, so a new flag may come with old data.
#define PUSH(a, v, epoch) \
    asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" :: "l"(a), "r"(v), "r"(epoch) : "memory")
#define PULL(v, seen, a) \
    asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];" : "=r"(v), "=r"(seen) : "l"(a) : "memory")
#include "vector.cuh"
