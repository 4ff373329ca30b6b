#include "merge.hpp"

#include <algorithm>
#include <tuple>

namespace tensoropt::search {
namespace {

// Fewer sums are collected and sorted, more use a heap. Ablation: sorted-cells.
constexpr std::uint64_t kSortBelow = 96;

bool before(const Joined& a, const Joined& b) {
  return std::tie(a.time, a.fixed, a.level) < std::tie(b.time, b.fixed, b.level);
}

template <bool L, class Row>
bool earlier(const Row& a, const Row& b) {
  if (a.time != b.time) return a.time < b.time;
  if (!L || a.fixed != b.fixed) return a.fixed < b.fixed;
  return a.level < b.level;
}

}  // namespace

void CellMerger::begin(const Limits& limits) {
  limits_ = &limits;
  best_ = limits.fixed;
  rows_.clear();
  short_.clear();
  out_.clear();
  pairs_ = 0;
}

// Lists are kept until `finish`: their number decides how they are merged.
void CellMerger::add(std::int32_t v, List left, List right) {
  pairs_ += std::uint64_t(left.size) * right.size;
  const bool swapped = right.size < left.size;
  if (swapped) std::swap(left, right);
  if (levels_) add_rows<true>(v, left, right, swapped);
  else add_rows<false>(v, left, right, swapped);
}

template <bool L>
void CellMerger::add_rows(std::int32_t v, List shifts, List stream, bool swapped) {
  if (stream.size == 0) return;
  double least = stream.time[0] + limits_->slope * stream.fixed[0];
  if (shifts.size > 1)  // a row is skipped if its best sum is over the limit
    for (std::uint32_t j = 1; j < stream.size; ++j)
      least = std::min(least, stream.time[j] + limits_->slope * stream.fixed[j]);
  for (std::uint32_t i = 0; i < shifts.size; ++i) {
    const double time = shifts.time[i], fixed = shifts.fixed[i];
    const std::int32_t level = L ? shifts.level[i] : 0;
    if (time + stream.time[0] > limits_->time) break;
    if (shifts.size > 1 && time + limits_->slope * fixed + least > limits_->mixed[level]) continue;
    rows_.push_back({0, 0, time, fixed, stream, 0, level, v, 0, i, swapped});
  }
}

// Moves the row to its next sum within the limits that is not dominated; false at its end.
template <bool L>
bool CellMerger::settle(Row& row) {
  const double slope = limits_->slope;
  for (; row.at < row.list.size; ++row.at) {
    ++candidates;
    row.time = row.shift_time + row.list.time[row.at];
    if (row.time > limits_->time) return false;
    row.fixed = row.shift_fixed + row.list.fixed[row.at];
    if constexpr (L) row.level = std::max(row.shift_level, row.list.level[row.at]);
    if (beaten(row.fixed, row.level)) continue;
    if (row.time + slope * row.fixed <= limits_->mixed[row.level]) return true;
  }
  return false;
}

void CellMerger::note(double fixed, std::int32_t level) {
  for (std::size_t l = level; l < best_.size() && best_[l] > fixed; ++l) best_[l] = fixed;
}

template <bool L>
void CellMerger::take(const Row& row) {
  out_.push_back({row.time, row.fixed, row.level, row.v, row.swapped ? row.at : row.other,
                  row.swapped ? row.other : row.at});
  note(row.fixed, row.level);
}

template <bool L>
void CellMerger::collect(const Row& row) {
  for (Row sum = row; settle<L>(sum); ++sum.at)
    short_.push_back({sum.time, sum.fixed, sum.level, sum.v, sum.swapped ? sum.at : sum.other,
                      sum.swapped ? sum.other : sum.at});
}

template <bool L>
void CellMerger::emit_sorted() {
  for (const Row& row : rows_) collect<L>(row);
  std::sort(short_.begin(), short_.end(), before);
  for (const Joined& point : short_) {
    if (beaten(point.fixed, point.level)) continue;
    out_.push_back(point);
    note(point.fixed, point.level);
  }
}

template <bool L>
void CellMerger::push_down(std::size_t hole) {
  const Head moved = heap_[hole];
  for (std::size_t child; (child = 2 * hole + 1) < heap_.size(); hole = child) {
    if (child + 1 < heap_.size() && earlier<L>(heap_[child + 1], heap_[child])) ++child;
    if (!earlier<L>(heap_[child], moved)) break;
    heap_[hole] = heap_[child];
  }
  heap_[hole] = moved;
}

template <bool L>
void CellMerger::emit_heap(const Token& token) {
  heap_.clear();
  for (std::uint32_t r = 0; r < rows_.size(); ++r)
    if (settle<L>(rows_[r])) heap_.push_back(head(r));
  for (std::size_t i = heap_.size() / 2; i-- > 0;) push_down<L>(i);
  for (std::uint32_t pops = 1; !heap_.empty(); ++pops) {
    if (pops % std::uint64_t(kLook) == 0) token.check();
    const std::uint32_t r = heap_.front().row;
    if (!beaten(heap_.front().fixed, heap_.front().level)) take<L>(rows_[r]);
    ++rows_[r].at;
    if (settle<L>(rows_[r])) {
      heap_.front() = head(r);
    } else {
      heap_.front() = heap_.back();
      heap_.pop_back();
      if (heap_.empty()) break;
    }
    push_down<L>(0);
  }
}

template <bool L>
const CountedVector<Joined>& CellMerger::run(const Token& token) {
  if (pairs_ <= kSortBelow) emit_sorted<L>();
  else emit_heap<L>(token);
  return out_;
}

const CountedVector<Joined>& CellMerger::finish(const Token& token) {
  return levels_ ? run<true>(token) : run<false>(token);
}

}  // namespace tensoropt::search
