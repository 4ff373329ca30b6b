// A node that waits for a collective that another one has started.
#pragma once

#include "ort/custom_op.hpp"
#include "overlap/start_kernel.hpp"

namespace tensoropt {

class WaitKernel {
 public:
  WaitKernel(const Api& api, Startable what, Place place, const OrtKernelInfo* info);

  // Inputs (handle, y1, ..., and where the transfer reads them: x1, ...), outputs (z1, ...), which
  // have the memory of y where they can.
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

// Lets `op` run its kernel, a `WaitKernel` that it has created, and end it.
void run_wait_kernel(CustomOp& op);

}  // namespace tensoropt
