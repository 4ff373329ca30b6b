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
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// How long this rank has been in collectives so far, most of it waiting where others are slower.
double collectives_s();

// "in NODE (collective 17)", "after NODE (17 collectives done)", "after enqueueing NODE (17
// collectives)" or "before its first collective". From any thread.
std::string where();

}  // namespace tensoropt
