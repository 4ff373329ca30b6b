// A slower link between ranks than this machine has: for tests and measurements on one machine.
#pragma once

#include "collective.hpp"

namespace tensoropt {

// TENSOROPT_LINK_LATENCY_S and TENSOROPT_LINK_BYTES_PER_S, read once; 0 where one is not set.
// Throws where one is not a positive number.
struct Link {
  double latency_s = 0, s_per_byte = 0;
};
const Link& link_of_environment();

// Seconds that a collective takes on such a link, where each of `ranks` puts in `bytes`: the least
// of the known algorithms, as the cost model has it (compiler/cost/communication.py).
double link_time_s(const Link& link, Kind kind, std::size_t ranks, double bytes);

// Lets that time pass, asleep.
void wait_for_link(Kind kind, std::size_t ranks, std::size_t bytes);

}  // namespace tensoropt
