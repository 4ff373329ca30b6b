// Products of matrices of float32, for operands that change between runs: nothing is prepared.
#pragma once

#include <cstddef>

namespace tensoropt {

// y = op(a) op(b) + bias, row-major. op(a) has `rows` rows and op(b) `columns` columns. A matrix is
// stored as its transpose if the flag says so. `bias` has a number per column, or is null.
struct Gemm {
  std::size_t rows, depth, columns;
  const float *a, *b, *bias;
  bool transposes_a, transposes_b;
  float* y;

  std::size_t packed_size() const;  // floats that a block needs
};

// A part of a product: some columns, and some terms of their sums. Blocks of the same columns
// follow each other. First all parts of b are packed, then the sums of all chunks of rows are
// extended; parts may be packed in parallel, and chunks summed.
struct GemmBlock {
  GemmBlock(const Gemm& product, std::size_t first_column, std::size_t first_term, float* packed_b);

  std::size_t packed_parts() const;
  void pack(std::size_t part) const;

  std::size_t chunks() const;
  void sum(std::size_t chunk) const;

  // The most columns and terms of a block.
  static constexpr std::size_t kColumns = 480, kTerms = 256;

  const Gemm& gemm;
  std::size_t column, columns, term, terms;
  float* packed;
};

}  // namespace tensoropt
