#include "arena.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace tensoropt::program {
namespace {

constexpr std::int64_t kRounded = 256;                   // sizes of blocks are multiples of it
constexpr std::int64_t kDead = std::int64_t(128) << 20;  // a block with this much excess is split
// Limits of the size of the first block (runtime/device/host_memory.py).
constexpr std::int64_t kLeast = std::int64_t(64) << 20, kMost = (std::int64_t(1) << 31) - 1;

// A birth or a death. At one time births come first, in the order of the tensors.
struct Change {
  std::int64_t moment;
  bool dies;
  std::size_t tensor;
  auto operator<=>(const Change&) const = default;
};

std::vector<Change> changes_of(const std::vector<Life>& lives) {
  std::vector<Change> found;
  for (std::size_t i = 0; i < lives.size(); ++i) {
    if (lives[i].bytes == 0) continue;
    found.push_back({lives[i].first, false, i});
    found.push_back({lives[i].last, true, i});
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Blocks at addresses; free blocks by address, and by size, then address.
class Arena {
 public:
  explicit Arena(std::int64_t size) : end_(size) { release(0, size); }

  // Returns address and size of the block for a tensor.
  std::pair<std::int64_t, std::int64_t> take(std::int64_t bytes) {
    const std::int64_t rounded = (bytes + kRounded - 1) / kRounded * kRounded;
    auto found = by_size_.lower_bound({rounded, 0});
    if (found == by_size_.end()) {
      const std::int64_t size = std::max(rounded, end_);
      release(end_ + 1, size);  // not adjacent to another block
      end_ += size + 1;
      found = by_size_.lower_bound({rounded, 0});
    }
    auto [size, start] = *found;
    remove(start, size);
    if (size >= 2 * rounded || size - rounded >= kDead) {
      release(start + rounded, size - rounded);
      size = rounded;
    }
    written_.emplace_back(start, start + bytes);
    return {start, size};
  }

  // Frees a block and merges it with adjacent free blocks.
  void give_back(std::int64_t start, std::int64_t size) {
    auto after = by_start_.lower_bound(start);
    if (after != by_start_.end() && after->first == start + size) {
      const auto [next, more] = *after;
      remove(next, more);
      size += more;
    }
    after = by_start_.lower_bound(start);
    if (after != by_start_.begin()) {
      const auto [before, more] = *std::prev(after);
      if (before + more == start) {
        remove(before, more);
        start = before;
        size += more;
      }
    }
    release(start, size);
  }

  std::int64_t touched_bytes() {
    std::sort(written_.begin(), written_.end());
    std::int64_t touched = 0, end = 0;
    for (const auto& [first, last] : written_) {
      touched += std::max<std::int64_t>(last - std::max(first, end), 0);
      end = std::max(end, last);
    }
    return touched;
  }

 private:
  void release(std::int64_t start, std::int64_t size) {
    by_start_.emplace(start, size);
    by_size_.emplace(size, start);
  }
  void remove(std::int64_t start, std::int64_t size) {
    by_start_.erase(start);
    by_size_.erase({size, start});
  }

  std::int64_t end_;
  std::map<std::int64_t, std::int64_t> by_start_;
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;
  std::vector<std::pair<std::int64_t, std::int64_t>> written_;
};

}  // namespace

std::int64_t touched_bytes(const std::vector<Life>& lives, std::int64_t expected) {
  const std::vector<Change> changes = changes_of(lives);
  Arena arena(std::clamp(2 * expected, kLeast, kMost));
  std::vector<std::pair<std::int64_t, std::int64_t>> taken(lives.size());
  for (const Change& change : changes) {
    auto& [start, size] = taken[change.tensor];
    if (change.dies) arena.give_back(start, size);
    else std::tie(start, size) = arena.take(lives[change.tensor].bytes);
  }
  return arena.touched_bytes();
}

}  // namespace tensoropt::program
