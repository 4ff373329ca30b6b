#include "cpu/gemm.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/float_array.hpp"
#include "cpu/sum_block.hpp"

namespace tensoropt {
namespace {

constexpr std::size_t kVectors = 3;
constexpr std::size_t kChunk = 96;  // rows with operands that fit into the second cache
// Columns or terms of a part that is packed: a multiple of all widths of panels.
constexpr std::size_t kPanel = kVectors * Wide::kLanes;

// Copies lines `first` to `end` of `count` rows of a matrix, which is stored as its transpose, to
// panels of Width rows and `terms` lines: to[i][r] is from[i][r]. Missing rows are 0.
template <std::size_t Width>
TENSOROPT_INLINE void pack_lines(const float* from, std::size_t pitch, std::size_t count,
                                 std::size_t terms, std::size_t first, std::size_t end, float* to) {
  for (std::size_t i = first; i < end; ++i)
    for (std::size_t r = 0; r < count; r += Width) {
      float* line = to + r * terms + i * Width;
      const auto size = std::min(Width, count - r);
      if (size == Width) {
        std::memcpy(line, from + i * pitch + r, Width * sizeof(float));
      } else {
        std::memcpy(line, from + i * pitch + r, size * sizeof(float));
        std::fill(line + size, line + Width, 0.0f);
      }
    }
}

// Copies at most `width` rows of a matrix to a panel of `terms` lines: to[i][r] is from[r][i].
template <class Unit>
TENSOROPT_INLINE void pack_rows(const float* from, std::size_t pitch, std::size_t count,
                                std::size_t terms, float* to, std::size_t width) {
  using V = typename Unit::V;
  constexpr std::size_t kLanes = Unit::kLanes;
  for (std::size_t first = 0; first < width; first += kLanes) {
    std::size_t i = 0;
    if (first + kLanes <= count)
      for (; i + kLanes <= terms; i += kLanes) {
        typename V::Floats square[kLanes];
        for (std::size_t n = 0; n < kLanes; ++n)
          square[n] = V::load(from + (first + n) * pitch + i);
        V::transpose(square);
        for (std::size_t n = 0; n < kLanes; ++n) V::store(to + (i + n) * width + first, square[n]);
      }
    for (; i < terms; ++i)
      for (std::size_t r = first; r < first + kLanes; ++r)
        to[i * width + r] = r < count ? from[r * pitch + i] : 0.0f;
  }
}

// A block, in panels of columns that fit into registers.
template <class Unit>
class Panels {
 public:
  static constexpr std::size_t kLanes = Unit::kLanes, kRows = Unit::kRows;
  static constexpr std::size_t kWidth = kVectors * kLanes;
  // Vectors of a block with eight sums: fewer would wait for each other.
  static constexpr std::size_t kFewest = divided_up(8, kRows);

  TENSOROPT_INLINE explicit Panels(const GemmBlock& block) : block_(block), gemm_(block.gemm) {}

  // Packs some columns of b, or some terms if b is not transposed.
  TENSOROPT_INLINE void pack(std::size_t first, std::size_t end) const {
    if (!gemm_.transposes_b) {
      pack_lines<kWidth>(gemm_.b + block_.term * gemm_.columns + block_.column, gemm_.columns,
                         block_.columns, block_.terms, first, end, block_.packed);
      return;
    }
    for (auto column = first; column < end; column += kWidth)
      pack_rows<Unit>(gemm_.b + (block_.column + column) * gemm_.depth + block_.term, gemm_.depth,
                      count_from(column), block_.terms, packed_from(column), kWidth);
  }

  TENSOROPT_INLINE void sum(std::size_t first, std::size_t rows) const {
    const FloatArray packed(rounded_up(rows, kLanes) * block_.terms);
    if (gemm_.transposes_a)
      pack_lines<kLanes>(gemm_.a + block_.term * gemm_.rows + first, gemm_.rows, rows, block_.terms,
                         0, block_.terms, packed.data());
    else
      for (std::size_t row = 0; row < rows; row += kLanes)
        pack_rows<Unit>(gemm_.a + (first + row) * gemm_.depth + block_.term, gemm_.depth,
                        std::min(kLanes, rows - row), block_.terms,
                        packed.data() + row * block_.terms, kLanes);
    for (std::size_t column = 0; column < block_.columns; column += kWidth)
      for (std::size_t row = 0; row < rows; row += kRows)
        sum_rows(packed.data() + row / kLanes * kLanes * block_.terms + row % kLanes,
                 std::min(kRows, rows - row), first + row, column);
  }

 private:
  TENSOROPT_INLINE std::size_t count_from(std::size_t column) const {
    return std::min(kWidth, block_.columns - column);
  }
  TENSOROPT_INLINE float* packed_from(std::size_t column) const {
    return block_.packed + column * block_.terms;
  }
  TENSOROPT_INLINE const float* bias_from(std::size_t column) const {
    return gemm_.bias ? gemm_.bias + block_.column + column : nullptr;
  }
  TENSOROPT_INLINE float* y(std::size_t row, std::size_t column) const {
    return gemm_.y + row * gemm_.columns + block_.column + column;
  }

  // Sums `count` rows, at most kRows.
  TENSOROPT_INLINE void sum_rows(const float* a, std::size_t count, std::size_t row,
                                 std::size_t column) const {
    const auto columns = count_from(column);
    const auto vectors = std::max(divided_up(columns, kLanes), kFewest);
    const float *b = packed_from(column), *bias = bias_from(column);
    float* to = y(row, column);
    if (count == kRows && columns == vectors * kLanes) {
      if (block_.term) sum_vectors<Start::Sum>(vectors, a, b, to, gemm_.columns, nullptr);
      else if (bias) sum_vectors<Start::Row>(vectors, a, b, to, gemm_.columns, bias);
      else sum_vectors<Start::Zero>(vectors, a, b, to, gemm_.columns, nullptr);
      return;
    }
    // A partial block is computed in a whole one.
    float tile[kRows * kWidth] = {};
    for (std::size_t r = 0; r < count && (block_.term || bias); ++r)
      std::memcpy(tile + r * kWidth, block_.term ? to + r * gemm_.columns : bias,
                  columns * sizeof(float));
    sum_vectors<Start::Sum>(vectors, a, b, tile, kWidth, nullptr);
    for (std::size_t r = 0; r < count; ++r)
      std::memcpy(to + r * gemm_.columns, tile + r * kWidth, columns * sizeof(float));
  }

  // Sums kRows rows of kFewest to kVectors vectors: the last panel is rarely full.
  template <Start From>
  TENSOROPT_INLINE void sum_vectors(std::size_t vectors, const float* a, const float* b, float* c,
                                    std::size_t pitch, const float* bias) const {
    static_assert(kVectors == 3 && kFewest <= 2);
    if (vectors == 3) sum_whole<3, From>(a, b, c, pitch, bias);
    else if (vectors == 2) sum_whole<2, From>(a, b, c, pitch, bias);
    else sum_whole<kFewest, From>(a, b, c, pitch, bias);
  }

  template <std::size_t Count, Start From>
  TENSOROPT_INLINE void sum_whole(const float* a, const float* b, float* c, std::size_t pitch,
                                  const float* bias) const {
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t v = 0; v < Count; ++v) __builtin_prefetch(c + r * pitch + v * kLanes, 1);
    const Product product{a, kLanes, b, kWidth, c, pitch, kRows, block_.terms, kWidth};
    sum_block<Unit, Count, true, From>(product, a, b, c, bias);
  }

  const GemmBlock& block_;
  const Gemm& gemm_;
};

struct PackJob {
  const GemmBlock& block;
  std::size_t first, end;

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    Panels<Unit>(block).pack(first, end);
  }
};

struct SumJob {
  const GemmBlock& block;
  std::size_t first, rows;

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    Panels<Unit>(block).sum(first, rows);
  }
};

}  // namespace

std::size_t Gemm::packed_size() const {
  return std::min(rounded_up(columns, kPanel), GemmBlock::kColumns) *
         std::min(depth, GemmBlock::kTerms);
}

GemmBlock::GemmBlock(const Gemm& product, std::size_t first_column, std::size_t first_term,
                     float* packed_b)
    : gemm(product), column(first_column), columns(std::min(kColumns, product.columns - column)),
      term(first_term), terms(std::min(kTerms, product.depth - term)), packed(packed_b) {}

std::size_t GemmBlock::packed_parts() const {
  return divided_up(gemm.transposes_b ? columns : terms, kPanel);
}

void GemmBlock::pack(std::size_t part) const {
  const auto all = gemm.transposes_b ? columns : terms;
  run_on_vectors(PackJob{*this, part * kPanel, std::min((part + 1) * kPanel, all)});
}

std::size_t GemmBlock::chunks() const { return divided_up(gemm.rows, kChunk); }

void GemmBlock::sum(std::size_t chunk) const {
  const auto first = chunk * kChunk;
  run_on_vectors(SumJob{*this, first, std::min(kChunk, gemm.rows - first)});
}

}  // namespace tensoropt
