// Plans of cuDNN for attention, of libtensoropt_cudnn.so, which is loaded at first use.
#pragma once

#include "cudnn/interface.hpp"

namespace tensoropt {

struct CudnnPlan {
  cudnn::Plan* plan = nullptr;
  std::size_t workspace_bytes = 0;

  void run(void* stream, void* const* tensors, void* workspace) const;
};

// Throws if the library cannot be loaded.
void require_cudnn();

// The plan of a form on a device, which is the current one. Made once, in about a second.
const CudnnPlan& cudnn_plan(const cudnn::Form& form, int device);

}  // namespace tensoropt
