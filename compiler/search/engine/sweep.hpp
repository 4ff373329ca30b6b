// The whole frontier: extremes, supported points with a certificate, then the gaps between them.
#pragma once

#include <vector>

#include "minimise.hpp"
#include "progress.hpp"
#include "refine.hpp"

namespace tensoropt::search {

// A lower bound: time * t + memory * M >= bound for every assignment.
struct Support {
  double time, memory, bound;
};

struct Options {
  double epsilon = 0;
  int threads = 1;
  double direct_sums = 0;           // effort for one elimination over the whole plane first
  double box_sums = 0;              // effort for a gap before it is divided
  double line_sums = 1e7;           // with a time limit, larger eliminations draw lines first
  bool hull_only = false;           // stop when the supported points are known
  std::vector<Cost> known = {};     // found elsewhere: points that these dominate may be missing
  std::vector<Support> lines = {};  // bounds known from elsewhere
};

struct Result {
  std::vector<Solution> points;  // sorted by time, none beats another
  double epsilon = 0;            // every assignment is within this of a point, or of `known`
  double time_epsilon = 0;       // largest relative excess of the fastest point's time
  std::vector<Support> lines;    // valid for every assignment, without the given lines
  int supported = 0;             // points found by the sweep
  double hull_epsilon = 0;       // the bound before any gap was searched
  int gaps = 0, open_gaps = 0;   // gaps to search; gaps that the limits left open
  bool short_of_memory = false;  // a gap stayed open for lack of memory
};

// The ends of a search. At the end of `enough` it returns the points so far. These include the
// fastest and the leanest, in a large problem only the best known ones. At the end of `last` it
// gives up if there are no points.
struct Until {
  const Token& enough;
  const Token& last;
};

// Returns the frontier, empty if no assignment is allowed; `progress` follows the search. Throws
// Stopped if `until.last` ends before two points are known.
Result solve_frontier(Prepared& whole, const Options& options, const Until& until,
                      Progress& progress);

}  // namespace tensoropt::search
