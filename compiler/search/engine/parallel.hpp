// Work on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace tensoropt::search {

// Runs f(0..count-1) on several threads and rethrows the first exception.
inline void parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& f) {
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> failed(std::max(1, threads));
  auto work = [&](std::size_t thread) {
    try {
      for (std::size_t i; (i = next++) < count;) f(i);
    } catch (...) {
      failed[thread] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int t = 1; t < threads && std::size_t(t) < count; ++t)
      helpers.emplace_back(work, std::size_t(t));
    work(0);
  }
  for (auto& error : failed)
    if (error) std::rethrow_exception(error);
}

}  // namespace tensoropt::search
