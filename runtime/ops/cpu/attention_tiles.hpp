// Operands of attention tile by tile, as float32 in the layouts of the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/attention.hpp"
#include "cpu/attention_kernels.hpp"
#include "cpu/float_array.hpp"

namespace tensoropt {

// Queries that are computed together: three of the widest vectors.
inline constexpr std::size_t kStrip = 48;

// A row-major matrix of one of the types that attention takes.
struct Rows {
  Element type;
  const void* data;
  std::size_t width;

  Rows from(std::size_t row) const;
};

// Writes `count` rows to rows of `pitch` floats, and zeros after them up to `padded` rows.
void load_rows(const Rows& rows, std::size_t count, float* to, std::size_t pitch,
               std::size_t padded);

// Writes `count` floats to an array of `type`, from element `at` on.
void store(const float* from, std::size_t count, Element type, void* to, std::size_t at);

// Writes `count` rows of `width` floats to an array of `type`, from row `first` on.
void store_rows(const float* from, std::size_t pitch, std::size_t count, Element type, void* to,
                std::size_t first, std::size_t width);

// Rows of keys or values for the kernels: in place if possible, otherwise copied.
class TileOfRows {
 public:
  TileOfRows(const Rows& rows, std::size_t most);

  void load(std::size_t first, std::size_t count);
  const float* data() const { return data_; }
  std::size_t pitch() const { return pitch_; }

 private:
  Rows rows_;
  bool in_place_;
  std::size_t padded_pitch_, pitch_;
  FloatArray copy_;
  const float* data_ = nullptr;
};

// A range of keys.
struct KeyRange {
  std::size_t begin, end;

  bool is_empty() const { return begin >= end; }
};

// Some rows of queries of one key head, row h * queries + t for query t of head h of its group, and
// the keys that they read.
class QueryRows {
 public:
  QueryRows(const Attention& attention, std::size_t batch, std::size_t key_head, std::size_t first,
            std::size_t count);

  std::size_t count() const { return count_; }
  std::size_t strips() const { return (count_ + kStrip - 1) / kStrip; }
  std::size_t lanes(std::size_t strip) const;

  // Keys that any of all the rows reads.
  KeyRange keys() const { return keys_; }
  // Keys of a tile that any row of a strip reads.
  KeyRange keys(std::size_t strip, KeyRange tile) const;

  // Row number of these rows in q, y and their like.
  std::size_t first_row() const { return first_row_; }
  std::size_t first_key_row() const { return first_key_row_; }

  // Turns products of queries (scaled by `query_scale`) and keys into scores: cap, bias and mask.
  // `range` is that of `keys`; slopes of the cap go to `slopes` if not null.
  void finish_scores(std::size_t strip, KeyRange range, const Tile& tile, float* slopes) const;

  // Writes the factors of weights to a tile of the keys `range`, if weights are dropped.
  void draw_factors(std::size_t strip, KeyRange range, const Tile& tile) const;

  static float query_scale(const Attention& attention) { return attention.scale * kLog2E; }

 private:
  struct Bounds {
    std::int64_t least, most;  // of the positions of the rows of a strip
  };

  KeyRange keys_of(Bounds bounds) const;
  void add_bias(std::size_t strip, KeyRange range, const Tile& tile) const;
  // Masks the keys `masked` of the tile of the keys `range`.
  void mask(std::size_t strip, KeyRange masked, KeyRange range, const Tile& tile) const;

  const Attention& attention_;
  std::size_t batch_, key_head_, first_, count_, length_;
  std::size_t first_row_, first_key_row_;
  std::vector<std::int64_t> positions_;  // by row, and the last one repeated up to whole strips
  std::vector<Bounds> bounds_;           // by strip
  KeyRange keys_;
};

}  // namespace tensoropt
