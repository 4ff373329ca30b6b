// Temporary memory of kernels.
#pragma once

#include <cstddef>

namespace tensoropt {

// Floats aligned to cache lines, not initialised. A thread keeps some memory for its next arrays:
// mapping the pages of new memory would take a good part of the time of a short part.
class FloatArray {
 public:
  explicit FloatArray(std::size_t count);
  ~FloatArray();
  FloatArray(const FloatArray&) = delete;

  float* data() const { return data_; }

 private:
  float* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace tensoropt
