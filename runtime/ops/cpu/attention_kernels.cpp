#include "cpu/attention_kernels.hpp"

#include <algorithm>

#include "cpu/sum_block.hpp"

namespace tensoropt {
namespace {

constexpr std::size_t kMaxVectors = 3;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// All rows of `Count` vectors, from lane `at` on.
template <class Unit, std::size_t Count, bool Transposed, Start From>
TENSOROPT_INLINE void sum_rows(const Product& product, std::size_t at, const float* factors) {
  for (std::size_t row = 0; row < product.rows; row += Unit::kRows)
    sum_block<Unit, Count, Transposed, From>(
        product, product.a + row * (Transposed ? 1 : product.a_pitch), product.b + at,
        product.c + row * product.c_pitch + at, From == Start::Decayed ? factors + at : nullptr);
}

template <bool Transposed, Start From>
struct ProductJob {
  const Product& product;
  const float* factors;

  // Four vectors are two and two: a block of one vector spends more time on loads.
  template <class Unit>
  TENSOROPT_INLINE void run() const {
    for (std::size_t at = 0; at < product.lanes;) {
      const auto rest = (product.lanes - at) / Unit::kLanes;
      const auto count = rest == kMaxVectors + 1 ? 2 : std::min(rest, kMaxVectors);
      if (count == 3) sum_rows<Unit, 3, Transposed, From>(product, at, factors);
      else if (count == 2) sum_rows<Unit, 2, Transposed, From>(product, at, factors);
      else sum_rows<Unit, 1, Transposed, From>(product, at, factors);
      at += count * Unit::kLanes;
    }
  }
};

struct WeighJob {
  const Tile& tile;
  const Softmax& softmax;

  // `Count` vectors together, so that their chains of sums overlap.
  template <class Unit, std::size_t Count>
  TENSOROPT_INLINE void weigh(std::size_t at) const {
    using V = typename Unit::V;
    constexpr std::size_t kLanes = Unit::kLanes;
    typename V::Floats tops[Count], sums[Count];
    for (std::size_t v = 0; v < Count; ++v) tops[v] = V::load(softmax.maxima + at + v * kLanes);
    float* scores = tile.scores + at;
    for (std::size_t key = 0; key < tile.keys; ++key)
      for (std::size_t v = 0; v < Count; ++v)
        tops[v] = V::larger(V::load(scores + key * tile.pitch + v * kLanes), tops[v]);
    for (std::size_t v = 0; v < Count; ++v) {
      const auto before = V::load(softmax.maxima + at + v * kLanes);
      V::store(softmax.maxima + at + v * kLanes, tops[v]);
      // Of a query without a key so far, all weights are 0.
      tops[v] = tops[v] == -kInfinity ? typename V::Floats{} : tops[v];
      const auto decay = V::power_of_two(before - tops[v]);
      V::store(softmax.decays + at + v * kLanes, decay);
      sums[v] = V::load(softmax.sums + at + v * kLanes) * decay;
    }
    for (std::size_t key = 0; key < tile.keys; ++key)
      for (std::size_t v = 0; v < Count; ++v) {
        float* one = scores + key * tile.pitch + v * kLanes;
        const auto weight = V::power_of_two(V::load(one) - tops[v]);
        V::store(one, weight);
        sums[v] += weight;
      }
    for (std::size_t v = 0; v < Count; ++v) V::store(softmax.sums + at + v * kLanes, sums[v]);
  }

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    std::size_t at = 0;
    for (; at + 3 * Unit::kLanes <= tile.lanes; at += 3 * Unit::kLanes) weigh<Unit, 3>(at);
    for (; at < tile.lanes; at += Unit::kLanes) weigh<Unit, 1>(at);
  }
};

struct DifferentiateJob {
  const Tile& tile;
  float* products;
  const float *logs, *deltas;

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    using V = typename Unit::V;
    for (std::size_t key = 0; key < tile.keys; ++key)
      for (std::size_t at = 0; at < tile.lanes; at += Unit::kLanes) {
        float* score = tile.scores + key * tile.pitch + at;
        float* product = products + key * tile.pitch + at;
        const auto weight = V::power_of_two(V::load(score) - V::load(logs + at));
        V::store(score, weight);
        V::store(product, weight * (V::load(product) - V::load(deltas + at)));
      }
  }
};

struct CapJob {
  const Tile& tile;
  float cap;
  float* slopes;

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    using V = typename Unit::V;
    for (std::size_t key = 0; key < tile.keys; ++key)
      for (std::size_t at = 0; at < tile.lanes; at += Unit::kLanes) {
        float* score = tile.scores + key * tile.pitch + at;
        const auto tangent = V::tangent(V::load(score) / cap);
        V::store(score, cap * tangent);
        if (slopes) V::store(slopes + key * tile.pitch + at, 1.0f - tangent * tangent);
      }
  }
};

struct MaskJob {
  const Tile& tile;
  const float *from, *to;

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    using V = typename Unit::V;
    const auto masked = V::all(-kInfinity);
    for (std::size_t at = 0; at < tile.lanes; at += Unit::kLanes) {
      const auto first = V::load(from + at), last = V::load(to + at);
      auto number = typename V::Floats{};
      for (std::size_t key = 0; key < tile.keys; ++key, number += 1.0f) {
        float* score = tile.scores + key * tile.pitch + at;
        // One comparison: GCC 12 computes a choice by two of them without vectors.
        const auto distance = V::larger(first - number, number - last);
        V::store(score, distance > 0.0f ? masked : V::load(score));
      }
    }
  }
};

struct AddJob {
  const Tile& tile;
  const float* terms;

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    using V = typename Unit::V;
    for (std::size_t key = 0; key < tile.keys; ++key)
      for (std::size_t at = 0; at < tile.lanes; at += Unit::kLanes) {
        float* score = tile.scores + key * tile.pitch + at;
        V::store(score, V::load(score) + V::load(terms + key * tile.pitch + at));
      }
  }
};

struct DrawJob {
  const Tile& tile;
  const WeightDropout& dropout;

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    using V = typename Unit::V;
    const auto mix = std::uint64_t(dropout.mix);
    for (std::size_t key = 0; key < tile.keys; ++key) {
      const auto seed = std::uint64_t(dropout.keys[key]);
      for (std::size_t at = 0; at < tile.lanes; at += Unit::kLanes)
        V::store(tile.scores + key * tile.pitch + at,
                 V::where_drawn(dropout.rows + at, seed, mix, dropout.threshold, dropout.scale));
    }
  }
};

struct ScaleJob {
  const Tile& tile;
  float factor;
  const float* factors;  // or null

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    using V = typename Unit::V;
    for (std::size_t key = 0; key < tile.keys; ++key)
      for (std::size_t at = 0; at < tile.lanes; at += Unit::kLanes) {
        float* score = tile.scores + key * tile.pitch + at;
        const auto value = factors ? V::load(factors + key * tile.pitch + at) : V::all(factor);
        V::store(score, V::load(score) * value);
      }
  }
};

struct TransposeJob {
  const float* from;
  std::size_t from_pitch, rows, columns;
  float* to;
  std::size_t to_pitch;
  float factor;
  const float* factors;  // or null

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    using V = typename Unit::V;
    constexpr std::size_t kLanes = Unit::kLanes;
    for (std::size_t column = 0; column < columns; column += kLanes) {
      const auto scale = factors ? V::load(factors + column) : V::all(factor);
      for (std::size_t row = 0; row < rows; row += kLanes) {
        typename V::Floats square[kLanes];
        for (std::size_t i = 0; i < kLanes; ++i)
          square[i] = V::load(from + (row + i) * from_pitch + column) * scale;
        V::transpose(square);
        for (std::size_t i = 0; i < kLanes; ++i)
          V::store(to + (column + i) * to_pitch + row, square[i]);
      }
    }
  }
};

struct RowsJob {
  const float *a, *b;
  std::size_t rows, lanes;
  float* sums;

  template <class Unit>
  TENSOROPT_INLINE void run() const {
    using V = typename Unit::V;
    for (std::size_t row = 0; row < rows; ++row) {
      typename V::Floats sum{};
      for (std::size_t at = 0; at < lanes; at += Unit::kLanes)
        sum += V::load(a + row * lanes + at) * V::load(b + row * lanes + at);
      float all = 0;
      for (std::size_t i = 0; i < Unit::kLanes; ++i) all += sum[i];
      sums[row] = all;
    }
  }
};

}  // namespace

void multiply(const Product& product) {
  run_on_vectors(ProductJob<false, Start::Zero>{product, nullptr});
}

void add_product(const Product& product) {
  run_on_vectors(ProductJob<false, Start::Sum>{product, nullptr});
}

void add_transposed_product(const Product& product, const float* factors) {
  if (factors) run_on_vectors(ProductJob<true, Start::Decayed>{product, factors});
  else run_on_vectors(ProductJob<true, Start::Sum>{product, nullptr});
}

void weigh(const Tile& tile, const Softmax& softmax) { run_on_vectors(WeighJob{tile, softmax}); }

void differentiate(const Tile& tile, float* products, const float* logs, const float* deltas) {
  run_on_vectors(DifferentiateJob{tile, products, logs, deltas});
}

void cap_scores(const Tile& tile, float cap, float* slopes) {
  run_on_vectors(CapJob{tile, cap, slopes});
}

void mask_scores(const Tile& tile, const float* from, const float* to) {
  run_on_vectors(MaskJob{tile, from, to});
}

void draw_factors(const Tile& tile, const WeightDropout& dropout) {
  run_on_vectors(DrawJob{tile, dropout});
}

void add_to_scores(const Tile& tile, const float* terms) { run_on_vectors(AddJob{tile, terms}); }

void scale_scores(const Tile& tile, float factor) {
  run_on_vectors(ScaleJob{tile, factor, nullptr});
}

void multiply_scores(const Tile& tile, const float* factors) {
  run_on_vectors(ScaleJob{tile, 0.0f, factors});
}

void transpose(const float* from, std::size_t from_pitch, std::size_t rows, std::size_t columns,
               float* to, std::size_t to_pitch, float factor) {
  run_on_vectors(TransposeJob{from, from_pitch, rows, columns, to, to_pitch, factor, nullptr});
}

void transpose(const float* from, std::size_t from_pitch, std::size_t rows, std::size_t columns,
               float* to, std::size_t to_pitch, const float* factors) {
  run_on_vectors(TransposeJob{from, from_pitch, rows, columns, to, to_pitch, 0.0f, factors});
}

void multiply_rows(const float* a, const float* b, std::size_t rows, std::size_t lanes,
                   float* sums) {
  run_on_vectors(RowsJob{a, b, rows, lanes, sums});
}

}  // namespace tensoropt
