// Functions compiled for several generations of processors; the loader selects the best version.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && __GNUC__ >= 12 && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TENSOROPT_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define TENSOROPT_WIDE __attribute__((target("arch=x86-64-v4")))
#define TENSOROPT_HAS_WIDE __builtin_cpu_supports("avx512vl")
#define TENSOROPT_FUSED __attribute__((target("arch=x86-64-v3")))
#define TENSOROPT_HAS_FUSED (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define TENSOROPT_CLONES
#define TENSOROPT_WIDE
#define TENSOROPT_HAS_WIDE false
#define TENSOROPT_FUSED
#define TENSOROPT_HAS_FUSED false
#endif

// TENSOROPT_WIDE marks a function for processors with 32 registers of 16 floats, and
// TENSOROPT_HAS_WIDE is true on such processors. TENSOROPT_FUSED and TENSOROPT_HAS_FUSED do the
// same for 16 registers of 8 floats with fused multiply-add.

// A function must be inlined into its caller to be compiled for the caller's instructions.
#define TENSOROPT_INLINE inline __attribute__((always_inline))

// TENSOROPT_EACH_BY_ITSELF is placed before a loop with independent iterations, which the compiler
// cannot prove, and TENSOROPT_UNROLLED before a loop that gains by fewer branches.
#if defined(__GNUC__) && !defined(__clang__)
#define TENSOROPT_EACH_BY_ITSELF _Pragma("GCC ivdep")
#define TENSOROPT_UNROLLED _Pragma("GCC unroll 4")
#else
#define TENSOROPT_EACH_BY_ITSELF
#define TENSOROPT_UNROLLED
#endif
