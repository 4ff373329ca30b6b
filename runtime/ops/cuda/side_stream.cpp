#include "cuda/side_stream.hpp"

namespace tensoropt {
namespace {

constexpr unsigned kDisableTiming = 2;  // cudaEventDisableTiming
constexpr unsigned kNonBlocking = 1;    // cudaStreamNonBlocking
constexpr unsigned kNoFlags = 0;

}  // namespace

StreamEvent::StreamEvent() {
  check_cuda("cudaEventCreateWithFlags", cuda().cudaEventCreateWithFlags(&event_, kDisableTiming));
}

StreamEvent::~StreamEvent() { cuda().cudaEventDestroy(event_); }

void StreamEvent::record(CudaStream stream) {
  check_cuda("cudaEventRecord", cuda().cudaEventRecord(event_, stream));
}

void StreamEvent::hold(CudaStream stream) const {
  check_cuda("cudaStreamWaitEvent", cuda().cudaStreamWaitEvent(stream, event_, kNoFlags));
}

SideStream::SideStream() {
  check_cuda("cudaStreamCreateWithFlags", cuda().cudaStreamCreateWithFlags(&stream_, kNonBlocking));
}

void SideStream::wait_for_all(CudaStream other) {
  last_.record(stream_);
  last_.hold(other);
}

void SideStream::finish() const {
  if (cuda().cudaStreamSynchronize(stream_) != 0) cuda().cudaGetLastError();
}

SideStream& side_stream() {
  static auto& stream = *new SideStream;
  return stream;
}

}  // namespace tensoropt
