// A second stream besides ONNX Runtime's, for transfers that overlap with compute.
#pragma once

#include "cuda/cuda_api.hpp"

namespace tensoropt {

// A point in a stream that another stream can wait for.
class StreamEvent {
 public:
  StreamEvent();
  ~StreamEvent();
  StreamEvent(const StreamEvent&) = delete;

  void record(CudaStream stream);

  // Later work on `stream` starts after the event.
  void hold(CudaStream stream) const;

 private:
  CudaEvent event_ = nullptr;
};

class SideStream {
 public:
  SideStream();

  CudaStream stream() const { return stream_; }

  // Later work on `other` starts after all work on this stream.
  void wait_for_all(CudaStream other);

  // Returns when all work is done, or the device has failed.
  void finish() const;

 private:
  CudaStream stream_ = nullptr;
  StreamEvent last_;
};

// The side stream of this process, on the device that is current at its first use; never destroyed.
SideStream& side_stream();

}  // namespace tensoropt
