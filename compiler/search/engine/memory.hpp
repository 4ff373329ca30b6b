// How much memory a search may use.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>

namespace tensoropt::search {

// A quarter of the machine's memory, in bytes.
inline double memory_budget() {
  static const double budget =
      0.25 * double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGE_SIZE));
  return budget;
}

// Lists have grown over what they may take.
struct OutOfMemory : std::exception {
  const char* what() const noexcept override {
    return "the lists of the search are over their budget";
  }
};

// What the lists of all threads take together.
class Meter {
 public:
  explicit Meter(double budget_bytes) : budget_(budget_bytes) {}
  void add(std::int64_t bytes) { used_ += bytes; }
  void check() const {
    if (double(used_.load()) > budget_) throw OutOfMemory();
  }

 private:
  const double budget_;
  std::atomic<std::int64_t> used_{0};
};

// The part of it that one owner takes, given back with the owner. Without a meter nothing is
// counted.
class Metered {
 public:
  explicit Metered(Meter* meter) : meter_(meter) {}
  Metered(const Metered&) = delete;
  Metered& operator=(const Metered&) = delete;
  ~Metered() { set(0); }

  void set(std::size_t bytes) {
    if (meter_) meter_->add(std::int64_t(bytes) - std::exchange(bytes_, std::int64_t(bytes)));
  }
  // Throws OutOfMemory when all owners together take too much.
  void check() const {
    if (meter_) meter_->check();
  }

 private:
  Meter* const meter_;
  std::int64_t bytes_ = 0;
};

}  // namespace tensoropt::search
