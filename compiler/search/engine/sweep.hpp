// The whole frontier: extremes, supported points with a certificate, then the gaps between them.
#pragma once

#include <vector>

#include "minimise.hpp"
#include "progress.hpp"
#include "refine.hpp"

namespace tensoropt::search {

// What holds of every choice that is not within a factor 1 + `within` of a point:
// time * t + memory * M >= bound.
struct Support {
  double time, memory, bound;
  double within = 0;
};

struct Options {
  double epsilon = 0;
  int threads = 1;
  double direct_sums = 0;  // effort to spend on one elimination over the whole plane first
  double box_sums = 0;     // effort to spend on a gap before it is divided
  double line_sums = 1e8;  // sums of an elimination from which on lines come first, where time ends
  bool hull_only = false;  // stop when the supported points are known
  std::vector<Cost> known = {};  // points that others have found: what they beat need not be found
  std::vector<Support> lines = {};  // that are known to hold
};

struct Result {
  std::vector<Solution> points;  // sorted by time, none beats another
  double epsilon = 0;       // every other choice is within this of one of the points, or of `known`
  double time_epsilon = 0;  // of the least time that the fastest point may take more
  std::vector<Support> lines;    // that hold of every choice, but for those that were given
  int supported = 0;             // points found by the sweep
  double hull_epsilon = 0;       // what was certified before any gap was searched
  int gaps = 0, open_gaps = 0;   // gaps that had to be searched; those the limits left open
  bool short_of_memory = false;  // a gap stayed open for want of memory
};

// When to stop: at the end of `enough` with the points found so far, of which the fastest and the
// leanest are always two, but of a large problem the best known by then; at the end of `last` with
// nothing if there are none.
struct Until {
  const Token& enough;
  const Token& last;
};

// The frontier, empty if no choice is allowed; `progress` follows the search. Throws Stopped
// when `until.last` ends before any two points are known.
Result solve_frontier(Prepared& whole, const Options& options, const Until& until,
                      Progress& progress);

}  // namespace tensoropt::search
