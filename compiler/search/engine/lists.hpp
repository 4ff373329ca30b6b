// Variable elimination over frontiers: every point of use inside a box.
#pragma once

#include <vector>

#include "memory.hpp"
#include "merge.hpp"
#include "minplus.hpp"

namespace tensoropt::search {

// One lower-bound line: no point of use has time * t + memory * M above `limit`. An infinite limit
// switches it off.
struct Line {
  double time = 1, memory = 0, limit = kInfinity;
};

// The points asked for: time and memory at most these (whole units), and below the mixed line.
struct Box {
  double time = kInfinity, memory = kInfinity;
  Line mixed{1, 0, kInfinity};
  double shrink = 1;  // a point within this factor of one already found is of no use
  Line fastest() const { return {1, 0, time}; }
  Line leanest() const { return {0, 1, memory}; }
};

// What everything outside a table costs at least, for the three lines of a box.
struct Bounds {
  Outside time, memory, mixed;
};

struct Solution {
  Cost cost;
  CountedVector<int> choice;  // per user variable
};

// How much an elimination may do: sums it may look at before it gives up, points it may keep per
// cell.
struct Effort {
  std::uint64_t sums = UINT64_MAX;
  std::size_t cap = SIZE_MAX;
  int threads = 1;
};

struct OverBudget : std::exception {
  const char* what() const noexcept override { return "an elimination is over its effort"; }
};

// All Pareto points of the model inside the box, each with a choice, none left out unless the lists
// are capped. `levels` are the values the transient maximum is charged as (ascending; a smaller
// transient counts as the first). Throws Stopped at the token's end, OverBudget past `effort.sums`,
// OutOfMemory past the budget.
std::vector<Solution> frontier_of(const Model& model, const Plan& plan, const Box& box,
                                  const Bounds& bounds, const std::vector<double>& levels,
                                  const Effort& effort, const Token& token);

// Sorts by time and drops every point that another one beats or equals.
void keep_best(std::vector<Solution>& points);

// Allowance for rounding where a bound is not a whole number.
inline double loosen(double limit) { return limit + 1e-10 * limit; }

}  // namespace tensoropt::search
