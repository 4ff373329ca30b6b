// The current collective of this rank, for reports while it hangs, and its progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tensoropt {

// The node's text ("AllReduce node 'name'"), stored for the life of the process.
const std::string& lasting(const std::string& node);

// Alive while a collective runs. On a device it ends when all work is enqueued, not when it is
// done.
class InCollective {
 public:
  InCollective(const std::string& node, bool on_device);
  ~InCollective();
  InCollective(const InCollective&) = delete;

 private:
  const std::string& node_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Alive while a node of the graph is blocked by a collective: its own or an earlier one.
class Held {
 public:
  Held() = default;
  ~Held();
  Held(const Held&) = delete;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Seconds that nodes were blocked so far, mostly by slower ranks. Transfers that overlap with other
// nodes do not count.
double collectives_s();

// Starts or stops recording the time of each collective; clears earlier records.
void record_collectives(bool is_on);

// The recorded times, in order: one line "SECONDS NODE" each.
std::string recorded_collectives();

// Counts progress outside of collectives: a run of a graph begins or ends, a message arrives.
// `wait` is the text of a wait that begins ("waiting for other stages"), empty otherwise. From any
// thread.
void move(const std::string& wait);

// The progress of this rank so far: all moves, and two for each collective. From any thread.
std::uint64_t moves();

// The text of the current wait outside of collectives, "in NODE (collective 17)", "after NODE (17
// collectives done)", "after enqueueing NODE (17 collectives)" or "before its first collective".
// From any thread.
std::string where();

}  // namespace tensoropt
