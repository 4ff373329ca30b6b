// One node of a session that is several collectives.
#pragma once

#include <vector>

#include "combined.hpp"
#include "kernel.hpp"

namespace tensoropt {

class CombinedKernel final : public Kernel {
 public:
  CombinedKernel(const Api& api, Kind kind, Place place, const OrtKernelInfo* info);

 protected:
  // Inputs (token int64[1], x1, x2, ...), outputs (token_out, y1, y2, ...).
  void go(OrtKernelContext* context) override;

 private:
  void prepare_all(const OrtKernelInfo* info);

  // The collective of x of that number.
  Collective collective(std::size_t number) const;
  std::vector<Piece> pieces(OrtKernelContext* context, const ElementInfo& element) const;
  std::string describe(const ElementInfo& element, const std::vector<Piece>& pieces) const;

  Shape dims_;  // of AllGather and ReduceScatter, one for each x
};

// "CombinedAllReduce"
const char* combined_name(Kind kind);

}  // namespace tensoropt
