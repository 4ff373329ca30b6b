#include "cpu/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/attention_kernels.hpp"
#include "cpu/attention_tiles.hpp"

namespace tensoropt {
namespace {

// Rows of a part, and keys of a tile: with 64 dimensions, the operands of one product of a strip
// stay in the L1 cache.
constexpr std::size_t kBlock = 4 * kStrip, kKeys = 128;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The computation of one part: the results of some rows.
class Block {
 public:
  Block(const Attention& attention, const QueryRows& rows)
      : attention_(attention), rows_(rows), padded_(rows.strips() * kStrip),
        width_(rounded_up(attention.size, kLaneUnit)),
        value_width_(rounded_up(attention.value_size, kLaneUnit)),
        keys_({attention.type, attention.k, attention.size}, kKeys),
        values_({attention.type, attention.v, attention.value_size}, kKeys),
        plain_(padded_ * std::max(width_, value_width_)), queries_(padded_ * width_),
        sums_(padded_ * value_width_), scores_(kKeys * kStrip), maxima_(padded_), totals_(padded_),
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
    const auto first = rows_.first_row();
    for (std::size_t strip = 0; strip < rows_.strips(); ++strip)
      transpose(sums_.data() + strip * kStrip * value_width_, kStrip, value_width_,
                rows_.lanes(strip), plain_.data() + strip * kStrip * value_width_, value_width_,
                1.0f);
    for (std::size_t row = 0; row < rows_.count(); ++row) {
      const auto total = totals_.data()[row], factor = total > 0 ? 1 / total : total;
      float* sums = plain_.data() + row * value_width_;
      for (std::size_t i = 0; i < value_width_; ++i) sums[i] *= factor;
      if (lse)
        lse[first + row] = total == 0 ? -kInfinity : maxima_.data()[row] * kLn2 + std::log(total);
    }
    store_rows(plain_.data(), value_width_, rows_.count(), attention_.type, y, first,
               attention_.value_size);
  }

 private:
  void lay_queries() {
    load_rows(Rows{attention_.type, attention_.q, attention_.size}.from(rows_.first_row()),
              rows_.count(), plain_.data(), width_, padded_);
    for (std::size_t strip = 0; strip < rows_.strips(); ++strip)
      transpose(plain_.data() + strip * kStrip * width_, width_, kStrip, width_,
                queries_.data() + strip * kStrip * width_, kStrip,
                QueryRows::query_scale(attention_));
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
  FloatArray plain_;    // rows of queries, then of results
  FloatArray queries_;  // by strip: dimensions by queries
  FloatArray sums_;     // by strip: dimensions of values by queries
  FloatArray scores_;
  FloatArray maxima_, totals_, decays_;
};

}  // namespace

AttentionParts::AttentionParts(const Attention& attention, void* y, float* lse)
    : attention_(attention), y_(y), lse_(lse), blocks_((attention.rows() + kBlock - 1) / kBlock) {}

void AttentionParts::run(std::size_t part) const {
  const auto head = part / blocks_, first = part % blocks_ * kBlock;
  const QueryRows rows(attention_, head / attention_.key_heads, head % attention_.key_heads, first,
                       std::min(kBlock, attention_.rows() - first));
  Block block(attention_, rows);
  block.run();
  block.write(y_, lse_);
}

}  // namespace tensoropt
