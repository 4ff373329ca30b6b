// Kernels of attention next to plain loops, and powers of two next to the C library's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cpu/attention_kernels.hpp"

namespace tensoropt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> drawn(std::size_t count) {
  std::mt19937 generator;  // NOLINT(bugprone-random-generator-seed)
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (auto& value : values) value = normal(generator);
  return values;
}

// The difference of c to start[r][x] + the sum over i of a(r, i) * b[i][x].
float worst(const Product& product, bool transposed, const std::vector<float>& start) {
  double most = 0;
  for (std::size_t r = 0; r < product.rows; ++r)
    for (std::size_t x = 0; x < product.lanes; ++x) {
      double sum = start[r * product.c_pitch + x];
      for (std::size_t i = 0; i < product.depth; ++i)
        sum += double(product.a[transposed ? i * product.a_pitch + r : r * product.a_pitch + i]) *
               double(product.b[i * product.b_pitch + x]);
      most = std::max(most, std::abs(sum - double(product.c[r * product.c_pitch + x])));
    }
  return float(most);
}

TEST(Products, AreSums) {
  for (const std::size_t lanes : {16, 32, 48, 64, 80, 128})
    for (const std::size_t depth : {1, 7, 64}) {
      const std::size_t rows = 24, pitch = 130;
      const auto a = drawn(rows * pitch + 64 * pitch), b = drawn(64 * pitch);
      auto c = drawn(rows * pitch);
      const Product product{a.data(), pitch, b.data(), pitch, c.data(), pitch, rows, depth, lanes};
      multiply(product);
      EXPECT_LT(worst(product, false, std::vector<float>(rows * pitch)), 1e-4f);
      auto start = c;
      add_product(product);
      EXPECT_LT(worst(product, false, start), 1e-4f);
      start = c;
      add_transposed_product(product, nullptr);
      EXPECT_LT(worst(product, true, start), 1e-4f);
      start = c;
      const auto factors = drawn(lanes);
      for (std::size_t i = 0; i < rows * pitch; ++i)
        if (i % pitch < lanes) start[i] *= factors[i % pitch];
      add_transposed_product(product, factors.data());
      EXPECT_LT(worst(product, true, start), 1e-4f);
    }
}

TEST(Weights, ArePowersOfTwo) {
  constexpr std::size_t kKeys = 4096, kLanes = 16;
  std::vector<float> scores(kKeys * kLanes), maxima(kLanes), sums(kLanes), decays(kLanes);
  for (std::size_t i = 0; i < scores.size(); ++i)
    scores[i] = -125.9f * float(i) / float(scores.size());
  const auto start = scores;
  weigh({scores.data(), kLanes, kKeys, kLanes}, {maxima.data(), sums.data(), decays.data()});
  double most = 0;
  for (std::size_t i = 0; i < scores.size(); ++i)
    most = std::max(most, std::abs(double(scores[i]) / std::exp2(double(start[i])) - 1));
  EXPECT_LT(most, 1e-7);
}

TEST(Weights, OfNoKeysAreZero) {
  std::vector<float> scores(16, -kInfinity), maxima(16, -kInfinity), sums(16), decays(16);
  weigh({scores.data(), 16, 1, 16}, {maxima.data(), sums.data(), decays.data()});
  EXPECT_EQ(scores, std::vector<float>(16));
  EXPECT_EQ(sums, std::vector<float>(16));
  EXPECT_EQ(maxima, std::vector<float>(16, -kInfinity));
}

TEST(Weights, PassNaN) {
  std::vector<float> scores(16, std::nanf("")), maxima(16, -kInfinity), sums(16), decays(16);
  weigh({scores.data(), 16, 1, 16}, {maxima.data(), sums.data(), decays.data()});
  EXPECT_TRUE(std::isnan(scores[0]) && std::isnan(sums[15]));
}

TEST(Scores, AreCapped) {
  std::vector<float> scores(64), slopes(64);
  for (std::size_t i = 0; i < 64; ++i) scores[i] = (float(i) - 32) * 0.3f;
  const auto start = scores;
  cap_scores({scores.data(), 16, 4, 16}, 2.0f, slopes.data());
  for (std::size_t i = 0; i < 64; ++i) {
    const double tangent = std::tanh(double(start[i]) / 2);
    EXPECT_NEAR(scores[i], 2 * tangent, 2e-7);
    EXPECT_NEAR(slopes[i], 1 - tangent * tangent, 3e-7);
  }
}

TEST(Scores, AreMasked) {
  std::vector<float> scores(5 * 16), from(16, -100.0f), to(16, 100.0f);
  from[3] = 2, to[3] = 3, to[4] = -1;
  mask_scores({scores.data(), 16, 5, 16}, from.data(), to.data());
  for (std::size_t key = 0; key < 5; ++key)
    for (std::size_t lane = 0; lane < 16; ++lane) {
      const bool is_read = lane == 3 ? key == 2 || key == 3 : lane != 4;
      EXPECT_EQ(scores[key * 16 + lane], is_read ? 0.0f : -kInfinity);
    }
}

TEST(Factors, FollowFromSeeds) {
  constexpr std::size_t kKeys = 9, kLanes = 48;
  std::mt19937_64 generator;  // NOLINT(bugprone-random-generator-seed)
  std::vector<std::int64_t> rows(kLanes), keys(kKeys);
  for (auto& seed : rows) seed = std::int64_t(generator());
  for (auto& seed : keys) seed = std::int64_t(generator());
  const WeightDropout dropout{rows.data(), keys.data(), std::int64_t(generator()), -(1LL << 61),
                              1.5f};
  std::vector<float> factors(kKeys * kLanes);
  draw_factors({factors.data(), kLanes, kKeys, kLanes}, dropout);
  std::size_t kept = 0;
  for (std::size_t key = 0; key < kKeys; ++key)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto x = std::uint64_t(rows[lane]) * std::uint64_t(keys[key]);
      const bool is_kept = std::int64_t(x * (x + std::uint64_t(dropout.mix))) > dropout.threshold;
      EXPECT_EQ(factors[key * kLanes + lane], is_kept ? 1.5f : 0.0f);
      kept += is_kept;
    }
  EXPECT_NEAR(double(kept) / (kKeys * kLanes), 0.625, 0.1);
}

TEST(Squares, AreTransposed) {
  const auto from = drawn(32 * 50), factors = drawn(48);
  std::vector<float> to(48 * 40);
  transpose(from.data(), 50, 32, 48, to.data(), 40, factors.data());
  for (std::size_t r = 0; r < 32; ++r)
    for (std::size_t c = 0; c < 48; ++c) EXPECT_EQ(to[c * 40 + r], from[r * 50 + c] * factors[c]);
}

}  // namespace
}  // namespace tensoropt
