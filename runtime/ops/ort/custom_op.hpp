// What the custom ops of this library have in common.
#pragma once

#include "ort/ort_api.hpp"

namespace tensoropt {

// Shape inference comes with no interface of its own, so the one registered with is kept.
extern const OrtApi* registered_api;

// The interface of version kStatsApiVersion, null where ONNX Runtime is older.
extern const OrtApi* newer_api;

// Where a kernel's tensors lie, and so what moves them.
enum class Place { Host, Device };

// A custom op of the CPU (of CUDA on a device), version 1 and all later ones of its domain, with
// the given number of inputs and outputs, all required. Its name, types, kernel and shapes are for
// the caller to set.
CustomOp plain_op(Place place, std::size_t (*inputs)(const CustomOp*),
                  std::size_t (*outputs)(const CustomOp*));

// Gives output 0 the memory of input 0.
void alias_first(CustomOp& op);

// ONNX Runtime gives the lists of an alias map back to this; they are static.
void keep_aliases(int* inputs, int* outputs);

// Runs `body`; what it throws becomes an error that begins with `node`.
template <class Body>
void located(const std::string& node, Body body) {
  try {
    body();
  } catch (const std::exception& error) {
    throw Error(node + ": " + error.what());
  }
}

void set_output(const Api& api, OrtShapeInferContext* context, std::size_t index, int type,
                const Shape& shape);

// Type and shape of input `index` in shape inference; unknown dimensions are -1.
std::pair<int, Shape> inferred_input(const Api& api, OrtShapeInferContext* context,
                                     std::size_t index);

// Whether `shape` is one: ONNX Runtime shows a tensor of unknown rank as a scalar, and would take a
// -1 for a size.
bool is_known(const Shape& shape);

}  // namespace tensoropt
