// Attributes and operands that Attention and AttentionGradient share.
#pragma once

#include <string>

#include "cpu/attention_gradient.hpp"
#include "ort/arena.hpp"
#include "ort/custom_op.hpp"

namespace tensoropt {

// A custom op with the type of its elements, as each place has kernels for other types.
struct AttentionOp : CustomOp {
  Place place;
  Element type;

  static const AttentionOp& of(const CustomOp* op) { return *static_cast<const AttentionOp*>(op); }
};

// The kernel of a node: its options, without sizes and operands.
struct AttentionNode {
  Api api;
  std::string node;
  Attention options;
  std::shared_ptr<Arena> arena;  // on the device
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

// The results of Attention: y, and lse or null.
void* result(const AttentionNode& self, OrtKernelContext* context, const Attention& attention);
float* lse_result(const AttentionNode& self, OrtKernelContext* context, const Attention& attention);

// The other operands and the results of AttentionGradient. Throws as read_attention does.
AttentionGradients read_gradients(const AttentionNode& self, OrtKernelContext* context,
                                  const Attention& attention);

// A custom op with an AttentionNode as its kernel.
AttentionOp attention_op_of(Place place, Element type, std::size_t (*inputs)(const CustomOp*),
                            std::size_t (*outputs)(const CustomOp*));

// Runs Body on the node of a kernel.
template <void (*Body)(const AttentionNode&, OrtKernelContext*)>
OrtStatus* compute_attention(void* kernel, OrtKernelContext* context) {
  const auto& self = *static_cast<AttentionNode*>(kernel);
  return guarded(self.api, [&] { located(self.node, [&] { Body(self, context); }); });
}

}  // namespace tensoropt
