// float16 and bfloat16 to and from float32, without branches so that loops over them vectorise.
#pragma once

#include <bit>
#include <cstdint>

namespace tensoropt {

struct BFloat16 {
  std::uint16_t bits;

  float widen() const { return std::bit_cast<float>(std::uint32_t(bits) << 16); }

  static BFloat16 round(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t nearest = (word + 0x7fff + ((word >> 16) & 1)) >> 16;
    const std::uint32_t quiet = (word >> 16) | 0x40;
    const bool nan = (word & 0x7fffffff) > 0x7f800000;
    return {std::uint16_t(nan ? quiet : nearest)};
  }
};

struct Float16 {
  std::uint16_t bits;

  // Shifts exponent and mantissa into place and rebiases by a multiplication, which also normalises
  // subnormals. Infinities and NaN only need their exponent filled up.
  float widen() const {
    const std::uint32_t magnitude = std::uint32_t(bits & 0x7fff) << 13;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    const std::uint32_t special = magnitude >= 0x0f800000 ? 0x7f800000 : 0;
    const std::uint32_t sign = std::uint32_t(bits & 0x8000) << 16;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
  }

  // Subnormal results: adding one half makes the FPU round at the last place of a float16.
  static Float16 round(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = word & 0x7fffffff;
    const std::uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000;
    const std::uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    std::uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
    result = magnitude >= 0x47800000 ? special : result;
    return {std::uint16_t(result | ((word >> 16) & 0x8000))};
  }
};

}  // namespace tensoropt
