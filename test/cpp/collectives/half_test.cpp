// float16 and bfloat16 against the definition of IEEE 754, in double.
#include "half.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tensoropt {
namespace {

// The value of a binary format's bits, by its definition.
double value_of(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  const int exponent = int(bits >> fraction_bits) & top;
  const double fraction = double(bits & ((1u << fraction_bits) - 1)) / (1u << fraction_bits);
  const double sign = bits >> (exponent_bits + fraction_bits) ? -1 : 1;
  if (exponent == top)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, exponent - bias);
}

// Rounding to the nearest number of the format, ties to even. The number after the largest stands
// for infinity.
class Rounding {
 public:
  Rounding(int exponent_bits, int fraction_bits) {
    const std::uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
    for (std::uint32_t bits = 0; bits < infinity; ++bits)
      values_.push_back(value_of(bits, exponent_bits, fraction_bits));
    values_.push_back(2 * values_.back() - values_[values_.size() - 2]);
  }

  std::uint32_t bits_of(double magnitude) const {
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    if (above == values_.begin()) return 0;
    if (above == values_.end()) return std::uint32_t(values_.size() - 1);
    const auto high = std::uint32_t(above - values_.begin());
    const double up = values_[high] - magnitude, down = magnitude - values_[high - 1];
    if (up == down) return high % 2 == 0 ? high : high - 1;
    return up < down ? high : high - 1;
  }

  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
};

template <class Half>
void check_widening(int exponent_bits, int fraction_bits) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = value_of(bits, exponent_bits, fraction_bits);
    const float found = Half{std::uint16_t(bits)}.widen();
    if (std::isnan(expected)) EXPECT_TRUE(std::isnan(found)) << bits;
    else
      EXPECT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(float(expected)));
  }
}

template <class Half>
void check_rounding(int exponent_bits, int fraction_bits) {
  const Rounding rounding(exponent_bits, fraction_bits);
  std::vector<float> tried;
  for (const double value : rounding.values()) tried.push_back(float(value));
  for (std::size_t i = 1; i < rounding.values().size(); ++i) {  // ties, and their neighbours
    const auto middle = float((rounding.values()[i - 1] + rounding.values()[i]) / 2);
    tried.insert(tried.end(),
                 {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, HUGE_VALF)});
  }
  std::mt19937 random(20);
  for (int i = 0; i < 100'000; ++i)
    tried.push_back(std::bit_cast<float>(std::uint32_t(random()) & 0x7fffffff));
  for (const float value : tried) {
    if (std::isnan(value)) continue;
    const std::uint32_t expected = rounding.bits_of(value);
    EXPECT_EQ(Half::round(value).bits, expected) << value;
    EXPECT_EQ(Half::round(-value).bits, expected | 0x8000) << value;
  }
  EXPECT_TRUE(std::isnan(Half::round(std::numeric_limits<float>::quiet_NaN()).widen()));
}

TEST(Float16, Widens) { check_widening<Float16>(5, 10); }
TEST(Float16, Rounds) { check_rounding<Float16>(5, 10); }
TEST(BFloat16, Widens) { check_widening<BFloat16>(8, 7); }
TEST(BFloat16, Rounds) { check_rounding<BFloat16>(8, 7); }

}  // namespace
}  // namespace tensoropt
