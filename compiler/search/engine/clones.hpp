// One build serves old and new processors: the loader picks the clone. It does so before a
// sanitizer is initialised, so builds with a sanitizer have no clones.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TENSOROPT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TENSOROPT_CLONES
#endif

// Functions that a clone calls must be inlined into it.
#if defined(__GNUC__)
#define TENSOROPT_INLINE inline __attribute__((always_inline))
#else
#define TENSOROPT_INLINE inline
#endif
