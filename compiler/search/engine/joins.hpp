// Which collectives of a program become one, and in which order it then runs.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "tasks.hpp"

namespace tensoropt::search {

// The time of collectives alike in bytes: the least of lines, or the greatest, and what grows with
// the square root; and of packing.
struct CollectiveTime {
  std::vector<std::pair<double, double>> lines;  // seconds, seconds per byte
  bool greatest = false;
  double s_per_root_byte = 0;
  double packing_s_per_byte = 0;

  double at(double bytes) const;
};

struct Joined {
  std::vector<std::int32_t> order;  // tasks; those of a group stand together
  std::vector<std::int32_t> group;  // per task the first of its group, -1 for one alone
  std::int64_t peak = 0;            // bytes alive in that order
  bool any = false;
};

// Joins what takes less time as one, packing counted, and needs no more memory than the program
// takes anyway; nothing that takes more than `most_s` as one. Linear in the program, but for a few
// rounds.
Joined join(const Tasks& tasks, const std::vector<CollectiveTime>& times,
            double most_s = std::numeric_limits<double>::infinity());

// Seconds of one collective, or of several that are one.
double group_s(const Tasks& tasks, const std::vector<CollectiveTime>& times,
               std::span<const std::int32_t> members);

// Seconds that each group takes less than its collectives alone, and in which part.
std::vector<std::pair<double, std::uint8_t>> saved_s(const Joined& joined, const Tasks& tasks,
                                                     const std::vector<CollectiveTime>& times);

// The tasks in their order, those of a group together, as parts of it.
std::vector<std::span<const std::int32_t>> units_of(const Joined& joined);

// Per task its place in the order; those of a group have one.
std::vector<std::int32_t> places(const Joined& joined);

}  // namespace tensoropt::search
