// Convolutions of two spatial dimensions in float32, and their gradients.
#pragma once

#include "ort/custom_op.hpp"

namespace tensoropt {

// CPU only. Inputs x and w and the output are those of ONNX's Conv or ConvTranspose with one group
// and without bias. All attributes are required: `strides`, `dilations`, `pads` (leading padding
// only, two numbers) and `sizes`, the rows and columns of the output.
CustomOp convolution_op(bool transposed);

// `ConvWeightGradient`, CPU only: computes the gradient of the weights from x and the gradient of a
// Conv's result. Attributes as above; `sizes` are the rows and columns of the window.
CustomOp weight_gradient_op();

}  // namespace tensoropt
