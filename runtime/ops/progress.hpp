// What this rank is doing, for whoever asks while it does not come back.
#pragma once

#include <chrono>
#include <string>

namespace tensoropt {

// The node's text ("AllReduce node 'name'"), kept for the life of the process.
const std::string& lasting(const std::string& node);

// Alive while a collective runs. On a device it ends when all is enqueued, not when it is done.
class InCollective {
 public:
  InCollective(const std::string& node, bool on_device);
  ~InCollective();
  InCollective(const InCollective&) = delete;

 private:
  const std::string& node_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Alive while a node of the graph does nothing but wait for a collective, its own or one before it.
class Held {
 public:
  Held() = default;
  ~Held();
  Held(const Held&) = delete;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// How long nodes were held so far, most of it where other ranks are slower. What goes on beside
// other nodes is no part of it.
double collectives_s();

// From now on, or no more, each collective's time is written down; what was is forgotten.
void record_collectives(bool is_on);

// What was written down, in order: "SECONDS NODE", a line each.
std::string recorded_collectives();

// "in NODE (collective 17)", "after NODE (17 collectives done)", "after enqueueing NODE (17
// collectives)" or "before its first collective". From any thread.
std::string where();

}  // namespace tensoropt
