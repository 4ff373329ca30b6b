// The gradient of a convolution with respect to its weights, in float32: for each weight, the sum
// over all windows of its input element times dy.
#pragma once

#include <cstddef>
#include <vector>

#include "cpu/convolution.hpp"

namespace tensoropt {

// Computes dw from x and dy for a convolution of `x` with weights w to `y` (not transposed). Images
// are first laid out channels-last, padded with zeros: then the elements that a row of weights
// reads are contiguous, and neighbouring pixels share most of them.
class WeightGradient {
 public:
  explicit WeightGradient(const Convolution& given);

  // The floats needed for all laid-out images, the number of images, and the layout of one image.
  std::size_t laid_size() const;
  std::size_t images() const { return std::size_t(given_.x.count); }
  void lay(std::size_t image, const float* x, float* laid) const;

  // Number of parts that can be computed independently: some channels of dy each.
  std::size_t parts() const;
  void run(std::size_t part, const float* laid, const float* dy, float* dw) const;

 private:
  // Geometry along one dimension. Of the laid-out image: its size, and its steps per output pixel
  // and per tap. Of `x`: the position of element 0, and the stride to the next element.
  struct Axis {
    std::int64_t size, step, tap, begin, stride;
  };

  // Adjacent weights that read adjacent elements, from `offset` on; all runs have one length.
  struct Run {
    std::int64_t offset, length;
  };

  class Worker;

  static Axis axis_of(const Slide& slide, std::int64_t outputs);
  std::int64_t image_size() const { return down_.size * across_.size * given_.x.channels; }

  Convolution given_;
  Axis down_, across_;
  std::vector<Run> runs_;
};

}  // namespace tensoropt
