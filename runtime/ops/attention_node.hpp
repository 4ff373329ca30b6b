// Attributes and operands that Attention and AttentionGradient share.
#pragma once

#include <string>

#include "cpu/attention.hpp"
#include "ort/custom_op.hpp"

namespace tensoropt {

// The kernel of a node: its options, without sizes and operands.
struct AttentionNode {
  Api api;
  std::string node;
  Attention options;
};

// An input of a run; `data` is null if an optional input is omitted.
struct AttentionInput {
  Element type = Element::Float32;
  Shape shape;
  const void* data = nullptr;
};

AttentionInput attention_input(const Api& api, OrtKernelContext* context, std::size_t index);

// Operands of a run: q, k and v from input `first` on, and bias, lengths and offset from
// `first_option` on. Throws if types or shapes do not match.
Attention read_attention(const AttentionNode& self, OrtKernelContext* context, std::size_t first,
                         std::size_t first_option);

// Throws if the tensor `name` is not of `type` and `shape`.
void check_tensor(const AttentionInput& input, const char* name, Element type, const Shape& shape);

// Shapes of q, k, v and y: [batch, heads, tokens, size].
Shape query_shape(const Attention& attention);
Shape key_shape(const Attention& attention);
Shape value_shape(const Attention& attention);
Shape result_shape(const Attention& attention);
Shape lse_shape(const Attention& attention);

// A custom op of the CPU with an AttentionNode as its kernel.
CustomOp attention_op_of(std::size_t (*inputs)(const CustomOp*),
                         std::size_t (*outputs)(const CustomOp*));

// Runs Body on the node of a kernel.
template <void (*Body)(const AttentionNode&, OrtKernelContext*)>
OrtStatus* compute_attention(void* kernel, OrtKernelContext* context) {
  const auto& self = *static_cast<AttentionNode*>(kernel);
  return guarded(self.api, [&] { located(self.node, [&] { Body(self, context); }); });
}

}  // namespace tensoropt
