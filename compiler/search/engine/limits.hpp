// Limits that the points of a cell must meet to be of use in a box.
#pragma once

#include <algorithm>
#include <vector>

#include "lists.hpp"

namespace tensoropt::search {

inline bool allows(const Limits& limits, double time, double fixed, std::int32_t level) {
  return time <= limits.time && fixed < limits.fixed[level] &&
         time + limits.slope * fixed <= limits.mixed[level];
}

// Limits of every cell: the box, less the least cost of everything outside the cell.
class Limiter {
 public:
  Limiter(const Cost& base, const Box& box, const Bounds& bounds, const std::vector<double>& levels)
      : base_(base), box_(box), bounds_(bounds), levels_(levels) {}

  std::int32_t level_of(double transient) const {
    auto it = std::lower_bound(levels_.begin(), levels_.end(), transient);
    return std::int32_t(it - levels_.begin());
  }

  void set(Limits& limits, int table, std::size_t cell) const {
    limits.time =
        box_.time == kInfinity ? kInfinity : box_.time - base_.time - bounds_.time[table][cell];
    limits.slope = box_.mixed.limit == kInfinity ? 0 : box_.mixed.memory;
    limits.fixed.assign(levels_.size(), kInfinity);
    limits.mixed.assign(levels_.size(), kInfinity);
    for (std::size_t l = 0; l < levels_.size(); ++l) {
      const double fixed = base_.fixed + levels_[l];
      if (box_.memory != kInfinity)
        limits.fixed[l] = box_.memory - fixed - bounds_.memory[table][cell] + 1;
      if (box_.mixed.limit != kInfinity)
        limits.mixed[l] = loosen(box_.mixed.limit) - base_.time - limits.slope * fixed -
                          bounds_.mixed[table][cell];
    }
  }

 private:
  const Cost& base_;
  const Box& box_;
  const Bounds& bounds_;
  const std::vector<double>& levels_;
};

}  // namespace tensoropt::search
