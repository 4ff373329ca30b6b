#include "cpu/attention_tiles.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "cpu/clones.hpp"
#include "half.hpp"

namespace tensoropt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// A finite bias stays finite times log2(e): a row that has only such keys weighs them all.
constexpr float kLeastBias = std::numeric_limits<float>::lowest() / 1.5f;

TENSOROPT_CLONES
void widen(const BFloat16* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i].widen();
}

TENSOROPT_CLONES
void narrow(const float* from, BFloat16* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = BFloat16::round(from[i]);
}

void load(const Rows& rows, std::size_t at, float* to, std::size_t count) {
  if (rows.type == Element::Float32)
    std::memcpy(to, static_cast<const float*>(rows.data) + at, count * sizeof(float));
  else widen(static_cast<const BFloat16*>(rows.data) + at, to, count);
}

// The number of a key relative to that of another, limited to exact floats.
float relative(std::int64_t key, std::size_t first) {
  constexpr std::int64_t kMost = 1 << 24;
  return float(std::clamp<std::int64_t>(key - std::int64_t(first), -kMost, kMost));
}

}  // namespace

Rows Rows::from(std::size_t row) const {
  const auto bytes = row * width * element_info(int(type)).bytes;
  return {type, static_cast<const char*>(data) + bytes, width};
}

void load_rows(const Rows& rows, std::size_t count, float* to, std::size_t pitch,
               std::size_t padded) {
  for (std::size_t row = 0; row < count; ++row, to += pitch) {
    load(rows, row * rows.width, to, rows.width);
    std::fill(to + rows.width, to + pitch, 0.0f);
  }
  std::fill_n(to, (padded - count) * pitch, 0.0f);
}

void store(const float* from, std::size_t count, Element type, void* to, std::size_t at) {
  if (type == Element::Float32)
    std::memcpy(static_cast<float*>(to) + at, from, count * sizeof(float));
  else narrow(from, static_cast<BFloat16*>(to) + at, count);
}

void store_rows(const float* from, std::size_t pitch, std::size_t count, Element type, void* to,
                std::size_t first, std::size_t width) {
  for (std::size_t row = first; row < first + count; ++row, from += pitch)
    store(from, width, type, to, row * width);
}

TileOfRows::TileOfRows(const Rows& rows, std::size_t most)
    : rows_(rows), in_place_(rows.type == Element::Float32 && rows.width % kRowUnit == 0),
      padded_pitch_(rounded_up(rows.width, kRowUnit)), pitch_(padded_pitch_),
      copy_(rounded_up(most, kRowUnit) * padded_pitch_) {}

void TileOfRows::load(std::size_t first, std::size_t count) {
  const auto rows = rows_.from(first);
  if (in_place_ && count % kRowUnit == 0) {
    data_ = static_cast<const float*>(rows.data);
    return;
  }
  load_rows(rows, count, copy_.data(), padded_pitch_, rounded_up(count, kRowUnit));
  data_ = copy_.data();
}

QueryRows::QueryRows(const Attention& attention, std::size_t batch, std::size_t key_head,
                     std::size_t first, std::size_t count)
    : attention_(attention), batch_(batch), key_head_(key_head), first_(first), count_(count),
      length_(attention.keys),
      first_row_((batch * attention.key_heads + key_head) * attention.rows() + first),
      first_key_row_((batch * attention.key_heads + key_head) * attention.keys),
      positions_(strips() * kStrip), bounds_(strips()), keys_{attention.keys, 0} {
  if (attention.lengths)
    length_ = std::size_t(
        std::clamp<std::int64_t>(attention.lengths[batch], 0, std::int64_t(attention.keys)));
  for (std::size_t row = 0; row < positions_.size(); ++row)
    positions_[row] =
        attention.offset + std::int64_t((first + std::min(row, count - 1)) % attention.queries);
  for (std::size_t strip = 0; strip < bounds_.size(); ++strip) {
    const auto from = positions_.begin() + std::ptrdiff_t(strip * kStrip);
    const auto [least, most] = std::minmax_element(from, from + kStrip);
    bounds_[strip] = {*least, *most};
    const auto keys = keys_of(bounds_[strip]);
    if (keys.is_empty()) continue;
    keys_ = {std::min(keys_.begin, keys.begin), std::max(keys_.end, keys.end)};
  }
}

std::size_t QueryRows::lanes(std::size_t strip) const {
  return std::min(kStrip, rounded_up(count_ - strip * kStrip, kLaneUnit));
}

KeyRange QueryRows::keys_of(Bounds bounds) const {
  const auto all = std::int64_t(length_);
  const auto end = attention_.causal ? std::clamp<std::int64_t>(bounds.most + 1, 0, all) : all;
  const auto begin =
      attention_.window ? std::max<std::int64_t>(bounds.least - attention_.window + 1, 0) : 0;
  return {std::size_t(begin), std::size_t(end)};
}

KeyRange QueryRows::keys(std::size_t strip, KeyRange tile) const {
  const auto keys = keys_of(bounds_[strip]);
  return {std::max(keys.begin, tile.begin), std::min(keys.end, tile.end)};
}

void QueryRows::finish_scores(std::size_t strip, KeyRange range, const Tile& tile,
                              float* slopes) const {
  if (attention_.cap > 0) cap_scores(tile, attention_.cap * kLog2E, slopes);
  if (attention_.bias) add_bias(strip, range, tile);
  const auto& bounds = bounds_[strip];
  const auto begin = std::int64_t(range.begin), end = std::int64_t(range.end);
  // Keys that all rows read are not masked.
  const auto first_end = attention_.causal ? std::clamp(bounds.least + 1, begin, end) : end;
  const auto last_begin =
      attention_.window ? std::clamp(bounds.most - attention_.window + 1, begin, end) : begin;
  if (last_begin > begin) mask(strip, {range.begin, std::size_t(last_begin)}, range, tile);
  if (first_end < end) mask(strip, {std::size_t(first_end), range.end}, range, tile);
}

void QueryRows::draw_factors(std::size_t strip, KeyRange range, const Tile& tile) const {
  auto dropout = attention_.dropout;
  std::int64_t rows[kStrip] = {};
  const auto first = strip * kStrip;
  std::copy_n(dropout.rows + first_row_ + first, std::min(kStrip, count_ - first), rows);
  dropout.rows = rows, dropout.keys += range.begin;
  tensoropt::draw_factors(tile, dropout);
}

// Loads a row per query, even if several read the same one, and transposes them.
void QueryRows::add_bias(std::size_t strip, KeyRange range, const Tile& tile) const {
  const auto keys = range.end - range.begin, pitch = rounded_up(keys, kLaneUnit);
  FloatArray rows(tile.lanes * pitch), columns(pitch * tile.pitch);
  for (std::size_t lane = 0; lane < tile.lanes; ++lane) {
    const auto row = first_ + std::min(strip * kStrip + lane, count_ - 1);
    const auto head = key_head_ * attention_.group() + row / attention_.queries;
    const auto number = attention_.bias_row(batch_, head, row % attention_.queries);
    float* to = rows.data() + lane * pitch;
    load({attention_.type, attention_.bias, 0}, number * attention_.keys + range.begin, to, keys);
    for (std::size_t key = 0; key < keys; ++key)
      to[key] = to[key] == -kInfinity ? to[key] : std::max(to[key], kLeastBias);
    std::fill(to + keys, to + pitch, 0.0f);
  }
  transpose(rows.data(), pitch, tile.lanes, pitch, columns.data(), tile.pitch, kLog2E);
  add_to_scores(tile, columns.data());
}

void QueryRows::mask(std::size_t strip, KeyRange masked, KeyRange range, const Tile& tile) const {
  float from[kStrip], to[kStrip];
  for (std::size_t lane = 0; lane < kStrip; ++lane) {
    const auto position = positions_[strip * kStrip + lane];
    from[lane] = attention_.window ? relative(position - attention_.window + 1, masked.begin) : 0;
    to[lane] = relative(attention_.causal ? position : std::int64_t(range.end), masked.begin);
  }
  const auto skipped = masked.begin - range.begin;
  mask_scores(
      {tile.scores + skipped * tile.pitch, tile.pitch, masked.end - masked.begin, tile.lanes}, from,
      to);
}

}  // namespace tensoropt
