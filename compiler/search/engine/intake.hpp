// The user's tables, and the model made of them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model.hpp"

namespace tensoropt::search {

// The costs that become 1, both powers of two.
struct Units {
  double time = 1, memory = 1;
};

// A problem as it is given; the engine reads the tables where they are.
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

  // The model: equal tables are one, and costs are whole numbers of units of 2^-52 of the largest
  // total of each objective, each table counted as often as it is used: `units` tells them.
  Model model(Units& units, int threads) const;
};

}  // namespace tensoropt::search
