// A rank's side of its connections to the hub (hub.hpp describes the protocol).
#pragma once

#include <functional>
#include <map>
#include <string>

#include "start/identity.hpp"
#include "start/sockets.hpp"

namespace tensoropt {

struct Joined {
  Socket control, pmi;
  std::string read{};  // bytes that arrived on `control` after the expected line
  std::string job{};   // the job's name for MPICH
};

struct Visit {
  std::function<Socket()> connect;
  std::string where;  // address of the hub, for errors
  int rank, size;
  bool with_pmi;
  double timeout_s;  // for finding the hub, and again for the other ranks
  Identity identity;
};

// Connects to the hub and waits until all ranks are connected. Throws `Error`.
Joined join(const Visit& visit);

// Starts a thread that reads the hub's lines. When the job has failed, or rank 0 has ended, it
// prints one line on stderr, aborts communicators, and ends the process with status 1.
void watch(Joined joined, int rank, int size);
bool is_watched();

// Report to the hub that this process ends. After `fail` and `left` the job has failed: they return
// when every connected rank has been informed, at most after a few seconds. If another rank caused
// this rank's failure, they do not return, but end the process.
void say_bye();
void say_fail(const std::string& why);
void say_left(int status);

// For a thread that has found another rank dead: waits until the hub, which will notice as well,
// ends this process, but at most a few seconds.
void wait_for_the_end();

// On rank 0: the activity of each rank that answers within `seconds`.
std::map<int, std::string> ask_all(double seconds);

}  // namespace tensoropt
