// The gradient of a convolution in its weights, in float32: sums over all windows of what a weight
// meets times what came of it.
#pragma once

#include <cstddef>
#include <vector>

#include "cpu/convolution.hpp"

namespace tensoropt {

// Of a convolution of `x` with weights w to `y` (not transposed), dw from x and dy. Images are laid
// out first, pixel by pixel with their channels side by side and zeros around them: then what a row
// of weights meets lies in one piece, and neighbouring pixels share most of it.
class WeightGradient {
 public:
  explicit WeightGradient(const Convolution& given);

  // How many floats the images take that are laid out, and how many images there are.
  std::size_t laid_size() const;
  std::size_t images() const { return std::size_t(given_.x.count); }
  void lay(std::size_t image, const float* x, float* laid) const;

  // What can be computed apart from each other: some channels of dy each.
  std::size_t parts() const;
  void run(std::size_t part, const float* laid, const float* dy, float* dw) const;

 private:
  // Along one dimension: of the laid image the size, the step from pixel to pixel and from tap to
  // tap; and where in `x` its element 0 lies and how far the next one is.
  struct Axis {
    std::int64_t size, step, tap, begin, stride;
  };

  // Weights side by side that meet what lies side by side, from `offset` on; all of one length.
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
