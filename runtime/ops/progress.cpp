#include "progress.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <sstream>

namespace tensoropt {
namespace {

// Collectives of a rank run in sequence, on any threads: there is a single writer. A reader
// that sees a change in between retries.
std::atomic<const std::string*> current = nullptr;
std::atomic<bool> enqueues = false;
std::atomic<std::uint64_t> entered = 0, left = 0, others = 0;
std::atomic<const std::string*> waiting = nullptr;
std::atomic<std::int64_t> held_ns = 0;

std::atomic<bool> is_recording = false;
std::mutex record_mutex;
auto& record = *new std::ostringstream;  // outlives the destructors of other statics

std::int64_t ns_since(std::chrono::steady_clock::time_point start) {
  const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start;
  return spent.count();
}

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

InCollective::InCollective(const std::string& node, bool on_device) : node_(node) {
  current = &node;
  enqueues = on_device;
  ++entered;
}

InCollective::~InCollective() {
  ++left;
  if (!is_recording) return;
  const std::lock_guard lock(record_mutex);
  record << double(ns_since(start_)) * 1e-9 << " " << node_ << "\n";
}

Held::~Held() { held_ns += ns_since(start_); }

double collectives_s() { return double(held_ns) * 1e-9; }

void record_collectives(bool is_on) {
  const std::lock_guard lock(record_mutex);
  record.str("");
  is_recording = is_on;
}

std::string recorded_collectives() {
  const std::lock_guard lock(record_mutex);
  return record.str();
}

void move(const std::string& wait) {
  waiting = wait.empty() ? nullptr : &lasting(wait);
  ++others;
}

std::uint64_t moves() { return entered + left + others; }

std::string where() {
  for (;;) {
    const auto number = entered.load();
    const auto* node = current.load();
    const bool on_device = enqueues, inside = left != number;
    if (entered != number) continue;
    const auto* wait = waiting.load();
    if (wait && !inside) return *wait;
    if (!node || !number) return "before its first collective";
    return text_of(*node, on_device, number, inside);
  }
}

}  // namespace tensoropt
