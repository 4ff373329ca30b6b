// The memory budget of a search, and the allocator that keeps it.
#pragma once

#include <unistd.h>

#include <algorithm>
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

// Thrown by an allocation that exceeds the budget.
struct OutOfMemory : std::exception {
  const char* what() const noexcept override { return "the search is over its memory budget"; }
};

// Counts the bytes of all counted vectors of the process, and limits them. Searches that run at the
// same time share the sum of their budgets.
class Budget {
 public:
  // The budget of a search, while it runs.
  class Share {
   public:
    explicit Share(double bytes) : bytes_(std::int64_t(std::min(bytes, kMost))) {
      shares_.fetch_add(bytes_, std::memory_order_relaxed);
      running_.fetch_add(1, std::memory_order_relaxed);
    }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() {
      running_.fetch_sub(1, std::memory_order_relaxed);
      shares_.fetch_sub(bytes_, std::memory_order_relaxed);
    }

   private:
    std::int64_t bytes_;
  };

  static double used() { return double(used_.load(std::memory_order_relaxed)); }

  static double left() { return limit() - used(); }

  // Throws OutOfMemory past the limit.
  static void take(std::size_t bytes) {
    const auto size = std::int64_t(bytes);
    const auto before = used_.fetch_add(size, std::memory_order_relaxed);
    if (double(before + size) <= limit()) return;
    give_back(bytes);
    throw OutOfMemory();
  }
  static void give_back(std::size_t bytes) {
    used_.fetch_sub(std::int64_t(bytes), std::memory_order_relaxed);
  }

 private:
  static constexpr double kMost = 1e15;  // the sum of many such shares is an integer still
  static double limit() {
    if (running_.load(std::memory_order_relaxed) == 0) return memory_budget();
    return double(shares_.load(std::memory_order_relaxed));
  }

  inline static std::atomic<int> running_{0};
  inline static std::atomic<std::int64_t> shares_{0};
  inline static std::atomic<std::int64_t> used_{0};
};

// Large blocks of memory, taken from the system: the heap would keep freed memory uncounted. The
// system takes longer to provide a page than an elimination takes to fill it. So free blocks are
// kept for reuse while the budget has room, until they are dropped.
class Blocks {
 public:
  static bool is_large(std::size_t bytes) { return bytes >= std::size_t(1) << 16; }

  // The content of a block is undefined. Throws std::bad_alloc.
  static void* take(std::size_t bytes);
  static void give_back(void* at, std::size_t bytes) noexcept;
  // Returns the free blocks to the system.
  static void drop() noexcept;
};

// The allocator of data that grows with a search: tables of numbers, bounds, lists of points.
// Elements without an initial value stay uninitialised.
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
