// Convolutions of images in float32 and their transposes, as sums of shifted planes. With stride 1
// nothing is unfolded, otherwise only the terms that one block of sums reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tensoropt {

// Sizes of an image N x C x H x W.
struct Image {
  std::int64_t count, channels, rows, columns;
};

// The window's geometry along one dimension; `begin` is the leading padding.
struct Slide {
  std::int64_t taps, stride, dilation, begin;
};

// A convolution of `x` (N x C) with `w` (M x C x taps) to `y` (N x M). Transposed: of `x` (N x M)
// with the same `w` to `y` (N x C).
struct Convolution {
  Image x, y;
  Slide down, across;
  bool transposed;
};

// Parts of a convolution that can be computed independently, each in a short time.
class ConvolutionParts {
 public:
  explicit ConvolutionParts(const Convolution& given);

  std::size_t count() const { return parts_.size(); }

  // Computes one part of `y`; every element of `y` belongs to exactly one part.
  void run(std::size_t part, const float* x, const float* w, float* y) const;

 private:
  // A tap that contributes to an output: element (row, column) of a grid of outputs reads element
  // (row * step + down, column * step + across) of the image.
  struct Tap {
    std::int64_t down, across, place;  // `place`: index in the window
  };

  // Outputs with the same taps: first index and step in `y`, their number, and steps in `x`.
  struct Grid {
    std::int64_t row, column, row_step, column_step, rows, columns, down_step, across_step;
    std::vector<Tap> taps;
  };

  // Rows `from` to `end` of a grid in images `first` to `last`.
  struct Part {
    const Grid* grid;
    std::int64_t first, last, from, end;
  };

  class Worker;

  void add_grids();
  void add_parts(const Grid& grid);

  Convolution given_;
  std::vector<Grid> grids_;
  std::vector<Part> parts_;
};

}  // namespace tensoropt
