// The C functions by which Python, or any program, starts a job and asks after it.
#include <map>
#include <string>

#include "start/control.hpp"
#include "start/launch_environment.hpp"
#include "start/start.hpp"
#include "start/start_over_mpi.hpp"

#define TENSOROPT_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// NULL, or what went wrong; valid until the next call on this thread.
template <class Body>
const char* error_of(Body body) {
  static thread_local std::string text;
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    text = error.what();
    return text.c_str();
  }
}

}  // namespace

// Brings MPI up if it is not, with what this rank's job is (start.hpp), "" if nothing is known of
// it. NULL, or an error of one line.
TENSOROPT_EXPORT const char* tensoropt_start(const char* job) {
  return error_of([=] { tensoropt::start(job); });
}

// This process's rank among how many, from the environment alone; 0 of 0 where nobody started it as
// one of several, and a size of 0 beside a rank where only MPI knows. NULL, or an error of one
// line.
TENSOROPT_EXPORT const char* tensoropt_ranks(int* rank, int* size, int* is_launched) {
  return error_of([=] {
    const auto place = tensoropt::place_from_environment();
    *rank = place.rank;
    *size = place.size;
    *is_launched = place.launched;
  });
}

// Connects all ranks of a job that MPI brought together with rank 0, so that `tensoropt_ask` and
// `tensoropt_fail` reach them. Collective. NULL, or an error of one line.
TENSOROPT_EXPORT const char* tensoropt_watch(void) { return error_of(tensoropt::watch_over_mpi); }

// Ends all other ranks that are connected, which print "rank R of N: `why`"; this one goes on.
TENSOROPT_EXPORT void tensoropt_fail(const char* why) { tensoropt::say_fail(why); }

// On rank 0: what the ranks do that answer within `seconds`, one per line: "RANK WHAT".
TENSOROPT_EXPORT const char* tensoropt_ask(double seconds) {
  static thread_local std::string text;
  text.clear();
  for (const auto& [rank, what] : tensoropt::ask_all(seconds))
    text += std::to_string(rank) + " " + what + "\n";
  return text.c_str();
}
