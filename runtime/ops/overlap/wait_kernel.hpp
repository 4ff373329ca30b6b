// A node that waits for a collective started by another node.
#pragma once

#include "collective_op.hpp"

namespace tensoropt {

class WaitKernel {
 public:
  WaitKernel(const Api& api, const CollectiveOp& op, const OrtKernelInfo* info);

  // Inputs (handle, y1, ..., and x1, ... if the transfer reads them), outputs (z1, ...), which
  // alias y if possible.
  void compute(OrtKernelContext* context) const;

  const Api& api() const { return api_; }

 private:
  void check(OrtKernelContext* context, const Flight& flight, std::size_t count) const;
  void give(OrtKernelContext* context, std::size_t number) const;

  Api api_;
  Form form_;
  Place place_;
  std::string node_;
};

}  // namespace tensoropt
