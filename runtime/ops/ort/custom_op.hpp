// Functions shared by the custom ops of this library.
#pragma once

#include "ort/ort_api.hpp"

namespace tensoropt {

// The interface of registration, which shape inference needs but is not passed.
extern const OrtApi* registered_api;

// The interface of version kStatsApiVersion, null if ONNX Runtime is older.
extern const OrtApi* newer_api;

// OrtCustomOpInputOutputCharacteristic
inline constexpr int kRequired = 0, kOptional = 1, kVariadic = 2;

// OrtMemType
inline constexpr int kDefaultMemory = 0, kHostMemory = -2;

// The memory of a kernel's tensors, which selects the transport.
enum class Place { Host, Device };

// A custom op of the CPU (of CUDA on a device), version 1 and all later versions of its domain,
// with the given number of inputs and outputs, all required. The caller sets its name, types,
// kernel and shape inference.
CustomOp plain_op(Place place, std::size_t (*inputs)(const CustomOp*),
                  std::size_t (*outputs)(const CustomOp*));

// Release function of alias maps; does nothing, as their lists are static.
void keep_aliases(int* inputs, int* outputs);

// Lets output `Out` alias input `In`.
template <int In, int Out>
void alias(CustomOp& op) {
  op.GetAliasMap = [](int** inputs, int** outputs) -> std::size_t {
    static int in = In, out = Out;
    *inputs = &in;
    *outputs = &out;
    return 1;
  };
  op.ReleaseAliasMap = keep_aliases;
}

// Runs `body`; prefixes its errors with `node`.
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

// True if `shape` has a rank and sizes: ONNX Runtime shows a tensor of unknown rank as a scalar,
// and would take -1 as a size.
bool is_known(const Shape& shape);

}  // namespace tensoropt
