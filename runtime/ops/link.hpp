// A simulated slower link between ranks, for tests and measurements on one machine.
#pragma once

#include "kind.hpp"

namespace tensoropt {

// TENSOROPT_LINK_LATENCY_S and TENSOROPT_LINK_BYTES_PER_S, read once; 0 if not set. Throws if a
// value is not a positive number.
struct Link {
  double latency_s = 0, s_per_byte = 0;
};
const Link& link_of_environment();

// Seconds of a collective on the link, if each of `ranks` contributes `bytes`, by the fastest of
// the known algorithms.
double link_time_s(const Link& link, const Kind& kind, std::size_t ranks, double bytes);

// Sleeps for the time of a collective on the link.
void wait_for_link(const Kind& kind, std::size_t ranks, std::size_t bytes);

}  // namespace tensoropt
