// Fusion of collectives, and the order in which the program then runs.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "tasks.hpp"

namespace tensoropt::program {

// The time of collectives of one key, by bytes: the least (or the greatest) of some lines, plus a
// term in the square root. Packing is charged for fused collectives.
struct CollectiveTime {
  std::vector<std::pair<double, double>> lines;  // seconds, seconds per byte
  bool greatest = false;
  double s_per_root_byte = 0;
  double packing_s_per_byte = 0;

  double at(double bytes) const;
};

struct Joined {
  std::vector<std::int32_t> order;  // tasks; members of a group are adjacent
  std::vector<std::int32_t> group;  // per task the first task of its group, -1 if not fused
  std::int64_t peak = 0;            // live bytes in that order
  bool any = false;
};

// Fuses collectives if that takes less time, packing included, and does not raise the peak memory
// of the program. No fused collective takes more than `most_s`. Linear in the program, times a few
// rounds.
Joined join(const Tasks& tasks, const std::vector<CollectiveTime>& times,
            double most_s = std::numeric_limits<double>::infinity());

// Returns the seconds of one collective, or of several that are fused.
double group_s(const Tasks& tasks, const std::vector<CollectiveTime>& times,
               std::span<const std::int32_t> members);

// Returns the seconds that each group saves by fusion, and its part of the training step.
std::vector<std::pair<double, std::uint8_t>> saved_s(const Joined& joined, const Tasks& tasks,
                                                     const std::vector<CollectiveTime>& times);

// Returns the tasks in their order as units; the members of a group are one unit.
std::vector<std::span<const std::int32_t>> units_of(const Joined& joined);

// Returns the place of each task in the order; members of a group share a place.
std::vector<std::int32_t> places(const Joined& joined);

}  // namespace tensoropt::program
