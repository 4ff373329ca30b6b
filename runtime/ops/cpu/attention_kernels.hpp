// Kernels of attention on tiles of scores. A tile has a row per key and a lane per query, so sums
// and maxima over keys need no sums within a vector, and no operand of a product is transposed
// except the queries, once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/attention.hpp"
#include "cpu/sum_block.hpp"

namespace tensoropt {

// Numbers of lanes are multiples of kLaneUnit; numbers of rows of products of kRowUnit.
inline constexpr std::size_t kLaneUnit = 16, kRowUnit = 8;

inline constexpr float kLog2E = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

// a(r, i) is a[r][i].
void multiply(const Product& product);
void add_product(const Product& product);  // to c

// a(r, i) is a[i][r]. Adds to c, after c[r][x] was multiplied by factors[x] if there are any.
void add_transposed_product(const Product& product, const float* factors);

// The scores of some keys (rows) and queries (lanes), base 2: multiplied by log2(e).
struct Tile {
  float* scores;
  std::size_t pitch;
  std::size_t keys, lanes;
};

// The softmax so far of each query.
struct Softmax {
  float* maxima;
  float* sums;
  float* decays;  // factors of earlier sums
};

// Replaces scores by powers of two of their difference to the maximum, which it updates.
void weigh(const Tile& tile, const Softmax& softmax);

// Replaces scores by weights, 2 to the power of score - logs[x], and products by the gradients of
// scores, weight * (product - deltas[x]).
void differentiate(const Tile& tile, float* products, const float* logs, const float* deltas);

// Replaces scores s by cap * tanh(s / cap), and writes the derivative to `slopes` if not null.
void cap_scores(const Tile& tile, float cap, float* slopes);

// A query reads the keys `from[x]` up to `to[x]` inclusive, relative to the first of the tile. The
// scores of others become -infinity.
void mask_scores(const Tile& tile, const float* from, const float* to);

// Replaces scores by the factors of weights, 0 or the scale of the dropout. It has the seeds of the
// lanes and keys of the tile.
void draw_factors(const Tile& tile, const WeightDropout& dropout);

void add_to_scores(const Tile& tile, const float* terms);  // of the same pitch
void scale_scores(const Tile& tile, float factor);
void multiply_scores(const Tile& tile, const float* factors);  // of the same pitch

// to[c][r] = from[r][c] * factor. Rows and columns are multiples of kLaneUnit.
void transpose(const float* from, std::size_t from_pitch, std::size_t rows, std::size_t columns,
               float* to, std::size_t to_pitch, float factor);

// The same with a factor for each column.
void transpose(const float* from, std::size_t from_pitch, std::size_t rows, std::size_t columns,
               float* to, std::size_t to_pitch, const float* factors);

// sums[r] = sum over x of a[r][x] * b[r][x], of rows of `lanes` floats.
void multiply_rows(const float* a, const float* b, std::size_t rows, std::size_t lanes,
                   float* sums);

}  // namespace tensoropt
