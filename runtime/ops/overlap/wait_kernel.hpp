// A node that waits for a collective started by another node.
#pragma once

#include "ort/custom_op.hpp"
#include "overlap/start_kernel.hpp"

namespace tensoropt {

class WaitKernel {
 public:
  WaitKernel(const Api& api, Startable what, Place place, const OrtKernelInfo* info);

  // Inputs (handle, y1, ..., and x1, ... if the transfer reads them), outputs (z1, ...), which
  // alias y if possible.
  void compute(OrtKernelContext* context) const;

  const Api& api() const { return api_; }

 private:
  void check(OrtKernelContext* context, const Flight& flight, std::size_t count) const;
  void give(OrtKernelContext* context, std::size_t number) const;

  Api api_;
  Startable what_;
  Place place_;
  std::string node_;
};

// Sets the functions of `op` that run and destroy a `WaitKernel`, which `op` has created.
void run_wait_kernel(CustomOp& op);

}  // namespace tensoropt
