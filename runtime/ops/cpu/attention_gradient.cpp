#include "cpu/attention_gradient.hpp"

#include <algorithm>

#include "cpu/attention_gradient_rows.hpp"

namespace tensoropt {
namespace {

// Parts in all that occupy the cores of a machine even if there is only one head.
constexpr std::size_t kParts = 8;
constexpr std::size_t kMerged = 256;  // keys of a part of the merges

// The sums of the gradients of one block of rows.
class GradientBlock {
 public:
  GradientBlock(const Attention& attention, const GradientRows& rows)
      : attention_(attention), rows_(rows), keys_(attention), tile_(attention),
        sums_(rows.rows().strips() * kStrip * rows.width()),
        plain_(rows.rows().strips() * kStrip * rows.width()) {
    std::fill_n(sums_.data(), rows.rows().strips() * kStrip * rows.width(), 0.0f);
  }

  // `dk` and `dv` are the sums of the key head, rows of `width` and `value_width` floats.
  void run(float* dk, float* dv) {
    const auto keys = rows_.rows().keys();
    for (auto from = keys.begin / kRowUnit * kRowUnit; from < keys.end; from += kGradientKeys) {
      keys_.load(rows_.rows().first_key_row(), {from, std::min(from + kGradientKeys, keys.end)});
      add_keys(dk, dv);
    }
  }

  void write(void* dq) {
    const auto width = rows_.width();
    for (std::size_t strip = 0; strip < rows_.rows().strips(); ++strip)
      transpose(sums_.data() + strip * kStrip * width, kStrip, width, rows_.rows().lanes(strip),
                plain_.data() + strip * kStrip * width, width, attention_.scale);
    store_rows(plain_.data(), width, rows_.rows().count(), attention_.type, dq,
               rows_.rows().first_row(), attention_.size);
  }

 private:
  void add_keys(float* dk, float* dv) {
    const auto strips = rows_.rows().strips();
    KeyRange ranges[kGradientRows / kStrip] = {};
    bool joined = true;
    for (std::size_t strip = 0; strip < strips; ++strip) {
      ranges[strip] = rows_.differentiate(strip, keys_, tile_);
      joined &= ranges[strip].begin == ranges[0].begin && ranges[strip].end == ranges[0].end;
      if (!ranges[strip].is_empty()) add_to_queries(strip, ranges[strip]);
    }
    const auto count = rows_.rows().count();
    if (joined) add_to_keys(ranges[0], 0, count, dk, dv);
    else
      for (std::size_t strip = 0; strip < strips; ++strip)
        add_to_keys(ranges[strip], strip * kStrip, std::min(kStrip, count - strip * kStrip), dk,
                    dv);
  }

  void add_to_queries(std::size_t strip, KeyRange range) {
    const auto first = range.begin - keys_.range.begin;
    const auto from = first * kGradientRows + strip * kStrip;
    const auto lanes = rows_.rows().lanes(strip);
    float* gradients = tile_.gradients.data() + from;
    if (attention_.cap > 0)
      multiply_scores({gradients, kGradientRows, range.end - range.begin, lanes},
                      tile_.slopes.data() + from);
    const auto& keys = keys_.keys;
    add_transposed_product({keys.data() + first * keys.pitch(), keys.pitch(), gradients,
                            kGradientRows, sums_.data() + strip * kStrip * rows_.width(), kStrip,
                            rounded_up(attention_.size, kRowUnit), range.end - range.begin, lanes},
                           nullptr);
  }

  // Adds the products of rows `row` to `row + count`.
  void add_to_keys(KeyRange range, std::size_t row, std::size_t count, float* dk, float* dv) {
    if (range.is_empty()) return;
    const auto from = (range.begin - keys_.range.begin) * kGradientRows + row;
    const auto keys = rounded_up(range.end - range.begin, kRowUnit);
    const auto width = rows_.width(), value_width = rows_.value_width();
    add_product({tile_.weights.data() + from, kGradientRows, rows_.results() + row * value_width,
                 value_width, dv + range.begin * value_width, value_width, keys, count,
                 value_width});
    add_product({tile_.gradients.data() + from, kGradientRows, rows_.queries() + row * width, width,
                 dk + range.begin * width, width, keys, count, width});
  }

  const Attention& attention_;
  const GradientRows& rows_;
  KeyTile keys_;
  WeightTile tile_;
  FloatArray sums_;   // by strip: dimensions by queries
  FloatArray plain_;  // rows of gradients of queries
};

}  // namespace

AttentionGradientParts::~AttentionGradientParts() = default;

AttentionGradientParts::AttentionGradientParts(const Attention& attention,
                                               const AttentionGradients& gradients)
    : attention_(attention), gradients_(gradients),
      blocks_((attention.rows() + kGradientRows - 1) / kGradientRows),
      chunks_(std::clamp<std::size_t>(kParts / std::max<std::size_t>(heads(), 1), 1,
                                      std::max<std::size_t>(blocks_, 1))) {
  const auto is_whole = [](std::size_t size) { return size % kLaneUnit == 0; };
  if (attention.type == Element::Float32 && chunks_ == 1 && attention.keys % kRowUnit == 0 &&
      is_whole(attention.size) && is_whole(attention.value_size))
    return;
  sums_size_ = rounded_up(attention.keys, kRowUnit) * (rounded_up(attention.size, kLaneUnit) +
                                                       rounded_up(attention.value_size, kLaneUnit));
  sums_ = std::make_unique<FloatArray>(count() * sums_size_);
}

AttentionGradientParts::Sums AttentionGradientParts::sums_of(std::size_t part) const {
  const auto width = rounded_up(attention_.size, kLaneUnit);
  const auto value_width = rounded_up(attention_.value_size, kLaneUnit);
  if (!sums_)
    return {static_cast<float*>(gradients_.dk) + part * attention_.keys * width,
            static_cast<float*>(gradients_.dv) + part * attention_.keys * value_width, width,
            value_width};
  float* dk = sums_->data() + part * sums_size_;
  return {dk, dk + rounded_up(attention_.keys, kRowUnit) * width, width, value_width};
}

void AttentionGradientParts::run(std::size_t part) const {
  const auto head = part / chunks_;
  const auto sums = sums_of(part);
  const auto keys = rounded_up(attention_.keys, sums_ ? kRowUnit : 1);
  std::fill_n(sums.dk, keys * sums.width, 0.0f);
  std::fill_n(sums.dv, keys * sums.value_width, 0.0f);
  for (auto block = part % chunks_; block < blocks_; block += chunks_) {
    const auto first = block * kGradientRows;
    const QueryRows rows(attention_, head / attention_.key_heads, head % attention_.key_heads,
                         first, std::min(kGradientRows, attention_.rows() - first));
    const GradientRows operands(attention_, gradients_, rows);
    GradientBlock sum(attention_, operands);
    sum.run(sums.dk, sums.dv);
    sum.write(gradients_.dq);
  }
}

std::size_t AttentionGradientParts::merges() const {
  return sums_ ? heads() * ((attention_.keys + kMerged - 1) / kMerged) : 0;
}

void AttentionGradientParts::merge(std::size_t part) const {
  const auto parts = (attention_.keys + kMerged - 1) / kMerged;
  const auto head = part / parts, first = part % parts * kMerged;
  const auto count = std::min(kMerged, attention_.keys - first);
  const auto total = sums_of(head * chunks_);
  const auto add = [&](float* to, const float* from, std::size_t width) {
    for (auto i = first * width; i < (first + count) * width; ++i) to[i] += from[i];
  };
  for (std::size_t chunk = 1; chunk < chunks_; ++chunk) {
    const auto sums = sums_of(head * chunks_ + chunk);
    add(total.dk, sums.dk, total.width);
    add(total.dv, sums.dv, total.value_width);
  }
  const auto row = head * attention_.keys + first;
  store_rows(total.dk + first * total.width, total.width, count, attention_.type, gradients_.dk,
             row, attention_.size);
  store_rows(total.dv + first * total.value_width, total.value_width, count, attention_.type,
             gradients_.dv, row, attention_.value_size);
}

}  // namespace tensoropt
