// Operands of attention's gradient that belong to some rows of queries.
#pragma once

#include "cpu/attention_gradient.hpp"
#include "cpu/attention_tiles.hpp"

namespace tensoropt {

// Rows and keys of a tile of the gradient.
inline constexpr std::size_t kGradientRows = 4 * kStrip, kGradientKeys = 64;

// A tile of keys and values.
struct KeyTile {
  explicit KeyTile(const Attention& attention)
      : keys({attention.type, attention.k, attention.size}, kGradientKeys),
        values({attention.type, attention.v, attention.value_size}, kGradientKeys) {}

  // `row` is the number of the row of the first key of all.
  void load(std::size_t row, KeyRange tile) {
    range = tile;
    keys.load(row + tile.begin, tile.end - tile.begin);
    values.load(row + tile.begin, tile.end - tile.begin);
  }

  KeyRange range{0, 0};
  TileOfRows keys, values;
};

// Weights of a tile and the gradients of its scores, rows of kGradientRows lanes per key.
struct WeightTile {
  explicit WeightTile(const Attention& attention)
      : weights(kSize), gradients(kSize), slopes(attention.cap > 0 ? kSize : 0),
        factors(attention.dropout.rows ? kSize : 0) {}

  static constexpr std::size_t kSize = kGradientKeys * kGradientRows;
  FloatArray weights, gradients;
  FloatArray slopes;   // derivatives of the cap
  FloatArray factors;  // of weights, if some are dropped
};

// Queries, gradients of results and their sums of some rows.
class GradientRows {
 public:
  GradientRows(const Attention& attention, const AttentionGradients& gradients,
               const QueryRows& rows);

  // Computes weights and gradients of scores, before the cap, of one strip. Returns the keys that
  // the strip reads, extended to whole units of rows from the first of the tile on.
  KeyRange differentiate(std::size_t strip, const KeyTile& keys, WeightTile& tile) const;

  const QueryRows& rows() const { return rows_; }
  std::size_t width() const { return width_; }
  std::size_t value_width() const { return value_width_; }
  const float* queries() const { return queries_.data(); }  // rows, multiplied by the scale
  const float* results() const { return results_.data(); }  // rows of gradients of results

 private:
  const Attention& attention_;
  const QueryRows& rows_;
  std::size_t padded_, width_, value_width_;
  FloatArray queries_, results_;
  FloatArray query_lanes_, result_lanes_;  // by strip: dimensions by queries
  FloatArray logs_, deltas_;               // by row
};

}  // namespace tensoropt
