// push_packets: data and flag are halves of one 64-bit word, which arrives as a whole. Two halves of the inbox and no
// barrier: a half is written again two calls later, when its reader has long sent what it only sends behind its reads.
#define PUSH(a, v, epoch) \
    asm volatile("{\n\t.reg .b64 p;\n\tmov.b64 p, {%1, %2};\n\tst.relaxed.sys.global.b64 [%0], p;\n\t}" \
                 :: "l"(a), "r"(v), "r"(epoch) : "memory")
#define PULL(v, seen, a) \
    asm volatile("{\n\t.reg .b64 p;\n\tld.relaxed.sys.global.b64 p, [%2];\n\tmov.b64 {%0, %1}, p;\n\t}" \
                 : "=r"(v), "=r"(seen) : "l"(a) : "memory")
#include "vector.cuh"
