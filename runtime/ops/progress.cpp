#include "progress.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>

namespace tensoropt {
namespace {

// Collectives of a rank run one after another: a single writer. A reader who meets it in between
// tries again.
std::atomic<const std::string*> current = nullptr;
std::atomic<bool> enqueues = false;
std::atomic<std::uint64_t> entered = 0, left = 0;
std::atomic<std::int64_t> spent_ns = 0;

std::string text_of(const std::string& node, bool on_device, std::uint64_t number, bool inside) {
  const auto count = std::to_string(number);
  if (inside) return "in " + node + " (collective " + count + ")";
  if (on_device) return "after enqueueing " + node + " (" + count + " collectives)";
  return "after " + node + " (" + count + " collectives done)";
}

}  // namespace

const std::string& lasting(const std::string& node) {
  static std::mutex mutex;
  static auto& nodes = *new std::set<std::string>;  // outlives the destructors of other statics
  const std::lock_guard lock(mutex);
  return *nodes.insert(node).first;
}

InCollective::InCollective(const std::string& node, bool on_device) {
  current = &node;
  enqueues = on_device;
  ++entered;
}

InCollective::~InCollective() {
  const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start_;
  spent_ns += spent.count();
  ++left;
}

double collectives_s() { return static_cast<double>(spent_ns) * 1e-9; }

std::string where() {
  for (;;) {
    const auto number = entered.load();
    const auto* node = current.load();
    const bool on_device = enqueues, inside = left != number;
    if (entered != number) continue;
    if (!node || !number) return "before its first collective";
    return text_of(*node, on_device, number, inside);
  }
}

}  // namespace tensoropt
