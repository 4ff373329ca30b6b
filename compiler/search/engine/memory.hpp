// How much memory a search may use.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
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

// The allocator of what grows with a search: tables of numbers, bounds, lists of points.
template <class T>
struct Counted {
  using value_type = T;
  Counted() = default;
  template <class U>
  Counted(const Counted<U>&) {}  // NOLINT(google-explicit-constructor): as allocators are made

  T* allocate(std::size_t count) {
    Budget::take(count * sizeof(T));
    try {
      return is_large(count) ? mapped(count) : std::allocator<T>().allocate(count);
    } catch (...) {
      Budget::give_back(count * sizeof(T));
      throw;
    }
  }
  void deallocate(T* at, std::size_t count) noexcept {
    if (is_large(count)) munmap(at, count * sizeof(T));
    else std::allocator<T>().deallocate(at, count);
    Budget::give_back(count * sizeof(T));
  }
  bool operator==(const Counted&) const = default;

 private:
  // The heap would keep these when they are freed, and what is counted would not be what is taken.
  static bool is_large(std::size_t count) { return count * sizeof(T) >= std::size_t(1) << 20; }

  static T* mapped(std::size_t count) {
    void* at = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(at);
  }
};

template <class T>
using CountedVector = std::vector<T, Counted<T>>;

using Numbers = CountedVector<double>;

}  // namespace tensoropt::search
