// Which collectives run while operators do, and what of their time that hides.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "joins.hpp"
#include "tasks.hpp"

namespace tensoropt::search {

// What it takes to let a collective run beside operators.
struct Overlapping {
  double start_s = 0;            // a start and its wait, beyond the collective alone
  double share = 1;              // of a transfer's time, which operators beside it lose
  double copied_s_per_byte = 0;  // of what a wait hands out of the program
  bool keeps_peak = true;        // whether it may take no more memory than the program does anyway

  bool gains() const { return share < 1; }
};

// A program in which some collectives begin before, and are waited for behind, what runs meanwhile.
struct Overlapped {
  enum class What : std::uint8_t { Runs, Starts, Waits };
  struct Event {
    std::int32_t task;  // of collectives that are one the first
    What what;
  };
  std::vector<Event> events;         // in their order
  Places places{{}};                 // of tasks among the events
  std::vector<double> begin_s;       // of each task
  std::array<double, 2> hidden_s{};  // by part of a training step
  std::int64_t peak = 0;
  bool any = false;  // whether a collective begins early
};

// Lets collectives begin early and wait late where two clocks, of operators and of collectives, say
// that it hides more than it costs, within the memory that the program takes anyway if the peak is
// to be kept: nothing begins earlier or is waited for later than that needs, but for waits that
// cost no more memory. What would delay a collective that is not started begins behind it, where
// that gains. All collectives keep one order, that of their starts. Linear in the program, times a
// few rounds.
Overlapped overlap(const Tasks& tasks, const Joined& joined,
                   const std::vector<CollectiveTime>& times, const Overlapping& how);

// Joins collectives, and overlaps what comes of it, so that the program ends first: a larger one
// starts later. Several limits to what is joined are tried.
std::pair<Joined, Overlapped> join_beside(const Tasks& tasks,
                                          const std::vector<CollectiveTime>& times,
                                          const Overlapping& how);

}  // namespace tensoropt::search
