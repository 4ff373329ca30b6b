#include "gemm_op.hpp"

#include "collective.hpp"
#include "cpu/float_array.hpp"
#include "cpu/gemm.hpp"
#include "element.hpp"

namespace tensoropt {
namespace {

struct GemmNode {
  Api api;
  std::string node;
  bool transposes_a, transposes_b;
};

template <class Source>
bool flag(const Api& api, Source* source, const char* name) {
  return api.integer(source, name) != 0;
}

OrtStatus* create(const CustomOp*, const OrtApi* table, const OrtKernelInfo* info, void** kernel) {
  const Api api(table);
  return guarded(api, [&] {
    const auto node = "Gemm node '" + api.node_name(info) + "'";
    located(node, [&] {
      *kernel = new GemmNode{api, node, flag(api, info, "transA"), flag(api, info, "transB")};
    });
  });
}

// The left operand may be a stack of matrices, unless it is transposed.
Shape result_shape(bool transposes_a, bool transposes_b, const Shape& a, const Shape& b) {
  const bool fits = transposes_a ? a.size() == 2 : a.size() >= 2;
  if (!fits || b.size() != 2 || (transposes_a ? a[0] : a.back()) != b[transposes_b ? 1 : 0])
    throw Error("expected matrices with as many columns as rows, got: " + text_of(a) + " and " +
                text_of(b));
  Shape y = transposes_a ? Shape{a[1]} : Shape(a.begin(), a.end() - 1);
  y.push_back(b[transposes_b ? 0 : 1]);
  return y;
}

const float* bias_of(const Api& api, OrtKernelContext* context, std::int64_t columns) {
  const auto* value = api.input_count(context) > 2 ? api.input(context, 2) : nullptr;
  if (!value) return nullptr;
  const auto shape = api.type_and_shape(value).second;
  if (shape != Shape{columns})
    throw Error("expected a bias of " + text_of(Shape{columns}) + ", got: " + text_of(shape));
  return static_cast<const float*>(api.data(value));
}

void multiply(const GemmNode& self, OrtKernelContext* context) {
  const auto& api = self.api;
  const auto *a = api.input(context, 0), *b = api.input(context, 1);
  const auto a_shape = api.type_and_shape(a).second;
  const auto y_shape =
      result_shape(self.transposes_a, self.transposes_b, a_shape, api.type_and_shape(b).second);
  const auto columns = y_shape.back();
  const Gemm gemm{count_of(Shape(y_shape.begin(), y_shape.end() - 1)),
                  std::size_t(self.transposes_a ? a_shape.front() : a_shape.back()),
                  std::size_t(columns),
                  static_cast<const float*>(api.data(a)),
                  static_cast<const float*>(api.data(b)),
                  bias_of(api, context, columns),
                  self.transposes_a,
                  self.transposes_b,
                  static_cast<float*>(api.output(context, 0, y_shape))};
  const FloatArray packed(gemm.packed_size());
  for (std::size_t column = 0; column < gemm.columns; column += GemmBlock::kColumns)
    // Sums of no terms are 0, or the bias.
    for (std::size_t term = 0; term == 0 || term < gemm.depth; term += GemmBlock::kTerms) {
      const GemmBlock block(gemm, column, term, packed.data());
      api.parallel(context, block.packed_parts(), [&](std::size_t part) { block.pack(part); });
      api.parallel(context, block.chunks(), [&](std::size_t chunk) { block.sum(chunk); });
    }
}

OrtStatus* compute(void* kernel, OrtKernelContext* context) {
  const auto& self = *static_cast<GemmNode*>(kernel);
  return guarded(self.api, [&] { located(self.node, [&] { multiply(self, context); }); });
}

OrtStatus* infer_result(const CustomOp*, OrtShapeInferContext* context) {
  const Api api(registered_api);
  return guarded(api, [&] {
    const auto a = inferred_input(api, context, 0).second;
    const auto b = inferred_input(api, context, 1).second;
    if (is_known(a) && is_known(b))
      set_output(api, context, 0, int(Element::Float32),
                 result_shape(flag(api, context, "transA"), flag(api, context, "transB"), a, b));
  });
}

}  // namespace

CustomOp gemm_op() {
  auto op = plain_op(
      Place::Host, [](const CustomOp*) -> std::size_t { return 3; },
      [](const CustomOp*) -> std::size_t { return 1; });
  op.GetName = [](const CustomOp*) { return "Gemm"; };
  op.GetInputType =
      op.GetOutputType = [](const CustomOp*, std::size_t) { return int(Element::Float32); };
  op.GetInputCharacteristic = [](const CustomOp*, std::size_t index) {
    return index > 1 ? kOptional : kRequired;
  };
  op.CreateKernelV2 = create;
  op.KernelDestroy = [](void* kernel) { delete static_cast<GemmNode*>(kernel); };
  op.KernelComputeV2 = compute;
  op.InferOutputShapeFn = infer_result;
  return op;
}

}  // namespace tensoropt
