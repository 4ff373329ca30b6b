// Small random problems, and what enumerating all of their choices says of them.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "intake.hpp"
#include "refine.hpp"

namespace tensoropt::search {

// A problem as a user gives it. Costs are small whole numbers, so that sums are exact and ties are
// met often; an infinite time forbids an entry, and memory may be left out.
struct Problem {
  struct Costs {
    std::vector<double> time, fixed, transient;
    std::size_t size() const { return time.size(); }
    Cost at(std::size_t entry) const;
  };
  struct Pair {
    int a, b;
    std::size_t table;
  };
  std::vector<Costs> tables;
  std::vector<std::size_t> nodes;  // node -> table
  std::vector<Pair> edges;         // between any two nodes, more than one as well

  std::size_t size_of(std::size_t node) const { return tables[nodes[node]].size(); }
  Cost cost_of(const std::vector<int>& choice) const;
  // All choices, in the order of an odometer.
  std::vector<std::vector<int>> choices() const;
};

struct Size {
  std::size_t nodes = 5, entries = 4;  // at most
  bool has_transient = true;
};

Problem random_problem(std::mt19937& random, const Size& size = {});

// A chain of `layers` equal nodes, of which each may be fast or lean.
Problem chain_of_layers(std::size_t layers);

// (time, memory), sorted by time: those of `points` that no other one beats or equals.
using Points = std::vector<std::pair<double, double>>;
Points best_of(Points points);

// The frontier, by looking at every choice.
Points enumerated(const Problem& problem);

// As the engine takes it in: equal tables shared, parallel edges merged, costs in whole units.
Model model_of(const Problem& problem, Units& units);

// The model with its plans, entries that no choice can have dropped; nothing where none is allowed.
std::optional<Prepared> prepared(const Problem& problem, Units& units);

// In the user's units.
Points points_of(const std::vector<Solution>& solutions, const Units& units);

}  // namespace tensoropt::search
