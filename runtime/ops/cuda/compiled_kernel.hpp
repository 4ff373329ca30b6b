// Kernels that NVRTC compiles from source when a session is created, and the driver launches.
#pragma once

#include <string>

#include "cuda/cuda_api.hpp"

namespace tensoropt {

class CompiledKernel {
 public:
  // Compiles function `name` of `source` for `device`, which is the current one.
  CompiledKernel(const std::string& source, const char* name, int device);

  // Enqueues a run. `arguments` has the address of each argument.
  void launch(unsigned blocks, unsigned threads, void** arguments, CudaStream stream) const;

 private:
  void* function_ = nullptr;  // a CUkernel, which lives as long as the process
};

// The kernel of a source on a device. Made once, in about a tenth of a second.
const CompiledKernel& compiled_kernel(const std::string& source, const char* name, int device);

}  // namespace tensoropt
