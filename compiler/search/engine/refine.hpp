// Search of one box of the (time, memory) plane.
#pragma once

#include <vector>

#include "lists.hpp"

namespace tensoropt::search {

// Points per cell of a search that only has to find some good points.
inline constexpr std::size_t kCap = 16;

// A model with its plans, and the bounds of the time and memory lines if already computed.
struct Prepared {
  Model model;
  Plan plan;     // for lists
  Plan numbers;  // for numbers; equal parts are shared
  Bounds bounds;
};

// Returns the values that the transient maximum can take, ascending: at least `lowest` and the
// level that every assignment reaches, at most `highest`.
std::vector<double> transient_levels(const Model& model, double lowest = 0,
                                     double highest = kInfinity);

// Returns the bytes of the plan's tables if each of `threads` threads has its own.
double need_of(const Plan& plan, int threads);

// Throws TooLarge if that is more than `budget`.
void check_size(const Plan& plan, double budget, int threads = 2);

// Finds all Pareto points in the box; after an exception, `found` has the points so far. Narrows
// the model to useful options, one range of transient levels at a time, until its elimination is
// cheap. A box over `effort.sums` is divided. Without a mixed line it cannot be, and OverBudget or
// OutOfMemory is thrown. Throws Stopped at the token's end, and OutOfMemory if an indivisible part
// has no room.
void search_box(const Prepared& whole, const Box& box, const Effort& effort, const Token& token,
                std::vector<Solution>& found);

}  // namespace tensoropt::search
