// The best assignment under a weighted sum of both objectives.
#pragma once

#include <vector>

#include "refine.hpp"

namespace tensoropt::search {

// An assignment with the least weighted sum of time and memory, and that sum as a lower bound. If
// the search was stopped early: the best assignment so far, and a lower bound for all.
struct Supported {
  double bound = kInfinity;
  Solution solution;
};

// Minimises time * t + memory * M over all levels of the transient maximum. If one of the weights
// is zero, the other objective breaks ties. The bound is infinite if no assignment is allowed.
// Throws Stopped if the token ends before an assignment is found.
Supported minimise(const Prepared& whole, const std::vector<double>& levels, double time,
                   double memory, const Token* token = nullptr);

}  // namespace tensoropt::search
