// Storage of the points of a table.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "merge.hpp"

namespace tensoropt::search {

// The lists of all cells of a table in sequence, and the origin of each point: the value of the
// eliminated variable and the point of each input of the step (`width` of them).
struct Lists {
  CountedVector<std::uint32_t> begin{0};
  Numbers time, fixed;
  CountedVector<std::int32_t> level, v;
  CountedVector<std::uint32_t> from;
  std::size_t width = 0;

  List at(std::size_t cell) const {
    const std::uint32_t b = begin[cell];
    return {time.data() + b, fixed.data() + b, level.empty() ? nullptr : level.data() + b,
            begin[cell + 1] - b};
  }

  // Frees the costs; the rest is enough to trace a point back.
  void forget_costs() {
    time = Numbers();
    fixed = Numbers();
    level = CountedVector<std::int32_t>();
  }

  void append(Lists&& other) {
    const std::uint32_t shift = begin.back();
    for (std::size_t i = 1; i < other.begin.size(); ++i) begin.push_back(other.begin[i] + shift);
    auto extend = [](auto& to, const auto& more) { to.insert(to.end(), more.begin(), more.end()); };
    extend(time, other.time);
    extend(fixed, other.fixed);
    extend(level, other.level);
    extend(v, other.v);
    extend(from, other.from);
  }
};

// The sum of the lists of several inputs of a step, and the origin of each point.
class Partial {
 public:
  Partial() = default;
  explicit Partial(List first);

  // Adds a list, without limits, and keeps the points that are not dominated.
  void join(List more, std::size_t levels, CellMerger& merger, const Token& token);

  List view() const {
    return {time_.data(), fixed_.data(), level_.data(), std::uint32_t(time_.size())};
  }
  // Appends the index of the point of each list that a point of the sum is made of.
  void trace(std::uint32_t point, CountedVector<std::uint32_t>& to) const;

 private:
  // The points of the sum before and of the list that each point of a sum is made of.
  struct Origins {
    CountedVector<std::uint32_t> before, own;
  };

  void push(double time, double fixed, std::int32_t level);

  Numbers time_, fixed_;
  CountedVector<std::int32_t> level_;
  std::vector<Origins> joins_;
};

}  // namespace tensoropt::search
