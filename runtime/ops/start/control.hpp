// A rank's end of its connections to the hub (hub.hpp has the protocol).
#pragma once

#include <functional>
#include <map>
#include <string>

#include "start/identity.hpp"
#include "start/sockets.hpp"

namespace tensoropt {

struct Joined {
  Socket control, pmi;
  std::string read{};  // bytes that came on `control` after what was expected
  std::string job{};   // its name, to MPICH
};

struct Visit {
  std::function<Socket()> connect;
  std::string where;  // the hub is, for errors
  int rank, size;
  bool with_pmi;
  double timeout_s;  // for the hub to be found, and as long for the others
  Identity identity;
};

// Comes to the hub and waits until all ranks are there. Throws `Error`.
Joined join(const Visit& visit);

// From now on a thread of this process reads what the hub says. When the job has failed, or rank 0
// is gone, it prints one line on stderr, aborts communicators, and ends the process with status 1.
void watch(Joined joined, int rank, int size);
bool is_watched();

// Say to the hub that this process ends; with `fail` and `left` the job has failed, and this
// returns when every rank that listens knows it, at the latest after a few seconds. Where the job
// ends by another rank, which this one's failure followed from, it does not return, but ends the
// process.
void say_bye();
void say_fail(const std::string& why);
void say_left(int status);

// For a thread that has seen another rank gone: until the hub, which hears of it too, has ended
// this process, or for a few seconds.
void wait_for_the_end();

// On rank 0: what each rank is doing, of those that answer within `seconds`.
std::map<int, std::string> ask_all(double seconds);

}  // namespace tensoropt
