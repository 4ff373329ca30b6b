// One build serves old and new processors: the loader picks the clone. It does before a sanitizer
// is up, which the choice would need.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TENSOROPT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TENSOROPT_CLONES
#endif

// What a clone calls has to become a part of it.
#if defined(__GNUC__)
#define TENSOROPT_INLINE inline __attribute__((always_inline))
#else
#define TENSOROPT_INLINE inline
#endif
