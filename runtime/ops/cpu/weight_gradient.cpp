#include "cpu/weight_gradient.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/vectors.hpp"

namespace tensoropt {
namespace {

constexpr std::size_t kChannels = 8;  // of dy, laid out together
constexpr std::size_t kLanes = Wide::kLanes, kVectors = 3;
constexpr std::int64_t kPixels = 1024;  // pixels with dy that fits into a low-level cache
constexpr std::size_t kTile = 16;

// sums[m][v] += dy[p][m] * x[p][v] over the pixels p of some images. x and sums are accessed in
// whole vectors.
struct Block {
  const float *x, *dy;
  std::size_t images, rows, columns;
  std::size_t image_step, row_step, column_step;  // strides of x; dy is contiguous
  float* sums;
  std::size_t pitch;
};

// The sums of some channels of dy from `first` on, and of `Vectors` vectors of weights.
template <class Unit, std::size_t Vectors>
TENSOROPT_INLINE void add(const Block& given, std::size_t first, std::size_t at) {
  using V = typename Unit::V;
  constexpr std::size_t kRows = Unit::kRows, kStep = Unit::kLanes;
  typename V::Floats sums[kRows][Vectors];
  float* to = given.sums + first * given.pitch + at;
  for (std::size_t m = 0; m < kRows; ++m)
    for (std::size_t v = 0; v < Vectors; ++v)
      sums[m][v] = V::load(to + m * given.pitch + v * kStep);
  const float* dy = given.dy + first;
  for (std::size_t image = 0; image < given.images; ++image)
    for (std::size_t row = 0; row < given.rows; ++row) {
      const float* x = given.x + image * given.image_step + row * given.row_step + at;
      for (std::size_t column = 0; column < given.columns; ++column) {
        typename V::Floats met[Vectors];
        for (std::size_t v = 0; v < Vectors; ++v) met[v] = V::load(x + v * kStep);
        for (std::size_t m = 0; m < kRows; ++m)
          for (std::size_t v = 0; v < Vectors; ++v) sums[m][v] += dy[m] * met[v];
        x += given.column_step;
        dy += kChannels;
      }
    }
  for (std::size_t m = 0; m < kRows; ++m)
    for (std::size_t v = 0; v < Vectors; ++v)
      V::store(to + m * given.pitch + v * kStep, sums[m][v]);
}

struct BlockJob {
  const Block& block;
  std::size_t length;

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    for (std::size_t first = 0; first < kChannels; first += Unit::kRows) {
      std::size_t at = 0;
      for (; at + 2 * Unit::kLanes < length; at += kVectors * Unit::kLanes)
        add<Unit, kVectors>(block, first, at);
      if (at + Unit::kLanes < length) add<Unit, 2>(block, first, at);
      else if (at < length) add<Unit, 1>(block, first, at);
    }
  }
};

void add(const Block& block, std::size_t length) { run_on_vectors(BlockJob{block, length}); }

// to[j][i] = from[i][j], of `count` by `width` elements.
TENSOROPT_INLINE void transpose(const float* from, std::size_t pitch, float* to,
                                std::size_t to_pitch, std::size_t count, std::size_t width) {
  for (std::size_t first = 0; first < count; first += kTile)
    for (std::size_t at = 0; at < width; at += kTile)
      for (std::size_t j = at; j < std::min(at + kTile, width); ++j)
        for (std::size_t i = first; i < std::min(first + kTile, count); ++i)
          to[j * to_pitch + i] = from[i * pitch + j];
}

std::size_t whole(std::size_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

}  // namespace

// With a single tap, only the elements that it reads are laid out.
WeightGradient::Axis WeightGradient::axis_of(const Slide& slide, std::int64_t outputs) {
  if (slide.taps == 1) return {outputs, 1, 0, -slide.begin, slide.stride};
  const auto size = (outputs - 1) * slide.stride + (slide.taps - 1) * slide.dilation + 1;
  return {std::max<std::int64_t>(size, 0), slide.stride, slide.dilation, -slide.begin, 1};
}

WeightGradient::WeightGradient(const Convolution& given)
    : given_(given), down_(axis_of(given.down, given.y.rows)),
      across_(axis_of(given.across, given.y.columns)) {
  const auto channels = given.x.channels;
  const bool joined = given.across.dilation == 1;
  const auto each = joined ? given.across.taps : 1;
  for (std::int64_t i = 0; i < given.down.taps; ++i)
    for (std::int64_t j = 0; j < given.across.taps; j += each)
      runs_.push_back(
          {(i * down_.tap * across_.size + j * across_.tap) * channels, each * channels});
}

std::size_t WeightGradient::laid_size() const {
  return std::size_t(given_.x.count * image_size()) + kVectors * kLanes;
}

void WeightGradient::lay(std::size_t image, const float* x, float* laid) const {
  const auto channels = given_.x.channels, plane = given_.x.rows * given_.x.columns;
  const float* from = x + std::int64_t(image) * channels * plane;
  float* to = laid + std::int64_t(image) * image_size();
  // The columns of the laid-out image that are inside `x`.
  const auto stride = across_.stride, begin = across_.begin;
  const auto first =
      std::clamp<std::int64_t>(begin >= 0 ? 0 : (stride - 1 - begin) / stride, 0, across_.size);
  const auto end = std::clamp<std::int64_t>(
      begin >= given_.x.columns ? 0 : (given_.x.columns - begin + stride - 1) / stride, first,
      across_.size);
  for (std::int64_t row = 0; row < down_.size; ++row, to += across_.size * channels) {
    const auto source = row * down_.stride + down_.begin;
    if (source < 0 || source >= given_.x.rows) {
      std::fill_n(to, across_.size * channels, 0.0f);
      continue;
    }
    std::fill_n(to, first * channels, 0.0f);
    std::fill(to + end * channels, to + across_.size * channels, 0.0f);
    const float* line = from + source * given_.x.columns + first * stride + begin;
    if (stride == 1)
      transpose(line, std::size_t(plane), to + first * channels, std::size_t(channels),
                std::size_t(channels), std::size_t(end - first));
    else
      for (auto column = first; column < end; ++column, line += stride)
        for (std::int64_t c = 0; c < channels; ++c) to[column * channels + c] = line[c * plane];
  }
  if (std::int64_t(image) + 1 == given_.x.count) std::fill_n(to, kVectors * kLanes, 0.0f);
}

// Computation of the sums for some channels of dy.
class WeightGradient::Worker {
 public:
  Worker(const WeightGradient& own, std::size_t part)
      : own_(own), first_(std::int64_t(part * kChannels)),
        count_(std::min<std::int64_t>(kChannels, own.given_.y.channels - first_)),
        pixels_(own.given_.y.rows * own.given_.y.columns),
        taps_(own.given_.down.taps * own.given_.across.taps),
        pitch_(own.runs_.size() * whole(std::size_t(own.runs_[0].length))) {}

  void run(const float* laid, const float* dy) {
    sums_.assign(kChannels * pitch_, 0.0f);
    const auto images = std::max<std::int64_t>(1, kPixels / std::max<std::int64_t>(1, pixels_));
    for (std::int64_t from = 0; from < own_.given_.x.count; from += images)
      add_images(from, std::min(images, own_.given_.x.count - from), laid, dy);
  }

  void write(float* dw) const {
    const auto channels = std::size_t(own_.given_.x.channels), taps = std::size_t(taps_);
    const auto each = taps / own_.runs_.size();
    for (std::size_t m = 0; m < std::size_t(count_); ++m)
      for (std::size_t run = 0; run < own_.runs_.size(); ++run)
        transpose(sums_.data() + m * pitch_ + run * pitch_ / own_.runs_.size(), channels,
                  dw + (std::size_t(first_) + m) * channels * taps + run * each, taps, each,
                  channels);
  }

 private:
  void add_images(std::int64_t from, std::int64_t images, const float* laid, const float* dy) {
    lay(from, images, dy);
    const auto& down = own_.down_;
    const auto& across = own_.across_;
    const auto channels = own_.given_.x.channels;
    float* sums = sums_.data();
    for (const auto& one : own_.runs_) {
      add({laid + from * own_.image_size() + one.offset, dy_.data(), std::size_t(images),
           std::size_t(own_.given_.y.rows), std::size_t(own_.given_.y.columns),
           std::size_t(own_.image_size()), std::size_t(down.step * across.size * channels),
           std::size_t(across.step * channels), sums, pitch_},
          std::size_t(one.length));
      sums += whole(std::size_t(one.length));
    }
  }

  // Transposes dy to pixels with adjacent channels; missing channels are zero.
  void lay(std::int64_t from, std::int64_t images, const float* dy) {
    dy_.assign(std::size_t(images * pixels_) * kChannels, 0.0f);
    for (std::int64_t image = 0; image < images; ++image)
      transpose(dy + ((from + image) * own_.given_.y.channels + first_) * pixels_,
                std::size_t(pixels_), dy_.data() + std::size_t(image * pixels_) * kChannels,
                kChannels, std::size_t(count_), std::size_t(pixels_));
  }

  const WeightGradient& own_;
  std::int64_t first_, count_, pixels_, taps_;
  std::size_t pitch_;
  std::vector<float> sums_, dy_;
};

std::size_t WeightGradient::parts() const {
  return (std::size_t(given_.y.channels) + kChannels - 1) / kChannels;
}

void WeightGradient::run(std::size_t part, const float* laid, const float* dy, float* dw) const {
  Worker worker(*this, part);
  worker.run(laid, dy);
  worker.write(dw);
}

}  // namespace tensoropt
