// Union of sums of staircases: the frontier of one cell of a table.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "token.hpp"

namespace tensoropt::search {

// A view of a list of points, sorted by time. `level` is the index of the transient maximum.
// Without levels (all zero) the static memory strictly falls along the list.
struct List {
  const double* time = nullptr;
  const double* fixed = nullptr;
  const std::int32_t* level = nullptr;
  std::uint32_t size = 0;
};

// A point of the union, its v, and its point in either list.
struct Joined {
  double time, fixed;
  std::int32_t level, v;
  std::uint32_t left, right;
};

// Limits that a useful point must meet, per level (each falls as the level rises).
struct Limits {
  double time = 0;
  std::vector<double> fixed;  // static memory must be below this
  std::vector<double> mixed;  // time + slope * static must not be above this
  double slope = 0;
};

// Collects pairs of lists (one pair per v, any number). Then emits the sums that meet the limits
// and that no other sum dominates. Sums are exact, so duplicates compare equal.
class CellMerger {
 public:
  explicit CellMerger(bool levels) : levels_(levels) {}

  void begin(const Limits& limits);
  void add(std::int32_t v, List left, List right);
  // Returns the points in order of time; valid until the next `begin`.
  const CountedVector<Joined>& finish(const Token& token);

  std::uint64_t candidates = 0;  // sums formed, over all cells

 private:
  // A stream: the longer list shifted by one point of the shorter list.
  struct Row {
    double time, fixed;  // of the sum at `at`
    double shift_time, shift_fixed;
    List list;
    std::int32_t level, shift_level, v;
    std::uint32_t at, other;
    bool swapped;
  };

  // The heap stores only the compared fields, so that moving an element is cheap.
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
  std::uint64_t pairs_ = 0;   // number of sums in this cell
  std::vector<double> best_;  // lowest static memory so far among points up to each level
  CountedVector<Row> rows_;
  CountedVector<Head> heap_;
  CountedVector<Joined> short_, out_;
};

}  // namespace tensoropt::search
