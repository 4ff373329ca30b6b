// The best choice under a weighted sum of both objectives.
#pragma once

#include <vector>

#include "refine.hpp"

namespace tensoropt::search {

// A choice with the least weighted sum of time and memory, and that sum as a lower bound. Where the
// search for it was cut short, the best choice until then, and what all take at least.
struct Supported {
  double bound = kInfinity;
  Solution solution;
  bool exact = true;
};

// Minimises time * t + memory * M over all levels of the transient maximum. With one of the weights
// zero, the choice is the best in the other objective among the minima. The bound is infinite where
// no choice is allowed. `around`, if given, gets what lies outside every entry, where the problem
// is large enough for that to be computed. Throws Stopped where the token ends before any choice is
// found.
Supported minimise(const Prepared& whole, const std::vector<double>& levels, double time,
                   double memory, const Token* token = nullptr, Outside* around = nullptr);

}  // namespace tensoropt::search
