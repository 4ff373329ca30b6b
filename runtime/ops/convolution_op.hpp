// Convolutions of two spatial dimensions in float32, and their gradients.
#pragma once

#include "ort/custom_op.hpp"

namespace tensoropt {

// Of the CPU alone. Inputs x and w and their output are those of ONNX's operators of one group,
// without bias. Attributes, all required: `strides`, `dilations`, `pads` (in front, two each) and
// `sizes`, the rows and columns of the output.
CustomOp convolution_op(bool transposed);

// `ConvWeightGradient`, of the CPU alone: from x and the gradient of a Conv's result that of its
// weights. Attributes as above; `sizes` are those of a window.
CustomOp weight_gradient_op();

}  // namespace tensoropt
