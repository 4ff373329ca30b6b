// Union of sums of staircases: the frontier of one cell of a table.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "token.hpp"

namespace tensoropt::search {

// A view of a list of points, sorted by time. `level` is the index of the transient maximum;
// without levels (all zero) the static memory strictly falls along the list.
struct List {
  const double* time = nullptr;
  const double* fixed = nullptr;
  const std::int32_t* level = nullptr;
  std::uint32_t size = 0;
};

// A point of the union: which v and which point of either list it came from.
struct Joined {
  double time, fixed;
  std::int32_t level, v;
  std::uint32_t left, right;
};

// What a point must not exceed to be of use, per level (each falls as the level rises).
struct Limits {
  double time = 0;
  std::vector<double> fixed;  // static memory must be below this
  std::vector<double> mixed;  // time + slope * static must not be above this
  double slope = 0;
};

// Collects pairs of lists (one pair per v, any number), then emits the points of all sums that no
// other sum beats and that keep the limits. Sums are exact, so equal points are met as equals.
class CellMerger {
 public:
  explicit CellMerger(bool levels) : levels_(levels) {}

  void begin(const Limits& limits);
  void add(std::int32_t v, List left, List right);
  // The points in order of time; valid until the next begin.
  const CountedVector<Joined>& finish(const Token& token);

  std::uint64_t candidates = 0;  // sums looked at, over all cells

 private:
  // One stream: the longer list shifted by one point of the shorter one.
  struct Row {
    double time, fixed;  // of the sum at `at`
    double shift_time, shift_fixed;
    List list;
    std::int32_t level, shift_level, v;
    std::uint32_t at, other;
    bool swapped;
  };

  // The heap holds what is compared, so that moving an element moves little.
  struct Head {
    double time, fixed;
    std::int32_t level;
    std::uint32_t row;
  };
  Head head(std::uint32_t r) const { return {rows_[r].time, rows_[r].fixed, rows_[r].level, r}; }

  template <bool L>
  void add_rows(std::int32_t v, List shifts, List stream, bool swapped);
  template <bool L>
  bool settle(Row& row);
  template <bool L>
  void emit_sorted();
  template <bool L>
  void emit_heap(const Token& token);
  template <bool L>
  void take(const Row& row);
  template <bool L>
  void collect(const Row& row);
  template <bool L>
  void push_down(std::size_t hole);
  template <bool L>
  const CountedVector<Joined>& run(const Token& token);
  bool beaten(double fixed, std::int32_t level) const { return fixed >= best_[level]; }
  void note(double fixed, std::int32_t level);

  const bool levels_;
  const Limits* limits_ = nullptr;
  std::uint64_t pairs_ = 0;   // sums of the lists of this cell
  std::vector<double> best_;  // lowest static memory so far among points up to each level
  CountedVector<Row> rows_;
  CountedVector<Head> heap_;
  CountedVector<Joined> short_, out_;
};

}  // namespace tensoropt::search
