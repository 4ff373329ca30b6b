// Kernels of nodes with lists of tensors: several collectives fused.
#pragma once

#include <vector>

#include "combined.hpp"
#include "kernel.hpp"

namespace tensoropt {

class CombinedKernel : public Kernel {
 public:
  CombinedKernel(const Api& api, const CollectiveOp& op, const OrtKernelInfo* info);

 protected:
  // Inputs (token int64[1], x1, x2, ...), outputs (token_out, y1, y2, ...).
  void go(OrtKernelContext* context) override;

  // The type of all inputs after the token.
  const ElementInfo& element(OrtKernelContext* context) const;

  // Every x as a piece; y is not set.
  std::vector<Piece> pieces(OrtKernelContext* context, const ElementInfo& element) const;

  std::string describe(const ElementInfo& element, const std::vector<Piece>& pieces) const;

 private:
  // The collective of x with this number.
  Collective collective(std::size_t number) const;

  Shape dims_;  // one per x, if the form has dimensions
};

// Total bytes of all x.
std::size_t bytes_of(const std::vector<Piece>& pieces, const ElementInfo& element);

}  // namespace tensoropt
