// Attention and its gradient on a GPU, by cuDNN.
#pragma once

#include "attention_node.hpp"

namespace tensoropt {

void attend_on_device(const AttentionNode& self, OrtKernelContext* context);
void differentiate_on_device(const AttentionNode& self, OrtKernelContext* context);

}  // namespace tensoropt
