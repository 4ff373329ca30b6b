// Convolutions of images in float32 and their transposes, as sums of shifted planes: nothing is
// unfolded where windows lie side by side, and only what one block of sums reads where not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tensoropt {

// Sizes of an image N x C x H x W.
struct Image {
  std::int64_t count, channels, rows, columns;
};

// How windows lie along one dimension; `begin` is the padding in front.
struct Slide {
  std::int64_t taps, stride, dilation, begin;
};

// A convolution of `x` (N x C) with `w` (M x C x taps) to `y` (N x M), or transposed: of `x` (N x
// M) with the same `w` to `y` (N x C).
struct Convolution {
  Image x, y;
  Slide down, across;
  bool transposed;
};

// What can be computed apart from each other, none of which takes long.
class ConvolutionParts {
 public:
  explicit ConvolutionParts(const Convolution& given);

  std::size_t count() const { return parts_.size(); }

  // Computes one part of `y`, all of whose elements belong to one of them.
  void run(std::size_t part, const float* x, const float* w, float* y) const;

 private:
  // A tap that an output meets: element (row, column) of a grid of outputs reads element
  // (row * step + down, column * step + across) of the image.
  struct Tap {
    std::int64_t down, across, place;  // `place` in the window
  };

  // Outputs of the same taps: first and step in `y`, how many there are, and steps in `x`.
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
