// Steps that are matrix products, with min and + for plus and times.
#pragma once

#include <optional>
#include <vector>

#include "minplus.hpp"

namespace tensoropt::search {

// Returns the place of the only input with rows, if rows along the last outer dimension share a row
// of it: out[r][x] = min over v of terms[v][r] + factor[v][x].
std::optional<std::size_t> factor_of(const Step& step);

// A product step, computed in m x n blocks of its output.
struct Product {
  // Entry (v, r) is at first[v * stride + r].
  struct Terms {
    const double* first;
    std::size_t stride;
  };

  Step step;  // without the last outer dimension
  std::size_t factor, m, n;
  std::vector<const double*> tables;
  std::vector<std::size_t> along;  // strides of the inputs over the last outer dimension

  Product(const Step& s, std::size_t place, const Values& values);

  // Returns the sums of the inputs except the factor, for the block at these offsets.
  Terms sums(const std::size_t* offset);

 private:
  std::optional<std::size_t> only_term() const;
  void add_term(std::size_t i, const double* from);

  std::vector<double> sum_;
};

}  // namespace tensoropt::search
