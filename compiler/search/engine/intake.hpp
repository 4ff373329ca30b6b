// The caller's tables, and the model made from them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model.hpp"

namespace tensoropt::search {

// The costs that become 1 in the model, both powers of two.
struct Units {
  double time = 1, memory = 1;
};

// A problem in the caller's memory; the engine reads the tables without a copy.
struct Intake {
  struct Given {
    std::span<const double> time, fixed, transient;  // memory left out is zero
  };
  struct Pair {
    int a, b;
    std::size_t table;
  };

  std::vector<Given> tables;
  std::vector<std::size_t> nodes;  // node -> table
  std::vector<Pair> edges;

  // Builds the model: equal tables are stored once, and costs are whole numbers of `units`. A unit
  // is 2^-52 of the largest total of its objective. The total counts each table once per use.
  Model model(Units& units, int threads) const;
};

}  // namespace tensoropt::search
