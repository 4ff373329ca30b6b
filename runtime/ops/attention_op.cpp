#include "attention_op.hpp"

#include "attention_on_device.hpp"

namespace tensoropt {
namespace {

void attend(const AttentionNode& self, OrtKernelContext* context) {
  const auto attention = read_attention(self, context, 0, 3);
  auto* y = result(self, context, attention);
  const AttentionParts parts(attention, y, lse_result(self, context, attention));
  self.api.parallel(context, parts.count(), [&](std::size_t part) { parts.run(part); });
}

void differentiate(const AttentionNode& self, OrtKernelContext* context) {
  const auto attention = read_attention(self, context, 1, 6);
  const auto gradients = read_gradients(self, context, attention);
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

AttentionOp attention_op(Place place, Element type) {
  auto op = attention_op_of(
      place, type, [](const CustomOp*) -> std::size_t { return 8; },
      [](const CustomOp*) -> std::size_t { return 2; });
  op.GetName = [](const CustomOp*) { return "Attention"; };
  op.GetInputType = [](const CustomOp* self, std::size_t index) {
    return int(index > 3 ? Element::Int64 : AttentionOp::of(self).type);
  };
  op.GetInputCharacteristic = [](const CustomOp*, std::size_t index) {
    return index > 2 ? kOptional : kRequired;
  };
  op.GetInputMemoryType = [](const CustomOp*, std::size_t index) {
    return index > 3 ? kHostMemory : kDefaultMemory;
  };
  op.GetOutputType = [](const CustomOp* self, std::size_t index) {
    return int(index == 1 ? Element::Float32 : AttentionOp::of(self).type);
  };
  op.GetOutputCharacteristic = [](const CustomOp*, std::size_t index) {
    return index > 0 ? kOptional : kRequired;
  };
  op.KernelComputeV2 =
      place == Place::Host ? compute_attention<attend> : compute_attention<attend_on_device>;
  op.InferOutputShapeFn = infer_results;
  return op;
}

AttentionOp attention_gradient_op(Place place, Element type) {
  auto op = attention_op_of(
      place, type, [](const CustomOp*) -> std::size_t { return 11; },
      [](const CustomOp*) -> std::size_t { return 4; });
  op.GetName = [](const CustomOp*) { return "AttentionGradient"; };
  op.GetInputType = [](const CustomOp* self, std::size_t index) {
    if (index > 6) return int(Element::Int64);
    return int(index == 5 ? Element::Float32 : AttentionOp::of(self).type);
  };
  op.GetInputCharacteristic = [](const CustomOp*, std::size_t index) {
    return index > 5 ? kOptional : kRequired;
  };
  op.GetInputMemoryType = [](const CustomOp*, std::size_t index) {
    return index > 6 ? kHostMemory : kDefaultMemory;
  };
  op.GetOutputType = [](const CustomOp* self, std::size_t) {
    return int(AttentionOp::of(self).type);
  };
  op.GetOutputCharacteristic = [](const CustomOp*, std::size_t index) {
    return index > 2 ? kOptional : kRequired;
  };
  op.KernelComputeV2 = place == Place::Host ? compute_attention<differentiate>
                                            : compute_attention<differentiate_on_device>;
  op.InferOutputShapeFn = infer_gradients;
  return op;
}

}  // namespace tensoropt
