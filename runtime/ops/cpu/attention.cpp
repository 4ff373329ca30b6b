#include "cpu/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/attention_kernels.hpp"
#include "cpu/attention_tiles.hpp"

namespace tensoropt {
namespace {

// Keys of a tile: with 64 dimensions, the operands of one product of a strip stay in the L1 cache.
constexpr std::size_t kKeys = 128;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows of a part. Many rows share the loads of a tile of keys, which are slow if the keys do not
// fit into the L2 cache; few rows are more parts, for more threads.
std::size_t rows_of_block(std::size_t rows) {
  constexpr std::size_t kParts = 8, kFewest = 4, kMost = 12;
  return kStrip * std::clamp(rows / kParts / kStrip, kFewest, kMost);
}

// The computation of one part: the results of some rows.
class Block {
 public:
  Block(const Attention& attention, const QueryRows& rows)
      : attention_(attention), rows_(rows), padded_(rows.strips() * kStrip),
        width_(rounded_up(attention.size, kLaneUnit)),
        value_width_(rounded_up(attention.value_size, kLaneUnit)),
        keys_({attention.type, attention.k, attention.size}, kKeys),
        values_({attention.type, attention.v, attention.value_size}, kKeys),
        plain_(kStrip * std::max(width_, value_width_)), queries_(padded_ * width_),
        sums_(padded_ * value_width_), scores_(kKeys * kStrip),
        factors_(attention.dropout.rows ? kKeys * kStrip : 0), maxima_(padded_), totals_(padded_),
        decays_(kStrip) {
    std::fill_n(sums_.data(), padded_ * value_width_, 0.0f);
    std::fill_n(maxima_.data(), padded_, -kInfinity);
    std::fill_n(totals_.data(), padded_, 0.0f);
    lay_queries();
  }

  void run() {
    const auto keys = rows_.keys();
    for (auto from = keys.begin; from < keys.end; from += kKeys)
      add_keys({from, std::min(from + kKeys, keys.end)});
  }

  void write(void* y, float* lse) {
    const auto size = attention_.value_size;
    for (std::size_t strip = 0; strip < rows_.strips(); ++strip) {
      const auto first = rows_.first_row() + strip * kStrip, count = rows_of(strip);
      const bool in_place = is_whole(count, size);
      float* to = in_place ? static_cast<float*>(y) + first * size : plain_.data();
      transpose(sums_.data() + strip * kStrip * value_width_, kStrip, value_width_,
                rows_.lanes(strip), to, value_width_, factors(strip, lse));
      if (!in_place) store_rows(to, value_width_, count, attention_.type, y, first, size);
    }
  }

 private:
  std::size_t rows_of(std::size_t strip) const {
    return std::min(kStrip, rows_.count() - strip * kStrip);
  }

  // True if `count` rows of `size` elements consist of squares that are transposed in place.
  bool is_whole(std::size_t count, std::size_t size) const {
    return attention_.type == Element::Float32 && count % kLaneUnit == 0 && size % kLaneUnit == 0;
  }

  void lay_queries() {
    const Rows all{attention_.type, attention_.q, attention_.size};
    for (std::size_t strip = 0; strip < rows_.strips(); ++strip) {
      const auto rows = all.from(rows_.first_row() + strip * kStrip);
      const auto count = rows_of(strip);
      const bool in_place = is_whole(count, attention_.size);
      if (!in_place) load_rows(rows, count, plain_.data(), width_, kStrip);
      transpose(in_place ? static_cast<const float*>(rows.data) : plain_.data(), width_,
                rows_.lanes(strip), width_, queries_.data() + strip * kStrip * width_, kStrip,
                QueryRows::query_scale(attention_));
    }
  }

  // The reciprocals of the sums of a strip's weights. Writes their logarithms, too.
  const float* factors(std::size_t strip, float* lse) {
    const float *totals = totals_.data() + strip * kStrip,
                *maxima = maxima_.data() + strip * kStrip;
    float* factors = decays_.data();
    for (std::size_t lane = 0; lane < rows_.lanes(strip); ++lane)
      factors[lane] = totals[lane] == 0 ? 0 : 1 / totals[lane];
    const auto first = rows_.first_row() + strip * kStrip;
    for (std::size_t row = 0; lse && row < rows_of(strip); ++row)
      lse[first + row] = totals[row] == 0 ? -kInfinity : maxima[row] * kLn2 + std::log(totals[row]);
    return factors;
  }

  void add_keys(KeyRange tile) {
    keys_.load(rows_.first_key_row() + tile.begin, tile.end - tile.begin);
    values_.load(rows_.first_key_row() + tile.begin, tile.end - tile.begin);
    for (std::size_t strip = 0; strip < rows_.strips(); ++strip) {
      auto range = rows_.keys(strip, tile);
      if (range.is_empty()) continue;
      range.begin = tile.begin + (range.begin - tile.begin) / kRowUnit * kRowUnit;
      add_keys(strip, tile, range);
    }
  }

  void add_keys(std::size_t strip, KeyRange tile, KeyRange range) {
    const auto skipped = range.begin - tile.begin, count = range.end - range.begin;
    const Tile scores{scores_.data(), kStrip, count, rows_.lanes(strip)};
    multiply({keys_.data() + skipped * keys_.pitch(), keys_.pitch(),
              queries_.data() + strip * kStrip * width_, kStrip, scores.scores, kStrip,
              rounded_up(count, kRowUnit), attention_.size, scores.lanes});
    rows_.finish_scores(strip, range, scores, nullptr);
    weigh(scores,
          {maxima_.data() + strip * kStrip, totals_.data() + strip * kStrip, decays_.data()});
    if (attention_.dropout.rows) {
      rows_.draw_factors(strip, range, {factors_.data(), kStrip, count, scores.lanes});
      multiply_scores(scores, factors_.data());
    }
    add_transposed_product(
        {values_.data() + skipped * values_.pitch(), values_.pitch(), scores.scores, kStrip,
         sums_.data() + strip * kStrip * value_width_, kStrip,
         rounded_up(attention_.value_size, kRowUnit), count, scores.lanes},
        decays_.data());
  }

  const Attention& attention_;
  const QueryRows& rows_;
  std::size_t padded_, width_, value_width_;
  TileOfRows keys_, values_;
  FloatArray plain_;    // rows of queries of a strip, then of results
  FloatArray queries_;  // by strip: dimensions by queries
  FloatArray sums_;     // by strip: dimensions of values by queries
  FloatArray scores_;
  FloatArray factors_;  // of weights, if some are dropped
  FloatArray maxima_, totals_, decays_;
};

}  // namespace

AttentionParts::AttentionParts(const Attention& attention, void* y, float* lse)
    : attention_(attention), y_(y), lse_(lse), block_(rows_of_block(attention.rows())),
      blocks_((attention.rows() + block_ - 1) / block_) {}

void AttentionParts::run(std::size_t part) const {
  const auto head = part / blocks_, first = part % blocks_ * block_;
  const QueryRows rows(attention_, head / attention_.key_heads, head % attention_.key_heads, first,
                       std::min(block_, attention_.rows() - first));
  Block block(attention_, rows);
  block.run();
  block.write(y_, lse_);
}

}  // namespace tensoropt
