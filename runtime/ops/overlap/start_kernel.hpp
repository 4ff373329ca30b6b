// A node that starts one or several fused collectives, which overlap with other nodes.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "combined_kernel.hpp"
#include "cuda/side_stream.hpp"
#include "overlap/flights.hpp"

namespace tensoropt {

class StartKernel final : public CombinedKernel {
 public:
  using CombinedKernel::CombinedKernel;

  // Ends transfers in flight: their memory may be freed next.
  ~StartKernel() override;

  void compute(OrtKernelContext* context) override;

 protected:
  // Inputs (token int64[1], x1, ...), outputs (token_out, handle int64[1], y1, ...).
  void go(OrtKernelContext* context) override;

 private:
  void set_outputs(OrtKernelContext* context, std::vector<Piece>& pieces) const;
  std::unique_ptr<Flight> started(OrtKernelContext* context, const ElementInfo& element,
                                  std::vector<Piece> pieces);
  std::unique_ptr<Flight> on_thread(const ElementInfo& element, std::vector<Piece> pieces);
  std::unique_ptr<Flight> on_side_stream(OrtKernelContext* context, const ElementInfo& element,
                                         const std::vector<Piece>& pieces);
  std::vector<const void*> reads(const std::vector<Piece>& pieces) const;
  bool is_in_place() const { return form_.kind->overlap == Overlap::InPlace; }

  // On the device: events after x is computed on ONNX Runtime's stream, and after the transfer.
  struct Ends {
    StreamEvent begin, done;
  };

  std::atomic<bool> is_known_ = false;  // the group has agreed
  std::unique_ptr<Ends> ends_;
};

}  // namespace tensoropt
