// What a search is at, for a reader on another thread.
#pragma once

#include <atomic>
#include <limits>

namespace topt::search {

struct Progress {
  enum Phase { extremes, supported, filling, searching };
  std::atomic<int> phase{extremes};
  std::atomic<double> epsilon{std::numeric_limits<double>::infinity()};  // the bound proven so far
  std::atomic<int> done{0}, gaps{0};  // of the gaps that are searched
};

}  // namespace topt::search
