#include "collective_op.hpp"
#include "combined_kernel.hpp"
#include "ort/custom_op.hpp"

namespace tensoropt {
namespace {

constexpr int kRequired = 0, kVariadic = 2;  // OrtCustomOpInputOutputCharacteristic

// The token and a variadic list, which ONNX Runtime requires to be last.
std::size_t token_and_list(const CustomOp*) { return 2; }
int type(const CustomOp*, std::size_t index) { return index ? kUndefined : int(Element::Int64); }
int need(const CustomOp*, std::size_t index) { return index ? kVariadic : kRequired; }

template <Kind K>
const char* name(const CustomOp*) {
  return combined_name(K);
}

template <Kind K, Place P>
OrtStatus* create(const CustomOp*, const OrtApi* table, const OrtKernelInfo* info, void** kernel) {
  const Api api(table);
  return guarded(api, [&] { *kernel = static_cast<Kernel*>(new CombinedKernel(api, K, P, info)); });
}

template <Kind K>
OrtStatus* infer_shapes(const CustomOp*, OrtShapeInferContext* context) {
  const Api api(registered_api);
  return guarded(api, [&] {
    set_output(api, context, 0, int(Element::Int64), {1});
    Collective node{.kind = K, .group = api.integers(context, "group")};
    const auto dims = K == Kind::AllReduce ? Shape{} : api.integers(context, "dims");
    std::size_t inputs = 0;
    api.call(Slot::ShapeInferContext_GetInputCount, context, &inputs);
    for (std::size_t i = 1; i < inputs; ++i) {
      const auto [type, shape] = inferred_input(api, context, i);
      if (K != Kind::AllReduce) node.dim = i <= dims.size() ? dims[i - 1] : -1;
      if (is_known(shape)) set_output(api, context, i, type, node.output_shape(shape));
    }
  });
}

template <Kind K>
CustomOp op_of(Place place) {
  auto op = plain_op(place, token_and_list, token_and_list);
  op.GetName = name<K>;
  op.GetInputType = op.GetOutputType = type;
  op.GetInputCharacteristic = op.GetOutputCharacteristic = need;
  op.CreateKernelV2 = place == Place::Host ? create<K, Place::Host> : create<K, Place::Device>;
  run_kernel(op);
  op.InferOutputShapeFn = infer_shapes<K>;
  alias_first(op);  // the token output aliases the token input
  return op;
}

}  // namespace

CustomOp combined_op(Kind kind, Place place) {
  switch (kind) {
    case Kind::AllReduce: return op_of<Kind::AllReduce>(place);
    case Kind::AllGather: return op_of<Kind::AllGather>(place);
    default: return op_of<Kind::ReduceScatter>(place);
  }
}

}  // namespace tensoropt
