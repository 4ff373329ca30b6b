// A stream beside the one on which ONNX Runtime computes, for transfers that go on meanwhile.
#pragma once

#include "cuda/cuda_api.hpp"

namespace tensoropt {

// A point in what a stream does, for another one to wait for.
class StreamEvent {
 public:
  StreamEvent();
  ~StreamEvent();
  StreamEvent(const StreamEvent&) = delete;

  void record(CudaStream stream);

  // What comes later on `stream` begins after it.
  void hold(CudaStream stream) const;

 private:
  CudaEvent event_ = nullptr;
};

class SideStream {
 public:
  SideStream();

  CudaStream stream() const { return stream_; }

  // What comes later on `other` begins after all that is here.
  void wait_for_all(CudaStream other);

  // Returns when all is done, or the device has failed.
  void finish() const;

 private:
  CudaStream stream_ = nullptr;
  StreamEvent last_;
};

// That of this process, on the device that is current at its first use; never destroyed.
SideStream& side_stream();

}  // namespace tensoropt
