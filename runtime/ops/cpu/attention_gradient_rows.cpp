#include "cpu/attention_gradient_rows.hpp"

#include <algorithm>
#include <limits>

namespace tensoropt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

GradientRows::GradientRows(const Attention& attention, const AttentionGradients& gradients,
                           const QueryRows& rows)
    : attention_(attention), rows_(rows), padded_(rows.strips() * kStrip),
      width_(rounded_up(attention.size, kLaneUnit)),
      value_width_(rounded_up(attention.value_size, kLaneUnit)), queries_(padded_ * width_),
      results_(padded_ * value_width_), query_lanes_(padded_ * width_),
      result_lanes_(padded_ * value_width_), logs_(padded_), deltas_(padded_) {
  const auto first = rows.first_row(), count = rows.count();
  load_rows(Rows{attention.type, attention.q, attention.size}.from(first), count, queries_.data(),
            width_, padded_);
  // The array of transposed gradients first has the results that they are multiplied by.
  load_rows(Rows{attention.type, gradients.dy, attention.value_size}.from(first), count,
            results_.data(), value_width_, padded_);
  load_rows(Rows{attention.type, gradients.y, attention.value_size}.from(first), count,
            result_lanes_.data(), value_width_, padded_);
  multiply_rows(results_.data(), result_lanes_.data(), padded_, value_width_, deltas_.data());
  for (std::size_t strip = 0; strip < rows.strips(); ++strip) {
    const auto at = strip * kStrip;
    transpose(queries_.data() + at * width_, width_, kStrip, width_,
              query_lanes_.data() + at * width_, kStrip, QueryRows::query_scale(attention));
    transpose(results_.data() + at * value_width_, value_width_, kStrip, value_width_,
              result_lanes_.data() + at * value_width_, kStrip, 1.0f);
  }
  scale_scores({queries_.data(), width_, padded_, width_}, attention.scale);
  // Rows without keys, and those after the last, get weights of 0.
  std::fill_n(logs_.data(), padded_, kInfinity);
  for (std::size_t row = 0; row < count; ++row) {
    const auto log = gradients.lse[first + row];
    if (log != -kInfinity) logs_.data()[row] = log * kLog2E;
  }
}

KeyRange GradientRows::differentiate(std::size_t strip, const KeyTile& keys,
                                     WeightTile& tile) const {
  auto range = rows_.keys(strip, keys.range);
  if (range.is_empty()) return range;
  range.begin = keys.range.begin + (range.begin - keys.range.begin) / kRowUnit * kRowUnit;
  const auto first = range.begin - keys.range.begin, count = range.end - range.begin;
  const auto padded = rounded_up(count, kRowUnit), lanes = rows_.lanes(strip);
  const auto from = first * kGradientRows + strip * kStrip;
  float *weights = tile.weights.data() + from, *gradients = tile.gradients.data() + from;
  const Tile scores{weights, kGradientRows, count, lanes};
  multiply({keys.keys.data() + first * keys.keys.pitch(), keys.keys.pitch(),
            query_lanes_.data() + strip * kStrip * width_, kStrip, weights, kGradientRows, padded,
            attention_.size, lanes});
  multiply({keys.values.data() + first * keys.values.pitch(), keys.values.pitch(),
            result_lanes_.data() + strip * kStrip * value_width_, kStrip, gradients, kGradientRows,
            padded, attention_.value_size, lanes});
  rows_.finish_scores(strip, range, scores,
                      attention_.cap > 0 ? tile.slopes.data() + from : nullptr);
  float* factors = attention_.dropout.rows ? tile.factors.data() + from : nullptr;
  if (factors) {
    rows_.draw_factors(strip, range, {factors, kGradientRows, count, lanes});
    multiply_scores({gradients, kGradientRows, count, lanes}, factors);
  }
  tensoropt::differentiate(scores, gradients, logs_.data() + strip * kStrip,
                           deltas_.data() + strip * kStrip);
  if (factors) multiply_scores(scores, factors);
  for (auto key = count; key < padded; ++key)
    for (float* row : {weights, gradients}) std::fill_n(row + key * kGradientRows, lanes, 0.0f);
  return range;
}

}  // namespace tensoropt
