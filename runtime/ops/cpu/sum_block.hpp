// A block of sums of products that stays in registers: the inner loop of all matrix products.
#pragma once

#include <cstddef>

#include "cpu/vectors.hpp"

namespace tensoropt {

constexpr std::size_t divided_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit;
}

constexpr std::size_t rounded_up(std::size_t count, std::size_t unit) {
  return divided_up(count, unit) * unit;
}

// The operands of c[r][x] = sum over i of a(r, i) * b[i][x], with r below `rows`, i below `depth`
// and x below `lanes`.
struct Product {
  const float* a;
  std::size_t a_pitch;
  const float* b;
  std::size_t b_pitch;
  float* c;
  std::size_t c_pitch;
  std::size_t rows, depth, lanes;
};

enum class Start { Zero, Row, Sum, Decayed };

// The sums of Unit::kRows rows and `Count` vectors. a(r, i) is a[i][r] if `Transposed`, and a[r][i]
// otherwise. Sums of all rows start with `row`, or with c, after c[r][x] was multiplied by row[x]
// if it has decayed.
template <class Unit, std::size_t Count, bool Transposed, Start From>
TENSOROPT_INLINE void sum_block(const Product& product, const float* a, const float* b, float* c,
                                const float* row) {
  using V = typename Unit::V;
  constexpr std::size_t kRows = Unit::kRows, kLanes = Unit::kLanes;
  typename V::Floats sums[kRows][Count];
  for (std::size_t r = 0; r < kRows; ++r)
    for (std::size_t v = 0; v < Count; ++v) {
      sums[r][v] = typename V::Floats{};
      if constexpr (From == Start::Row) sums[r][v] = V::load(row + v * kLanes);
      else if constexpr (From != Start::Zero)
        sums[r][v] = V::load(c + r * product.c_pitch + v * kLanes);
      if constexpr (From == Start::Decayed) sums[r][v] *= V::load(row + v * kLanes);
    }
  TENSOROPT_UNROLLED
  for (std::size_t i = 0; i < product.depth; ++i) {
    typename V::Floats terms[Count];
    for (std::size_t v = 0; v < Count; ++v) terms[v] = V::load(b + v * kLanes);
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t v = 0; v < Count; ++v)
        sums[r][v] += a[Transposed ? r : r * product.a_pitch] * terms[v];
    a += Transposed ? product.a_pitch : 1;
    b += product.b_pitch;
  }
  for (std::size_t r = 0; r < kRows; ++r)
    for (std::size_t v = 0; v < Count; ++v)
      V::store(c + r * product.c_pitch + v * kLanes, sums[r][v]);
}

}  // namespace tensoropt
