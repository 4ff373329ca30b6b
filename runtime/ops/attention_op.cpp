#include "attention_op.hpp"

#include "attention_node.hpp"
#include "cpu/attention_gradient.hpp"

namespace tensoropt {
namespace {

void attend(const AttentionNode& self, OrtKernelContext* context) {
  const auto attention = read_attention(self, context, 0, 3);
  auto* y = self.api.output(context, 0, result_shape(attention));
  float* lse = nullptr;
  if (self.api.output_count(context) > 1)
    lse = static_cast<float*>(self.api.output(context, 1, lse_shape(attention)));
  const AttentionParts parts(attention, y, lse);
  self.api.parallel(context, parts.count(), [&](std::size_t part) { parts.run(part); });
}

void* bias_gradient(const AttentionNode& self, OrtKernelContext* context,
                    const Attention& attention) {
  if (self.api.output_count(context) < 4) return nullptr;
  const auto& sizes = attention.bias_sizes;
  const Shape shape = {std::int64_t(sizes[0]), std::int64_t(sizes[1]), std::int64_t(sizes[2]),
                       std::int64_t(attention.keys)};
  auto* dbias = self.api.output(context, 3, shape);
  if (dbias && !attention.bias) throw Error("dbias needs the input bias");
  return dbias;
}

void differentiate(const AttentionNode& self, OrtKernelContext* context) {
  const auto attention = read_attention(self, context, 1, 6);
  const auto input = [&](std::size_t index) { return attention_input(self.api, context, index); };
  const auto dy = input(0), y = input(4), lse = input(5);
  check_tensor(dy, "dy", attention.type, result_shape(attention));
  check_tensor(y, "y", attention.type, result_shape(attention));
  check_tensor(lse, "lse", Element::Float32, lse_shape(attention));
  const AttentionGradients gradients{dy.data,
                                     y.data,
                                     static_cast<const float*>(lse.data),
                                     self.api.output(context, 0, query_shape(attention)),
                                     self.api.output(context, 1, key_shape(attention)),
                                     self.api.output(context, 2, value_shape(attention)),
                                     bias_gradient(self, context, attention)};
  const AttentionGradientParts parts(attention, gradients);
  self.api.parallel(context, parts.count(), [&](std::size_t part) { parts.run(part); });
  self.api.parallel(context, parts.merges(), [&](std::size_t part) { parts.merge(part); });
  const BiasGradientParts bias(attention, gradients);
  self.api.parallel(context, bias.count(), [&](std::size_t part) { bias.run(part); });
}

OrtStatus* infer_results(const CustomOp*, OrtShapeInferContext* context) {
  const Api api(registered_api);
  return guarded(api, [&] {
    const auto [type, q] = inferred_input(api, context, 0);
    const auto v = inferred_input(api, context, 2).second;
    if (!is_known(q) || !is_known(v) || q.size() != 4 || v.size() != 4) return;
    set_output(api, context, 0, type, {q[0], q[1], q[2], v[3]});
    set_output(api, context, 1, int(Element::Float32), {q[0], q[1], q[2]});
  });
}

// Gradients have the types and shapes of their operands.
OrtStatus* infer_gradients(const CustomOp*, OrtShapeInferContext* context) {
  const Api api(registered_api);
  return guarded(api, [&] {
    std::size_t inputs = 0;
    api.call(Slot::ShapeInferContext_GetInputCount, context, &inputs);
    for (const auto& [input, output] : {std::pair{1, 0}, {2, 1}, {3, 2}, {6, 3}}) {
      if (std::size_t(input) >= inputs) continue;
      const auto [type, shape] = inferred_input(api, context, std::size_t(input));
      if (is_known(shape)) set_output(api, context, std::size_t(output), type, shape);
    }
  });
}

}  // namespace

CustomOp attention_op() {
  auto op = attention_op_of([](const CustomOp*) -> std::size_t { return 6; },
                            [](const CustomOp*) -> std::size_t { return 2; });
  op.GetName = [](const CustomOp*) { return "Attention"; };
  op.GetInputType = [](const CustomOp*, std::size_t index) {
    return index > 3 ? int(Element::Int64) : kUndefined;
  };
  op.GetInputCharacteristic = [](const CustomOp*, std::size_t index) {
    return index > 2 ? kOptional : kRequired;
  };
  op.GetOutputType = [](const CustomOp*, std::size_t index) {
    return index == 1 ? int(Element::Float32) : kUndefined;
  };
  op.GetOutputCharacteristic = [](const CustomOp*, std::size_t index) {
    return index > 0 ? kOptional : kRequired;
  };
  op.KernelComputeV2 = compute_attention<attend>;
  op.InferOutputShapeFn = infer_results;
  return op;
}

CustomOp attention_gradient_op() {
  auto op = attention_op_of([](const CustomOp*) -> std::size_t { return 9; },
                            [](const CustomOp*) -> std::size_t { return 4; });
  op.GetName = [](const CustomOp*) { return "AttentionGradient"; };
  op.GetInputType = [](const CustomOp*, std::size_t index) {
    return index > 6 ? int(Element::Int64) : index == 5 ? int(Element::Float32) : kUndefined;
  };
  op.GetInputCharacteristic = [](const CustomOp*, std::size_t index) {
    return index > 5 ? kOptional : kRequired;
  };
  op.GetOutputType = [](const CustomOp*, std::size_t) { return kUndefined; };
  op.GetOutputCharacteristic = [](const CustomOp*, std::size_t index) {
    return index > 2 ? kOptional : kRequired;
  };
  op.KernelComputeV2 = compute_attention<differentiate>;
  op.InferOutputShapeFn = infer_gradients;
  return op;
}

}  // namespace tensoropt
