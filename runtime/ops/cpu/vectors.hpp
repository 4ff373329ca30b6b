// Arithmetic on vectors of floats that the kernels of attention share. Every function is inlined
// into a function compiled for one generation of processors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "cpu/clones.hpp"

namespace tensoropt {

template <std::size_t Lanes>
struct Vectors {
  // NOLINTBEGIN(modernize-use-using): only a typedef takes the attribute everywhere
  typedef float Floats __attribute__((vector_size(Lanes * sizeof(float)), aligned(4), may_alias));
  typedef std::int32_t Integers
      __attribute__((vector_size(Lanes * sizeof(float)), aligned(4), may_alias));
  typedef std::int64_t Words
      __attribute__((vector_size(Lanes * sizeof(float)), aligned(8), may_alias));
  typedef std::uint64_t Naturals
      __attribute__((vector_size(Lanes * sizeof(float)), aligned(8), may_alias));
  // NOLINTEND(modernize-use-using)

  static TENSOROPT_INLINE Floats load(const float* from) {
    return *reinterpret_cast<const Floats*>(from);
  }
  static TENSOROPT_INLINE void store(float* to, Floats values) {
    *reinterpret_cast<Floats*>(to) = values;
  }
  static TENSOROPT_INLINE Floats all(float value) { return Floats{} + value; }

  static TENSOROPT_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }

  // 2 to the power of x, for x below 128; 0 below the smallest normal float. The relative error is
  // below 1e-7: an integer part of x is added to the exponent, and a minimax polynomial is the
  // power of the rest, which is at most 0.5.
  static TENSOROPT_INLINE Floats power_of_two(Floats x) {
    const Floats shifted = x + kRound;
    const Floats rest = x - (shifted - kRound);
    Floats power = all(kPower[6]);
    for (std::size_t i = 6; i-- > 0;) power = power * rest + kPower[i];
    const Integers scaled =
        reinterpret_cast<Integers>(power) + (reinterpret_cast<Integers>(shifted) << kMantissaBits);
    return x < kLeastExponent ? Floats{} : reinterpret_cast<Floats>(scaled);
  }

  // The hyperbolic tangent: an odd polynomial near 0, where the quotient would cancel.
  static TENSOROPT_INLINE Floats tangent(Floats x) {
    const Floats size = x < 0.0f ? -x : x;
    const Floats power = power_of_two(-2 * kLog2E * size);
    const Floats ratio = (1.0f - power) / (1.0f + power);
    const Floats square = x * x;
    Floats sum = all(kTangent[4]);
    for (std::size_t i = 4; i-- > 0;) sum = sum * square + kTangent[i];
    const Floats far = x < 0.0f ? -ratio : ratio;
    return size < 0.625f ? x + x * square * sum : far;
  }

  // `value` where x (x + mix) modulo 2^64 exceeds `threshold`, else 0, for the products x of `seed`
  // and one of the seeds `from` per lane.
  static TENSOROPT_INLINE Floats where_drawn(const std::int64_t* from, std::uint64_t seed,
                                             std::uint64_t mix, std::int64_t threshold,
                                             float value) {
    const Integers mask =
        halved(is_drawn(from, seed, mix, threshold),
               is_drawn(from + Lanes / 2, seed, mix, threshold), std::make_index_sequence<Lanes>());
    return reinterpret_cast<Floats>(mask & reinterpret_cast<Integers>(all(value)));
  }

  // Transposes a square: each step moves one bit of the row's number into the column's.
  static TENSOROPT_INLINE void transpose(Floats* rows) {
    for (std::size_t step = 1; step < Lanes; step *= 2) {
      Floats next[Lanes];
      for (std::size_t i = 0; i < Lanes / 2; ++i) {
        next[2 * i] = woven<0>(rows[i], rows[i + Lanes / 2], std::make_index_sequence<Lanes>());
        next[2 * i + 1] =
            woven<Lanes / 2>(rows[i], rows[i + Lanes / 2], std::make_index_sequence<Lanes>());
      }
      for (std::size_t i = 0; i < Lanes; ++i) rows[i] = next[i];
    }
  }

 private:
  static constexpr float kLog2E = 1.44269504f;
  static constexpr float kRound = 0x1.8p23f;  // added to a float, it leaves an integer
  static constexpr int kMantissaBits = 23;
  static constexpr float kLeastExponent = -126;
  static constexpr std::array<float, 7> kPower = {1.0f,           0x1.62e43p-1f,  0x1.ebfbdap-3f,
                                                  0x1.c6aed4p-5f, 0x1.3b2dbcp-7f, 0x1.5f456ap-10f,
                                                  0x1.41d334p-13f};
  // Cephes' tanhf.
  static constexpr std::array<float, 5> kTangent = {-3.33332819422e-1f, 1.33314422036e-1f,
                                                    -5.37397155531e-2f, 2.06390887954e-2f,
                                                    -5.70498872745e-3f};

  // All bits of the lanes, Lanes / 2 of them, with a hash that exceeds the threshold.
  static TENSOROPT_INLINE Integers is_drawn(const std::int64_t* from, std::uint64_t seed,
                                            std::uint64_t mix, std::int64_t threshold) {
    const Naturals x = *reinterpret_cast<const Naturals*>(from) * seed;
    return reinterpret_cast<Integers>(reinterpret_cast<Words>(x * (x + mix)) > threshold);
  }

  // Every other lane of a and b.
  template <std::size_t... I>
  static TENSOROPT_INLINE Integers halved(Integers a, Integers b, std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b, int(2 * I)...);
  }

  // Lanes of a and b in turns, from lane `First` on.
  template <std::size_t First, std::size_t... I>
  static TENSOROPT_INLINE Floats woven(Floats a, Floats b, std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b, int(I % 2 * Lanes + First + I / 2)...);
  }
};

// The vectors of three generations of processors, and the rows of a block of sums that fit into the
// registers with three vectors each.
struct Wide {
  using V = Vectors<16>;
  static constexpr std::size_t kLanes = 16, kRows = 8;
};
struct Fused {
  using V = Vectors<8>;
  static constexpr std::size_t kLanes = 8, kRows = 4;
};
struct Plain {
  using V = Vectors<4>;
  static constexpr std::size_t kLanes = 4, kRows = 4;
};

template <class Job>
TENSOROPT_WIDE void run_wide(const Job& job) {
  job.template run<Wide>();
}

template <class Job>
TENSOROPT_FUSED void run_fused(const Job& job) {
  job.template run<Fused>();
}

// Unit tests limit the vectors.
#ifndef TENSOROPT_MOST_LANES
#define TENSOROPT_MOST_LANES 16
#endif

// Runs `job` with the best vectors of this processor.
template <class Job>
void run_on_vectors(const Job& job) {
  static const bool is_wide = TENSOROPT_MOST_LANES >= Wide::kLanes && TENSOROPT_HAS_WIDE;
  static const bool is_fused = TENSOROPT_MOST_LANES >= Fused::kLanes && TENSOROPT_HAS_FUSED;
  if (is_wide) run_wide(job);
  else if (is_fused) run_fused(job);
  else job.template run<Plain>();
}

// Finds the number of floats of these vectors.
struct LanesJob {
  std::size_t& lanes;

  template <class Unit>
  void run() const {
    lanes = Unit::kLanes;
  }
};

}  // namespace tensoropt
