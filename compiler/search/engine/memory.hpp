// How much memory a search may use.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace tensoropt::search {

// A quarter of the machine's memory, in bytes.
inline double memory_budget() {
  static const double budget =
      0.25 * double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGE_SIZE));
  return budget;
}

// What is asked for is more than the budget leaves.
struct OutOfMemory : std::exception {
  const char* what() const noexcept override { return "the search is over its memory budget"; }
};

// What all counted vectors of the process take together, and may take.
class Budget {
 public:
  static void limit(double bytes) { limit_ = bytes; }
  static double used() { return double(used_.load(std::memory_order_relaxed)); }

  static double left() { return limit_.load(std::memory_order_relaxed) - used(); }

  // Throws OutOfMemory past the limit.
  static void take(std::size_t bytes) {
    const auto size = std::int64_t(bytes);
    const auto before = used_.fetch_add(size, std::memory_order_relaxed);
    if (double(before + size) <= limit_.load(std::memory_order_relaxed)) return;
    give_back(bytes);
    throw OutOfMemory();
  }
  static void give_back(std::size_t bytes) {
    used_.fetch_sub(std::int64_t(bytes), std::memory_order_relaxed);
  }

 private:
  inline static std::atomic<double> limit_{memory_budget()};
  inline static std::atomic<std::int64_t> used_{0};
};

// Large blocks of memory. The heap would keep what is freed, and what is counted would not be what
// is taken; the system takes longer to give a page than an elimination to fill it. So blocks that
// are free are kept for the next that asks, as far as the budget has room, until they are dropped.
class Blocks {
 public:
  static bool is_large(std::size_t bytes) { return bytes >= std::size_t(1) << 16; }

  // What is in a block is not said. Throws std::bad_alloc.
  static void* take(std::size_t bytes);
  static void give_back(void* at, std::size_t bytes) noexcept;
  // Gives what is free back to the system.
  static void drop() noexcept;
};

// The allocator of what grows with a search: tables of numbers, bounds, lists of points. Values
// that nobody gave are not set.
template <class T>
struct Counted {
  using value_type = T;  // NOLINT(readability-identifier-naming): the standard's name
  Counted() = default;
  template <class U>
  Counted(const Counted<U>&) {}  // NOLINT(google-explicit-constructor): as allocators are made

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    Budget::take(bytes);
    try {
      return Blocks::is_large(bytes) ? static_cast<T*>(Blocks::take(bytes))
                                     : std::allocator<T>().allocate(count);
    } catch (...) {
      Budget::give_back(bytes);
      throw;
    }
  }
  void deallocate(T* at, std::size_t count) noexcept {
    const std::size_t bytes = count * sizeof(T);
    Budget::give_back(bytes);
    if (Blocks::is_large(bytes)) Blocks::give_back(at, bytes);
    else std::allocator<T>().deallocate(at, count);
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    if constexpr (sizeof...(Args) == 0) ::new (static_cast<void*>(at)) U;
    else ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }
  bool operator==(const Counted&) const = default;
};

template <class T>
using CountedVector = std::vector<T, Counted<T>>;

using Numbers = CountedVector<double>;

}  // namespace tensoropt::search
