// Functions compiled for several generations of processors, of which the loader takes the best.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && __GNUC__ >= 12 && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TENSOROPT_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TENSOROPT_CLONES
#endif

// What is to be compiled with its caller's instructions must be part of it.
#define TENSOROPT_INLINE inline __attribute__((always_inline))
