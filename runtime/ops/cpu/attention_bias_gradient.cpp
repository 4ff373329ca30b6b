#include <algorithm>
#include <numeric>

#include "cpu/attention_gradient.hpp"
#include "cpu/attention_gradient_rows.hpp"

namespace tensoropt {
namespace {

// The sum of tiles of gradients of scores, of some keys and of the rows of a block.
class TileSum {
 public:
  TileSum(const Attention& attention, const AttentionGradients& gradients, KeyRange range)
      : attention_(attention), gradients_(gradients), range_(range), keys_(attention),
        tile_(attention), sums_(WeightTile::kSize), rows_(WeightTile::kSize) {
    std::fill_n(sums_.data(), WeightTile::kSize, 0.0f);
  }

  void add(std::size_t batch, std::size_t head, std::size_t query, std::size_t count) {
    const auto group = attention_.group();
    const QueryRows rows(attention_, batch, head / group, head % group * attention_.queries + query,
                         count);
    const GradientRows operands(attention_, gradients_, rows);
    keys_.load(rows.first_key_row(), range_);
    for (std::size_t strip = 0; strip < rows.strips(); ++strip) {
      const auto range = operands.differentiate(strip, keys_, tile_);
      if (range.is_empty()) continue;
      const auto from = (range.begin - range_.begin) * kGradientRows + strip * kStrip;
      add_to_scores(
          {sums_.data() + from, kGradientRows, range.end - range.begin, rows.lanes(strip)},
          tile_.gradients.data() + from);
    }
  }

  // Writes the sums of each of `count` queries to rows of the result.
  void write_rows(std::size_t row, std::size_t count) {
    transpose(sums_.data(), kGradientRows, kGradientKeys, kGradientRows, rows_.data(),
              kGradientKeys, 1.0f);
    for (std::size_t i = 0; i < count; ++i) write(rows_.data() + i * kGradientKeys, row + i);
  }

  // Writes the sums of all queries to one row.
  void write_sums(std::size_t row) {
    for (std::size_t key = 0; key < kGradientKeys; ++key) {
      const float* from = sums_.data() + key * kGradientRows;
      rows_.data()[key] = std::accumulate(from, from + kGradientRows, 0.0f);
    }
    write(rows_.data(), row);
  }

 private:
  void write(const float* from, std::size_t row) const {
    store(from, range_.end - range_.begin, attention_.type, gradients_.dbias,
          row * attention_.keys + range_.begin);
  }

  const Attention& attention_;
  const AttentionGradients& gradients_;
  KeyRange range_;
  KeyTile keys_;
  WeightTile tile_;
  FloatArray sums_, rows_;
};

// The indices that share index `at` of a dimension of the bias.
struct Shared {
  Shared(std::size_t size, std::size_t full, std::size_t at)
      : begin(size == 1 ? 0 : at), end(size == 1 ? full : at + 1) {}
  std::size_t begin, end;
};

}  // namespace

BiasGradientParts::BiasGradientParts(const Attention& attention,
                                     const AttentionGradients& gradients)
    : attention_(attention), gradients_(gradients),
      blocks_((attention.bias_sizes[2] + kGradientRows - 1) / kGradientRows),
      tiles_((attention.keys + kGradientKeys - 1) / kGradientKeys) {}

std::size_t BiasGradientParts::count() const {
  if (!gradients_.dbias) return 0;
  return attention_.bias_sizes[0] * attention_.bias_sizes[1] * blocks_ * tiles_;
}

void BiasGradientParts::run(std::size_t part) const {
  const auto& sizes = attention_.bias_sizes;
  const auto key = part % tiles_ * kGradientKeys, block = part / tiles_ % blocks_;
  const auto number = part / tiles_ / blocks_;
  const Shared batches(sizes[0], attention_.batch, number / sizes[1]);
  const Shared heads(sizes[1], attention_.heads, number % sizes[1]);
  TileSum sum(attention_, gradients_, {key, std::min(key + kGradientKeys, attention_.keys)});
  const bool is_shared = sizes[2] == 1;
  const auto begin = block * kGradientRows;
  const auto end =
      is_shared ? attention_.queries : std::min(begin + kGradientRows, attention_.queries);
  for (auto batch = batches.begin; batch < batches.end; ++batch)
    for (auto head = heads.begin; head < heads.end; ++head)
      for (auto query = begin; query < end; query += kGradientRows)
        sum.add(batch, head, query, std::min(kGradientRows, end - query));
  if (is_shared) sum.write_sums(number);
  else sum.write_rows(number * sizes[2] + begin, end - begin);
}

}  // namespace tensoropt
