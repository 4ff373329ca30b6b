// C functions for starting a job and querying its ranks, from Python or any program.
#include <map>
#include <string>

#include "start/control.hpp"
#include "start/launch_environment.hpp"
#include "start/start.hpp"
#include "start/start_over_mpi.hpp"

#define TENSOROPT_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// Returns the error of `body`, NULL if none; valid until the next call on this thread.
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

// Initialises MPI if it is not, with the shared values of this rank's job (start.hpp), which may be
// "". Returns NULL, or an error of one line.
TENSOROPT_EXPORT const char* tensoropt_start(const char* job) {
  return error_of([=] { tensoropt::start(job); });
}

// Sets this process's rank and the number of ranks, from the environment alone. The number is 0 if
// only MPI has it; `is_launched` is 0 if the process was not launched as a rank. Returns NULL, or
// an error of one line.
TENSOROPT_EXPORT const char* tensoropt_ranks(int* rank, int* size, int* is_launched) {
  return error_of([=] {
    const auto place = tensoropt::place_from_environment();
    *rank = place.rank;
    *size = place.size;
    *is_launched = place.launched;
  });
}

// Connects all ranks of a job that MPI has started with rank 0, for `tensoropt_ask` and
// `tensoropt_fail`. Collective. Returns NULL, or an error of one line.
TENSOROPT_EXPORT const char* tensoropt_watch(void) { return error_of(tensoropt::watch_over_mpi); }

// Ends all other connected ranks, which print "rank R of N: `why`"; this rank continues.
TENSOROPT_EXPORT void tensoropt_fail(const char* why) { tensoropt::say_fail(why); }

// On rank 0: the activity of ranks that answer within `seconds`, one per line: "RANK WHAT".
TENSOROPT_EXPORT const char* tensoropt_ask(double seconds) {
  static thread_local std::string text;
  text.clear();
  for (const auto& [rank, what] : tensoropt::ask_all(seconds))
    text += std::to_string(rank) + " " + what + "\n";
  return text.c_str();
}
