// A rank's end of its connections to the hub (hub.hpp has the protocol).
#pragma once

#include <functional>
#include <map>
#include <string>

#include "start/sockets.hpp"

namespace tensoropt {

struct Joined {
  Socket control, pmi;
  std::string read{};  // bytes that came on `control` after what was expected
};

// Comes to the hub as `rank` of `size`, over connections that `connect` makes, and waits until all
// ranks are there: `timeout_s` for the hub to be found, and as long for the others. `where` says where
// the hub is, for errors. Throws `Error`.
Joined join(const std::function<Socket()> &connect, const std::string &where, int rank, int size,
            bool with_pmi, double timeout_s);

// From now on a thread of this process reads what the hub says. When the job has failed, or rank 0
// is gone, it prints one line on stderr, aborts communicators, and ends the process with status 1.
void watch(Joined joined, int size);
bool is_watched();

// Say to the hub that this process ends; with `fail` and `left` the job has failed, and this returns
// when every rank that listens knows it, at the latest after two seconds.
void say_bye();
void say_fail(const std::string &why);
void say_left(int status);

// On rank 0: what each rank is doing, of those that answer within `seconds`.
std::map<int, std::string> ask_all(double seconds);

}  // namespace tensoropt
