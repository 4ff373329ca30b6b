// Kernels of nodes with lists of tensors: several collectives fused.
#pragma once

#include <vector>

#include "combined.hpp"
#include "kernel.hpp"

namespace tensoropt {

class CombinedKernel : public Kernel {
 public:
  CombinedKernel(const Api& api, Kind kind, Place place, const OrtKernelInfo* info);

 protected:
  // `name` of the operator. If `combined` is false, the node is a single collective.
  CombinedKernel(const Api& api, Kind kind, bool combined, const std::string& name, Place place,
                 const OrtKernelInfo* info);

  // Inputs (token int64[1], x1, x2, ...), outputs (token_out, y1, y2, ...).
  void go(OrtKernelContext* context) override;

  // The type of all inputs after the token.
  const ElementInfo& element(OrtKernelContext* context) const;

  // Every x as a piece; y is not set.
  std::vector<Piece> pieces(OrtKernelContext* context, const ElementInfo& element) const;

  std::string describe(const ElementInfo& element, const std::vector<Piece>& pieces) const;

 private:
  void prepare_all(const OrtKernelInfo* info, bool combined);

  // The collective of x with this number.
  Collective collective(std::size_t number) const;

  bool has_dims_ = false;  // combined, of a kind with a dimension
  Shape dims_;             // one per x
};

// Total bytes of all x.
std::size_t bytes_of(const std::vector<Piece>& pieces, const ElementInfo& element);

// "CombinedAllReduce"
const char* combined_name(Kind kind);

}  // namespace tensoropt
