// The state of a search, for a reader on another thread.
#pragma once

#include <atomic>
#include <limits>

namespace tensoropt::search {

struct Progress {
  enum class Phase : int { Extremes, Supported, Filling, Searching };
  std::atomic<Phase> phase{Phase::Extremes};
  std::atomic<double> epsilon{std::numeric_limits<double>::infinity()};  // the bound proven so far
  std::atomic<int> done{0}, gaps{0};  // of the gaps that are searched
};

}  // namespace tensoropt::search
