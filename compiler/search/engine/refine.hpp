// Search of one box of the (time, memory) plane.
#pragma once

#include <vector>

#include "lists.hpp"

namespace tensoropt::search {

// A model with its plans, and the bounds of the time and memory lines if they are known already.
struct Prepared {
  Model model;
  Plan plan;     // for lists
  Plan numbers;  // for numbers, which are shared among equal parts
  Bounds bounds;
};

// The values that the transient maximum can take, ascending: none below `lowest` or below what
// every choice reaches, none above `highest`.
std::vector<double> transient_levels(const Model& model, double lowest = 0,
                                     double highest = kInfinity);

// What the tables of the plan need in bytes, where so many threads each eliminate over them.
double need_of(const Plan& plan, int threads);

// Throws TooLarge when that is more than `budget`.
void check_size(const Plan& plan, double budget, int threads = 2);

// Finds all Pareto points in the box; those found so far are in `found` when an exception ends it.
// Narrows the model to the configurations that can be part of one, range of transient levels by
// range, until elimination of what is left is cheap. Past `effort.sums` a box is divided, or
// OverBudget or OutOfMemory thrown if it has no mixed line to go by. Throws Stopped at the token's
// end, OutOfMemory where not even a part that cannot be divided has room.
void search_box(const Prepared& whole, const Box& box, const Effort& effort, const Token& token,
                std::vector<Solution>& found);

}  // namespace tensoropt::search
