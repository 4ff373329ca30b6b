// A node that starts a collective, or several as one, which goes on while other nodes run.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "combined_kernel.hpp"
#include "cuda/side_stream.hpp"
#include "overlap/flights.hpp"

namespace tensoropt {

// What can go on beside other nodes: a kind of collective, alone or `combined`.
struct Startable {
  Kind kind;
  bool combined;

  std::string name() const { return combined ? combined_name(kind) : kind_name(kind); }

  // Whether the transfer works in y, so that x may be gone once it is started. Otherwise the wait
  // is given x too, which keeps it.
  constexpr bool is_in_place() const { return kind == Kind::AllReduce; }
};

class StartKernel final : public CombinedKernel {
 public:
  StartKernel(const Api& api, Startable what, Place place, const OrtKernelInfo* info);

  // Ends what a run has left under way: the memory that it works in may be gone next.
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

  // On the device: where ONNX Runtime's stream has made x, and where the results are there.
  struct Ends {
    StreamEvent begin, done;
  };

  Startable what_;
  std::atomic<bool> is_known_ = false;  // to its group
  std::unique_ptr<Ends> ends_;
};

}  // namespace tensoropt
