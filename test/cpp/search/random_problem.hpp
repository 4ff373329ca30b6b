// Small random problems, and the enumeration of their choices.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "intake.hpp"
#include "refine.hpp"

namespace tensoropt::search {

// A user's problem. Costs are small whole numbers, so that sums are exact and ties are frequent. An
// infinite time forbids an entry, and memory may be omitted.
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
  std::vector<Pair> edges;         // between any two nodes; may be parallel

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

// A chain of `layers` equal nodes, each with fast and lean choices.
Problem chain_of_layers(std::size_t layers);

// The non-dominated (time, memory) of `points`, sorted by time.
using Points = std::vector<std::pair<double, double>>;
Points best_of(Points points);

// The frontier, by enumeration.
Points enumerated(const Problem& problem);

// The engine's model: equal tables shared, parallel edges merged, costs in whole units.
Model model_of(const Problem& problem, Units& units);

// The model with its plans, without impossible entries; none if no choice is allowed.
std::optional<Prepared> prepared(const Problem& problem, Units& units);

// In the user's units.
Points points_of(const std::vector<Solution>& solutions, const Units& units);

}  // namespace tensoropt::search
