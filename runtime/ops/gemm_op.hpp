// Products of matrices in float32.
#pragma once

#include "ort/custom_op.hpp"

namespace tensoropt {

// `Gemm`, CPU only: ONNX's Gemm of float32 matrices with `transA` and `transB`, without factors.
// The third input is optional, a number per column.
CustomOp gemm_op();

}  // namespace tensoropt
