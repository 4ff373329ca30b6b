#include "link.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>

#include "overlap/prompt.hpp"

namespace tensoropt {
namespace {

double positive(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return 0;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end || !(value > 0))
    throw Error(std::string(variable) + " must be a positive number, got: " + text);
  return value;
}

Link read_link() {
  const double bytes_per_s = positive("TENSOROPT_LINK_BYTES_PER_S");
  return {positive("TENSOROPT_LINK_LATENCY_S"), bytes_per_s > 0 ? 1 / bytes_per_s : 0};
}

}  // namespace

const Link& link_of_environment() {
  static const Link link = read_link();
  return link;
}

double link_time_s(const Link& link, const Kind& kind, std::size_t ranks, double bytes) {
  if (ranks < 2) return 0;
  double least_s = std::numeric_limits<double>::infinity();
  for (const auto [messages, volume] : kind.algorithms(double(ranks), std::bit_width(ranks - 1)))
    least_s = std::min(least_s, messages * link.latency_s + volume * bytes * link.s_per_byte);
  return least_s;
}

void wait_for_link(const Kind& kind, std::size_t ranks, std::size_t bytes) {
  const auto& link = link_of_environment();
  if (link.latency_s == 0 && link.s_per_byte == 0) return;
  sleep_exactly();
  const std::chrono::duration<double> time(link_time_s(link, kind, ranks, double(bytes)));
  std::this_thread::sleep_for(time);
}

}  // namespace tensoropt
