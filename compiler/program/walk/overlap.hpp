// Overlap of collectives with operators, and the communication time that this hides.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "joins.hpp"
#include "tasks.hpp"

namespace tensoropt::program {

// The costs of running a collective while operators run.
struct Overlapping {
  double start_s = 0;            // a start and its wait, on top of the collective alone
  double share = 1;              // of a transfer's time, lost by operators that run during it
  double copied_s_per_byte = 0;  // of a collective's result that leaves the program
  bool keeps_peak = true;        // no more peak memory than without overlap

  bool gains() const { return share < 1; }
};

// A program in which some collectives start early and are waited for late.
struct Overlapped {
  enum class What : std::uint8_t { Runs, Starts, Waits };
  struct Event {
    std::int32_t task;  // the first of fused collectives
    What what;
  };
  std::vector<Event> events;         // in their order
  Places places{{}};                 // of tasks among the events
  std::vector<double> begin_s;       // of each task
  std::array<double, 2> hidden_s{};  // by part of a training step
  std::int64_t peak = 0;
  bool any = false;         // whether a collective starts early
  bool is_limited = false;  // of `join_beside`: whether more would be hidden if the peak may rise

  double total_s() const { return hidden_s[0] + hidden_s[1]; }
};

// Starts collectives early and waits for them late. Two clocks, of operators and of collectives,
// tell whether this hides more than it costs. With `keeps_peak` the program takes no more memory
// than before. Windows are as narrow as possible, except that waits move back if that costs no
// memory. A started collective that would delay an unstarted one begins after it, if that gains.
// All collectives keep one order, the order of their starts. Linear in the program, times a few
// rounds.
Overlapped overlap(const Tasks& tasks, const Joined& joined,
                   const std::vector<CollectiveTime>& times, const Overlapping& how);

// Fuses collectives and overlaps the result, so that the program ends first: a larger collective
// starts later. Tries several limits on the time of a fused collective.
std::pair<Joined, Overlapped> join_beside(const Tasks& tasks,
                                          const std::vector<CollectiveTime>& times,
                                          const Overlapping& how);

}  // namespace tensoropt::program
