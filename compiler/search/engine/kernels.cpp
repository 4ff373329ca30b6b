#include "kernels.hpp"

#include <algorithm>
#include <cstring>

#include "clones.hpp"
#include "model.hpp"

namespace tensoropt::search {
namespace {

TENSOROPT_INLINE double smaller(double a, double b) { return b < a ? b : a; }

// Minima of B entries of a row, kept in registers.
template <std::size_t B>
TENSOROPT_INLINE void min_block(double* out, const double* a, std::size_t stride, const double* sum,
                                std::size_t values) {
  double low[B];
  for (std::size_t k = 0; k < B; ++k) low[k] = kInfinity;
  for (std::size_t v = 0; v < values; ++v)
    for (std::size_t k = 0; k < B; ++k) low[k] = smaller(low[k], a[v * stride + k] + sum[v]);
  for (std::size_t k = 0; k < B; ++k) out[k] = low[k];
}

// The last block is moved back to end with the row; the overlap is computed twice, with equal
// results.
template <std::size_t B>
TENSOROPT_INLINE void min_blocks(double* out, const double* a, std::size_t stride,
                                 const double* sum, std::size_t values, std::size_t n) {
  for (std::size_t x = 0; x + B <= n; x += B) min_block<B>(out + x, a + x, stride, sum, values);
  if (n % B != 0) min_block<B>(out + n - B, a + n - B, stride, sum, values);
}

// B doubles in a register, or in several.
template <std::size_t B>
struct Pack {
  // NOLINTNEXTLINE(modernize-use-using): only a typedef takes the attribute everywhere
  typedef double type __attribute__((vector_size(B * sizeof(double))));
};

// Minima of R outputs of B entries each.
template <std::size_t R, std::size_t B>
TENSOROPT_INLINE void min_tile(double* out, std::size_t n, const double* a, std::size_t stride_a,
                               const double* sum, std::size_t stride_sum, std::size_t values) {
  typename Pack<B>::type row, low[R];
  for (std::size_t r = 0; r < R; ++r) low[r] = typename Pack<B>::type{} + kInfinity;
  for (std::size_t v = 0; v < values; ++v, a += stride_a, sum += stride_sum) {
    std::memcpy(&row, a, sizeof row);
    for (std::size_t r = 0; r < R; ++r) {
      const auto total = row + sum[r];
      low[r] = total < low[r] ? total : low[r];
    }
  }
  for (std::size_t r = 0; r < R; ++r) std::memcpy(out + r * n, &low[r], sizeof low[r]);
}

// Blocks at the ends are moved back, as in `min_blocks`.
template <std::size_t R, std::size_t B>
TENSOROPT_INLINE void min_tiles(double* out, const double* a, std::size_t stride_a,
                                const double* sum, std::size_t stride_sum, std::size_t values,
                                std::size_t m, std::size_t n) {
  for (std::size_t o = 0; o < m; o += R) {
    const std::size_t r = std::min(o, m - R);
    for (std::size_t x = 0; x < n; x += B) {
      const std::size_t k = std::min(x, n - B);
      min_tile<R, B>(out + r * n + k, n, a + k, stride_a, sum + r, stride_sum, values);
    }
  }
}

}  // namespace

TENSOROPT_CLONES void min_one(double* out, const double* a, std::size_t stride, const double* sum,
                              std::size_t values, std::size_t n) {
  if (n >= 32) min_blocks<32>(out, a, stride, sum, values, n);
  else if (n >= 8) min_blocks<8>(out, a, stride, sum, values, n);
  else min_blocks<1>(out, a, stride, sum, values, n);
}

TENSOROPT_CLONES void min_product(double* out, const double* a, std::size_t stride_a,
                                  const double* sum, std::size_t stride_sum, std::size_t values,
                                  std::size_t m, std::size_t n) {
  if (m >= 4 && n >= 8) min_tiles<4, 8>(out, a, stride_a, sum, stride_sum, values, m, n);
  else if (n >= 8) min_tiles<1, 8>(out, a, stride_a, sum, stride_sum, values, m, n);
  else if (m >= 4) min_tiles<4, 1>(out, a, stride_a, sum, stride_sum, values, m, n);
  else min_tiles<1, 1>(out, a, stride_a, sum, stride_sum, values, m, n);
}

TENSOROPT_CLONES void min_two(double* out, const double* a, std::size_t stride_a, const double* b,
                              std::size_t stride_b, const double* sum, std::size_t values,
                              std::size_t n) {
  for (std::size_t x = 0; x < n; ++x) out[x] = kInfinity;
  for (std::size_t v = 0; v < values; ++v)
    for (std::size_t x = 0; x < n; ++x)
      out[x] = smaller(out[x], a[v * stride_a + x] + b[v * stride_b + x] + sum[v]);
}

TENSOROPT_CLONES void add_strided(double* into, const double* a, std::size_t stride,
                                  std::size_t n) {
  for (std::size_t v = 0; v < n; ++v) into[v] += a[v * stride];
}

TENSOROPT_CLONES void add_row(double* into, const double* a, std::size_t n) {
  for (std::size_t x = 0; x < n; ++x) into[x] += a[x];
}

TENSOROPT_CLONES void set_sum(double* into, const double* a, const double* b, double sum,
                              std::size_t n) {
  for (std::size_t x = 0; x < n; ++x) into[x] = a[x] + b[x] + sum;
}

TENSOROPT_CLONES void set_plus(double* into, const double* a, double sum, std::size_t n) {
  for (std::size_t x = 0; x < n; ++x) into[x] = a[x] + sum;
}

TENSOROPT_CLONES void min_row(double* into, const double* a, std::size_t n) {
  for (std::size_t x = 0; x < n; ++x) into[x] = smaller(into[x], a[x]);
}

TENSOROPT_CLONES double lower_row(double* into, const double* a, const double* b, double sum,
                                  std::size_t n) {
  double lane[8] = {kInfinity, kInfinity, kInfinity, kInfinity,
                    kInfinity, kInfinity, kInfinity, kInfinity};
  std::size_t x = 0;
  for (; x + 8 <= n; x += 8)
    for (std::size_t l = 0; l < 8; ++l) {
      const double total = a[x + l] + b[x + l] + sum;
      into[x + l] = smaller(into[x + l], total);
      lane[l] = smaller(lane[l], total);
    }
  for (; x < n; ++x) {
    const double total = a[x] + b[x] + sum;
    into[x] = smaller(into[x], total);
    lane[0] = smaller(lane[0], total);
  }
  return *std::min_element(lane, lane + 8);
}

TENSOROPT_CLONES double least(const double* a, std::size_t n) {
  double lane[8] = {kInfinity, kInfinity, kInfinity, kInfinity,
                    kInfinity, kInfinity, kInfinity, kInfinity};
  std::size_t x = 0;
  for (; x + 8 <= n; x += 8)
    for (std::size_t l = 0; l < 8; ++l) lane[l] = smaller(lane[l], a[x + l]);
  for (; x < n; ++x) lane[0] = smaller(lane[0], a[x]);
  return *std::min_element(lane, lane + 8);
}

}  // namespace tensoropt::search
