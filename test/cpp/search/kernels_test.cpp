// The loops over rows, compared with straightforward versions.
#include "kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "model.hpp"

namespace tensoropt::search {
namespace {

using Row = std::vector<double>;

// Lengths on both sides of every block and lane that the loops work in.
constexpr std::size_t kLengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 65};

Row random_row(std::size_t size) {
  static std::mt19937 random(1);
  Row row(size);
  for (double& value : row) value = random() % 8 == 0 ? kInfinity : double(random() % 100);
  return row;
}

TEST(Kernels, MinOne) {
  for (const std::size_t n : kLengths)
    for (const std::size_t values : {1, 2, 5}) {
      const std::size_t stride = n + 3;
      const Row a = random_row(values * stride), sum = random_row(values);
      Row expected(n, kInfinity), found(n);
      for (std::size_t v = 0; v < values; ++v)
        for (std::size_t x = 0; x < n; ++x)
          expected[x] = std::min(expected[x], a[v * stride + x] + sum[v]);
      min_one(found.data(), a.data(), stride, sum.data(), values, n);
      EXPECT_EQ(found, expected) << n << " entries, " << values << " values";
    }
}

TEST(Kernels, MinProduct) {
  for (const std::size_t m : {1, 3, 4, 5, 9})
    for (const std::size_t n : kLengths) {
      const std::size_t values = 3, stride_a = n + 1, stride_sum = m + 2;
      const Row a = random_row(values * stride_a), sum = random_row(values * stride_sum);
      Row expected(m * n, kInfinity), found(m * n);
      for (std::size_t v = 0; v < values; ++v)
        for (std::size_t r = 0; r < m; ++r)
          for (std::size_t x = 0; x < n; ++x)
            expected[r * n + x] =
                std::min(expected[r * n + x], a[v * stride_a + x] + sum[v * stride_sum + r]);
      min_product(found.data(), a.data(), stride_a, sum.data(), stride_sum, values, m, n);
      EXPECT_EQ(found, expected) << m << " x " << n;
    }
}

TEST(Kernels, MinTwo) {
  for (const std::size_t n : kLengths) {
    const std::size_t values = 4, stride_a = n, stride_b = n + 5;
    const Row a = random_row(values * stride_a), b = random_row(values * stride_b);
    const Row sum = random_row(values);
    Row expected(n, kInfinity), found(n);
    for (std::size_t v = 0; v < values; ++v)
      for (std::size_t x = 0; x < n; ++x)
        expected[x] = std::min(expected[x], a[v * stride_a + x] + b[v * stride_b + x] + sum[v]);
    min_two(found.data(), a.data(), stride_a, b.data(), stride_b, sum.data(), values, n);
    EXPECT_EQ(found, expected) << n;
  }
}

TEST(Kernels, Sums) {
  for (const std::size_t n : kLengths) {
    const Row a = random_row(n), b = random_row(n), spread = random_row(3 * n);
    Row added = b, strided = b, sum(n), plus(n);
    add_row(added.data(), a.data(), n);
    add_strided(strided.data(), spread.data(), 3, n);
    set_sum(sum.data(), a.data(), b.data(), 7, n);
    set_plus(plus.data(), a.data(), 7, n);
    for (std::size_t x = 0; x < n; ++x) {
      EXPECT_EQ(added[x], b[x] + a[x]);
      EXPECT_EQ(strided[x], b[x] + spread[3 * x]);
      EXPECT_EQ(sum[x], a[x] + b[x] + 7);
      EXPECT_EQ(plus[x], a[x] + 7);
    }
  }
}

TEST(Kernels, Minima) {
  for (const std::size_t n : kLengths) {
    const Row a = random_row(n), b = random_row(n), before = random_row(n);
    EXPECT_EQ(least(a.data(), n), *std::min_element(a.begin(), a.end()));
    Row lower = before, lowered = before;
    min_row(lower.data(), a.data(), n);
    const double low = lower_row(lowered.data(), a.data(), b.data(), 2, n);
    double expected_low = kInfinity;
    for (std::size_t x = 0; x < n; ++x) {
      EXPECT_EQ(lower[x], std::min(before[x], a[x]));
      EXPECT_EQ(lowered[x], std::min(before[x], a[x] + b[x] + 2));
      expected_low = std::min(expected_low, a[x] + b[x] + 2);
    }
    EXPECT_EQ(low, expected_low);
  }
}

}  // namespace
}  // namespace tensoropt::search
