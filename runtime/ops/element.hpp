// Element types by their ONNX number (TensorProto.DataType), which ONNX Runtime shares.
#pragma once

#include <cstddef>
#include <string>

#include "error.hpp"

namespace tensoropt {

enum class Element : int {
  Float32 = 1,
  UInt8 = 2,
  Int8 = 3,
  Int32 = 6,
  Int64 = 7,
  Bool = 9,
  Float16 = 10,
  Float64 = 11,
  BFloat16 = 16,
};

struct ElementInfo {
  Element type;
  const char* name;
  std::size_t bytes;
};

inline constexpr ElementInfo kElements[] = {
    {Element::Float32, "float32", 4},   {Element::UInt8, "uint8", 1},
    {Element::Int8, "int8", 1},         {Element::Int32, "int32", 4},
    {Element::Int64, "int64", 8},       {Element::Bool, "bool", 1},
    {Element::Float16, "float16", 2},   {Element::Float64, "float64", 8},
    {Element::BFloat16, "bfloat16", 2},
};

inline const ElementInfo& element_info(int onnx_type) {
  for (const auto& info : kElements)
    if (int(info.type) == onnx_type) return info;
  throw Error(
      "unsupported element type, expected one of float32, float16, bfloat16, float64, "
      "int32, int64, bool, int8, uint8, got: ONNX element type " +
      std::to_string(onnx_type));
}

}  // namespace tensoropt
