// What the custom ops of this library have in common.
#pragma once

#include "ort_api.hpp"

namespace tensoropt {

// Shape inference comes with no interface of its own, so the one registered with is kept.
extern const OrtApi *registered_api;

// A custom op of the CPU, version 1 and all later ones of its domain, with the given number of
// inputs and outputs, all required. Its name, types, kernel and shapes are for the caller to set.
CustomOp plain_op(std::size_t (*inputs)(const CustomOp *), std::size_t (*outputs)(const CustomOp *));

void set_output(const Api &api, OrtShapeInferContext *context, std::size_t index, int type,
                const Shape &shape);

// Type and shape of input `index` in shape inference; unknown dimensions are -1.
std::pair<int, Shape> inferred_input(const Api &api, OrtShapeInferContext *context,
                                     std::size_t index);

// Whether `shape` is one: ONNX Runtime shows a tensor of unknown rank as a scalar, and would take a
// -1 for a size.
bool is_known(const Shape &shape);

}  // namespace tensoropt
