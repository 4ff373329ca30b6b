#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>

namespace tensoropt::search {
namespace {

constexpr std::size_t kHugePage = std::size_t(1) << 21;

// Rounds up to one of eight sizes between two powers of two, so that blocks can be reused.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes) / 8, 1);
  return (bytes + step - 1) / step * step;
}

void* mapped(std::size_t size) {
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  if (size >= kHugePage) madvise(at, size, MADV_HUGEPAGE);  // if the system has them
  return at;
}

// Free blocks, by size.
struct Free {
  std::mutex mutex;
  std::multimap<std::size_t, void*> blocks;
  std::size_t bytes = 0;

  void* find(std::size_t size) {
    const auto at = blocks.find(size);
    if (at == blocks.end()) return nullptr;
    void* block = at->second;
    blocks.erase(at);
    bytes -= size;
    return block;
  }

  // Frees the largest blocks first.
  void shrink(double most) {
    while (!blocks.empty() && double(bytes) > most) {
      const auto last = std::prev(blocks.end());
      munmap(last->second, last->first);
      bytes -= last->first;
      blocks.erase(last);
    }
  }
};

Free& pool() {
  static auto* pool = new Free;  // outlives every vector
  return *pool;
}

}  // namespace

void* Blocks::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  const std::scoped_lock lock(pool().mutex);
  if (void* block = pool().find(size)) return block;
  pool().shrink(Budget::left());  // the request is counted already
  return mapped(size);
}

void Blocks::give_back(void* at, std::size_t bytes) noexcept {
  const std::size_t size = rounded(bytes);
  const std::scoped_lock lock(pool().mutex);
  try {
    pool().blocks.emplace(size, at);
    pool().bytes += size;
  } catch (const std::bad_alloc&) {
    munmap(at, size);
  }
}

void Blocks::drop() noexcept {
  const std::scoped_lock lock(pool().mutex);
  pool().shrink(0);
}

}  // namespace tensoropt::search
