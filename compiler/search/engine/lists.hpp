// Variable elimination over frontiers: all useful points inside a box.
#pragma once

#include <vector>

#include "memory.hpp"
#include "merge.hpp"
#include "minplus.hpp"

namespace tensoropt::search {

// A weighted limit: useful points have time * t + memory * M <= `limit`. An infinite limit disables
// it.
struct Line {
  double time = 1, memory = 0, limit = kInfinity;
};

// The requested points: time and memory at most these (whole units), and below the mixed line.
struct Box {
  double time = kInfinity, memory = kInfinity;
  Line mixed{1, 0, kInfinity};
  double shrink = 1;  // points within this factor of a found point are of no use
  Line fastest() const { return {1, 0, time}; }
  Line leanest() const { return {0, 1, memory}; }
};

// Lower bounds on the cost of everything outside a table, for the three lines of a box.
struct Bounds {
  Outside time, memory, mixed;
};

struct Solution {
  Cost cost;
  CountedVector<int> choice;  // per user variable
};

// The limits of an elimination: the sums that it may form before it gives up, and the points that
// it may keep per cell.
struct Effort {
  std::uint64_t sums = UINT64_MAX;
  std::size_t cap = SIZE_MAX;
  int threads = 1;
};

struct OverBudget : std::exception {
  const char* what() const noexcept override { return "an elimination is over its effort"; }
};

// Returns all Pareto points of the model inside the box, each with an assignment. None is missing
// unless the lists are capped. The transient maximum is rounded up to one of `levels`, which
// ascend. Throws Stopped at the token's end, OverBudget past `effort.sums`, OutOfMemory past the
// budget.
std::vector<Solution> frontier_of(const Model& model, const Plan& plan, const Box& box,
                                  const Bounds& bounds, const std::vector<double>& levels,
                                  const Effort& effort, const Token& token);

// Sorts by time and drops duplicates and dominated points.
void keep_best(std::vector<Solution>& points);

// Adds an allowance for rounding to a bound that is not a whole number.
inline double loosen(double limit) { return limit + kRounding * limit; }

}  // namespace tensoropt::search
