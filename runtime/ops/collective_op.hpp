// The collectives as custom ops.
#pragma once

#include <string>

#include "element.hpp"
#include "ort/attributes.hpp"
#include "ort/custom_op.hpp"
#include "overlap/flights.hpp"

namespace tensoropt {

// A custom op with its collective. ONNX Runtime passes it to the op's functions.
struct CollectiveOp : CustomOp {
  Form form;
  Place place;
  std::string name;

  static const CollectiveOp& of(const CustomOp* op) {
    return *static_cast<const CollectiveOp*>(op);
  }

  // "AllReduce node 'name'", for the node of `info`.
  std::string node(const Api& api, const OrtKernelInfo* info) const {
    return name + " node '" + api.node_name(info) + "'";
  }
};

// A single collective: (x, token) -> (y, token).
CollectiveOp single_op(const Kind& kind, Place place);

// Several collectives of a kind fused: (token, x1, x2, ...) -> (token, y1, y2, ...).
CollectiveOp combined_op(const Kind& kind, Place place);

// An op of `form`, named after it with `end`. The caller sets its types, kernel and shape
// inference.
CollectiveOp op_of(Form form, const char* end, Place place, std::size_t (*inputs)(const CustomOp*),
                   std::size_t (*outputs)(const CustomOp*));

// An op with one int64 input and `Few` int64 outputs, each followed by a list of tensors. ONNX
// Runtime requires the list to be last.
template <std::size_t Few>
CollectiveOp list_op(Form form, const char* end, Place place) {
  auto op = op_of(
      form, end, place, [](const CustomOp*) -> std::size_t { return 2; },
      [](const CustomOp*) { return Few + 1; });
  op.GetInputType = [](const CustomOp*, std::size_t index) {
    return index < 1 ? int(Element::Int64) : kUndefined;
  };
  op.GetInputCharacteristic = [](const CustomOp*, std::size_t index) {
    return index < 1 ? kRequired : kVariadic;
  };
  op.GetOutputType = [](const CustomOp*, std::size_t index) {
    return index < Few ? int(Element::Int64) : kUndefined;
  };
  op.GetOutputCharacteristic = [](const CustomOp*, std::size_t index) {
    return index < Few ? kRequired : kVariadic;
  };
  return op;
}

// Sets the functions of `op` that create, run and destroy kernels of class `Made`.
template <class Made>
void run_kernel(CollectiveOp& op) {
  op.CreateKernelV2 = [](const CustomOp* own, const OrtApi* table, const OrtKernelInfo* info,
                         void** kernel) {
    const Api api(table);
    return guarded(api, [&] { *kernel = new Made(api, CollectiveOp::of(own), info); });
  };
  op.KernelDestroy = [](void* kernel) { delete static_cast<Made*>(kernel); };
  op.KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
    auto& self = *static_cast<Made*>(kernel);
    return guarded(self.api(), [&] { settling([&] { self.compute(context); }); });
  };
}

using Infer = void(const Api& api, OrtShapeInferContext* context, const Form& form);

// Lets `op` infer the types and shapes of its outputs by `Body`.
template <Infer* Body>
void infer_by(CollectiveOp& op) {
  op.InferOutputShapeFn = [](const CustomOp* own, OrtShapeInferContext* context) {
    const Api api(registered_api);
    return guarded(api, [&] { Body(api, context, CollectiveOp::of(own).form); });
  };
}

// The inputs of a node in shape inference.
std::size_t input_count(const Api& api, OrtShapeInferContext* context);

// Infers `Few` outputs of one int64 and then a y for each x of the inputs (token, x1, x2, ...).
template <std::size_t Few>
void infer_list(const Api& api, OrtShapeInferContext* context, const Form& form) {
  for (std::size_t i = 0; i < Few; ++i) set_output(api, context, i, int(Element::Int64), {1});
  auto node = read_shapes({api, context}, form);
  const auto dims = form.has_dims() ? api.integers(context, "dims") : Shape{};
  for (std::size_t i = 0, count = input_count(api, context) - 1; i < count; ++i) {
    const auto [type, shape] = inferred_input(api, context, i + 1);
    if (form.has_dims()) node.cut_dim = node.join_dim = i < dims.size() ? dims[i] : -1;
    if (is_known(shape)) set_output(api, context, i + Few, type, node.output_shape(shape));
  }
}

}  // namespace tensoropt
