// The whole frontier: extremes, supported points with a certificate, then the gaps between them.
#pragma once

#include <vector>

#include "refine.hpp"

namespace topt::search {

struct Options {
    double epsilon = 0;
    int threads = 2;
    double direct_sums = 0;  // effort to spend on one elimination over the whole plane first
    double box_sums = 0;     // effort to spend on a gap before it is divided
    bool hull_only = false;  // stop when the supported points are known
};

struct Result {
    std::vector<Solution> points;  // sorted by time, none beats another
    double epsilon = 0;            // every other choice is within this of one of the points
    int supported = 0;             // points found by the sweep
    double hull_epsilon = 0;       // what was certified before any gap was searched
    int gaps = 0, open_gaps = 0;   // gaps that had to be searched; those the time limit left open
};

// A choice with the least weighted sum of time and memory, and that sum as a lower bound.
struct Supported {
    double bound = INF;
    Solution solution;
};

// Minimises time * t + memory * M over all levels of the transient maximum. With one of the weights
// zero, the choice is the best in the other objective among the minima. Throws Stopped at the token's end.
Supported minimise(const Prepared& whole, const std::vector<double>& levels, double time,
                   double memory, const Token* token = nullptr);

// The frontier of a model that has a choice at all. The fastest and the leanest point are exact
// even when the token's time is up. Throws Stopped only when cancelled.
Result solve_frontier(Prepared& whole, const Options& options, const Token& token);

}  // namespace topt::search
