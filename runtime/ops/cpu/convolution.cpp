#include "cpu/convolution.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/vectors.hpp"

namespace tensoropt {
namespace {

constexpr std::size_t kSums = 6;  // channels of a block of sums
constexpr std::size_t kLanes = Wide::kLanes, kSlack = 4 * kLanes;
constexpr std::int64_t kOutputs = 256;  // outputs per part, if possible
constexpr std::size_t kDepth = 384;     // terms with rows that fit into a cache

// Vectors of a block: it fits into 32 registers, or into 16.
template <class Unit>
constexpr std::size_t kVectors = Unit::kLanes == kLanes ? 4 : 2;

// sums[m][p] = sum over k of w[m * stride + places[k]] * rows[k][p], for `count` values of p.
// Unless `fresh`, the result is added to the previous sums. Rows must be readable, and sums
// writable, up to a multiple of the widest vector.
struct Product {
  const float* w;
  std::size_t stride;
  const std::int64_t* places;
  const float* const* rows;
  std::size_t depth;
  float* sums;
  std::size_t pitch;
  std::size_t channels;  // at most kSums
  bool fresh;
};

template <class Unit, std::size_t Channels, std::size_t Vectors>
TENSOROPT_INLINE void block(const Product& given, std::size_t at) {
  using V = typename Unit::V;
  typename V::Floats sums[Channels][Vectors];
  for (std::size_t m = 0; m < Channels; ++m)
    for (std::size_t v = 0; v < Vectors; ++v)
      sums[m][v] = given.fresh ? typename V::Floats{}
                               : V::load(given.sums + m * given.pitch + at + v * Unit::kLanes);
  for (std::size_t k = 0; k < given.depth; ++k) {
    const float* row = given.rows[k] + at;
    const float* w = given.w + given.places[k];
    typename V::Floats x[Vectors];
    for (std::size_t v = 0; v < Vectors; ++v) x[v] = V::load(row + v * Unit::kLanes);
    for (std::size_t m = 0; m < Channels; ++m) {
      const float factor = w[m * given.stride];
      for (std::size_t v = 0; v < Vectors; ++v) sums[m][v] += factor * x[v];
    }
  }
  for (std::size_t m = 0; m < Channels; ++m)
    for (std::size_t v = 0; v < Vectors; ++v)
      V::store(given.sums + m * given.pitch + at + v * Unit::kLanes, sums[m][v]);
}

template <class Unit, std::size_t Channels>
TENSOROPT_INLINE void blocks(const Product& given, std::size_t count) {
  constexpr std::size_t kWidth = kVectors<Unit> * Unit::kLanes;
  std::size_t at = 0;
  for (; at + kWidth <= count; at += kWidth) block<Unit, Channels, kVectors<Unit>>(given, at);
  for (; at < count; at += Unit::kLanes) block<Unit, Channels, 1>(given, at);
}

struct ProductJob {
  const Product& product;
  std::size_t count;

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    switch (product.channels) {
      case 1: return blocks<Unit, 1>(product, count);
      case 2: return blocks<Unit, 2>(product, count);
      case 3: return blocks<Unit, 3>(product, count);
      case 4: return blocks<Unit, 4>(product, count);
      case 5: return blocks<Unit, 5>(product, count);
      default: return blocks<Unit, kSums>(product, count);
    }
  }
};

void multiply(const Product& product, std::size_t count) {
  run_on_vectors(ProductJob{product, count});
}

std::int64_t below(std::int64_t size, std::int64_t first, std::int64_t step) {
  return first >= size ? 0 : (size - first + step - 1) / step;
}

std::size_t whole(std::size_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

}  // namespace

// Computation of one part, with its own buffers.
class ConvolutionParts::Worker {
 public:
  Worker(const Convolution& given, const Part& part, const float* x, const float* w, float* y)
      : given_(given), part_(part), grid_(*part.grid), x_(x), w_(w), y_(y),
        height_(part.end - part.from), width_(grid_.columns) {}

  void run() {
    const bool shifts = grid_.down_step == 1 && grid_.across_step == 1 && width_ >= 16 &&
                        part_.last - part_.first == 1;
    if (shifts) lay_planes();
    const auto images = std::size_t(part_.last - part_.first);
    count_ = shifts ? std::size_t((height_ - 1) * pitch_ + width_)
                    : images * std::size_t(height_ * width_);
    if (!shifts) pitch_ = width_;
    sums_.resize(std::size_t(given_.y.channels) * whole(count_));
    const auto depth = std::size_t(given_.x.channels) * grid_.taps.size();
    for (std::size_t from = 0; from < depth; from += kDepth) {
      const auto end = std::min(depth, from + kDepth);
      shifts ? point(from, end) : unfold(from, end);
      add(from == 0);
    }
    write();
  }

 private:
  // Copies the image rows that the part reads, of every channel, with zeros around them.
  void lay_planes() {
    std::int64_t high = grid_.taps.empty() ? 0 : grid_.taps[0].down, low = high;
    std::int64_t right = grid_.taps.empty() ? 0 : grid_.taps[0].across, left = right;
    for (const auto& tap : grid_.taps) {
      low = std::min(low, tap.down), high = std::max(high, tap.down);
      left = std::min(left, tap.across), right = std::max(right, tap.across);
    }
    top_ = part_.from + low, left_ = left, pitch_ = width_ + right - left;
    const auto rows = height_ + high - low;
    plane_ = rows * pitch_;
    planes_.assign(std::size_t(given_.x.channels * plane_) + kSlack, 0.0f);
    const auto first = std::max<std::int64_t>(0, left),
               end = std::min(given_.x.columns, left + pitch_);
    for (std::int64_t c = 0; c < given_.x.channels; ++c)
      for (auto r = std::max<std::int64_t>(0, top_); r < std::min(given_.x.rows, top_ + rows); ++r)
        if (end > first)
          std::memcpy(planes_.data() + c * plane_ + (r - top_) * pitch_ + first - left,
                      source(part_.first, c) + r * given_.x.columns + first,
                      std::size_t(end - first) * sizeof(float));
  }

  const float* source(std::int64_t image, std::int64_t channel) const {
    return x_ + (image * given_.x.channels + channel) * given_.x.rows * given_.x.columns;
  }

  void choose(std::size_t from, std::size_t end) {
    places_.clear();
    rows_.clear();
    const auto window = given_.down.taps * given_.across.taps;
    for (auto k = from; k < end; ++k) {
      const auto channel = std::int64_t(k / grid_.taps.size());
      const auto each = given_.transposed ? given_.y.channels * window : window;
      places_.push_back(channel * each + grid_.taps[k % grid_.taps.size()].place);
    }
  }

  // Makes every term a shifted pointer into a plane.
  void point(std::size_t from, std::size_t end) {
    choose(from, end);
    for (auto k = from; k < end; ++k) {
      const auto& tap = grid_.taps[k % grid_.taps.size()];
      const auto channel = std::int64_t(k / grid_.taps.size());
      rows_.push_back(planes_.data() + channel * plane_ + (tap.down + part_.from - top_) * pitch_ +
                      tap.across - left_);
    }
  }

  // Copies the elements that each tap reads, for all images of the part, into rows.
  void unfold(std::size_t from, std::size_t end) {
    choose(from, end);
    const auto size = whole(count_);
    unfolded_.resize((end - from) * size);
    for (auto k = from; k < end; ++k) {
      auto* row = unfolded_.data() + (k - from) * size;
      rows_.push_back(row);
      for (auto image = part_.first; image < part_.last; ++image)
        row = meet(source(image, std::int64_t(k / grid_.taps.size())),
                   grid_.taps[k % grid_.taps.size()], row);
      std::fill(row, unfolded_.data() + (k - from + 1) * size, 0.0f);
    }
  }

  float* meet(const float* plane, const Tap& tap, float* to) const {
    const auto step = grid_.across_step;
    const auto first = std::min(width_, tap.across >= 0 ? 0 : (-tap.across + step - 1) / step);
    const auto end = std::max(first, std::min(width_, below(given_.x.columns, tap.across, step)));
    for (auto r = part_.from; r < part_.end; ++r, to += width_) {
      const auto row = r * grid_.down_step + tap.down;
      if (row < 0 || row >= given_.x.rows) {
        std::fill_n(to, width_, 0.0f);
        continue;
      }
      const float* from = plane + row * given_.x.columns + tap.across;
      std::fill_n(to, first, 0.0f);
      for (auto c = first; c < end; ++c) to[c] = from[c * step];
      std::fill(to + end, to + width_, 0.0f);
    }
    return to;
  }

  void add(bool fresh) {
    const auto window = std::size_t(given_.down.taps * given_.across.taps);
    const auto stride = given_.transposed ? window : std::size_t(given_.x.channels) * window;
    const auto channels = std::size_t(given_.y.channels), pitch = whole(count_);
    for (std::size_t at = 0; at < count_; at += kOutputs) {
      std::vector<const float*> rows(rows_);
      for (auto& row : rows) row += at;
      for (std::size_t m = 0; m < channels; m += kSums)
        multiply({w_ + m * stride, stride, places_.data(), rows.data(), rows.size(),
                  sums_.data() + m * pitch + at, pitch, std::min(kSums, channels - m), fresh},
                 std::min(std::size_t(kOutputs), count_ - at));
    }
  }

  void write() const {
    const auto pitch = std::int64_t(whole(count_));
    for (std::int64_t m = 0; m < given_.y.channels; ++m)
      for (auto image = part_.first; image < part_.last; ++image)
        for (std::int64_t r = 0; r < height_; ++r) {
          const float* from =
              sums_.data() + m * pitch + ((image - part_.first) * height_ + r) * pitch_;
          const auto row = grid_.row + (part_.from + r) * grid_.row_step;
          float* to = y_ +
                      ((image * given_.y.channels + m) * given_.y.rows + row) * given_.y.columns +
                      grid_.column;
          if (grid_.column_step == 1) std::memcpy(to, from, std::size_t(width_) * sizeof(float));
          else
            for (std::int64_t c = 0; c < width_; ++c) to[c * grid_.column_step] = from[c];
        }
  }

  const Convolution& given_;
  const Part& part_;
  const Grid& grid_;
  const float *x_, *w_;
  float* y_;
  std::int64_t height_, width_;
  std::int64_t top_ = 0, left_ = 0, pitch_ = 0, plane_ = 0;
  std::size_t count_ = 0;
  std::vector<float> planes_, unfolded_, sums_;
  std::vector<std::int64_t> places_;
  std::vector<const float*> rows_;
};

ConvolutionParts::ConvolutionParts(const Convolution& given) : given_(given) {
  add_grids();
  for (const auto& grid : grids_) add_parts(grid);
}

// An output of a transposed convolution reads every stride-th tap. Outputs with the same first tap
// form a grid.
void ConvolutionParts::add_grids() {
  const auto &down = given_.down, &across = given_.across;
  const bool back = given_.transposed;
  for (std::int64_t row = 0; row < (back ? down.stride : 1); ++row)
    for (std::int64_t column = 0; column < (back ? across.stride : 1); ++column) {
      Grid grid{row, column, back ? down.stride : 1, back ? across.stride : 1,
                0,   0,      back ? 1 : down.stride, back ? 1 : across.stride,
                {}};
      grid.rows = below(given_.y.rows, row, grid.row_step);
      grid.columns = below(given_.y.columns, column, grid.column_step);
      for (std::int64_t i = 0; i < down.taps; ++i)
        for (std::int64_t j = 0; j < across.taps; ++j) {
          const auto r = i * down.dilation - down.begin, c = j * across.dilation - across.begin;
          if (!back) grid.taps.push_back({r, c, i * across.taps + j});
          else if ((row - r) % down.stride == 0 && (column - c) % across.stride == 0)
            grid.taps.push_back(
                {(row - r) / down.stride, (column - c) / across.stride, i * across.taps + j});
        }
      grids_.push_back(grid);
    }
}

void ConvolutionParts::add_parts(const Grid& grid) {
  const auto each = grid.rows * grid.columns;
  if (!each) return;
  const auto images = std::max<std::int64_t>(1, kOutputs / each);
  const auto rows = std::max<std::int64_t>(1, 4 * kOutputs / grid.columns);
  for (std::int64_t first = 0; first < given_.x.count; first += images)
    for (std::int64_t from = 0; from < grid.rows; from += rows)
      parts_.push_back({&grid, first, std::min(first + images, given_.x.count), from,
                        std::min(from + rows, grid.rows)});
}

void ConvolutionParts::run(std::size_t part, const float* x, const float* w, float* y) const {
  Worker(given_, parts_[part], x, w, y).run();
}

}  // namespace tensoropt
