#include "points.hpp"

#include <utility>

#include "model.hpp"

namespace tensoropt::search {

Partial::Partial(List first) {
  for (std::uint32_t i = 0; i < first.size; ++i)
    push(first.time[i], first.fixed[i], first.level ? first.level[i] : 0);
}

void Partial::push(double time, double fixed, std::int32_t level) {
  time_.push_back(time);
  fixed_.push_back(fixed);
  level_.push_back(level);
}

void Partial::join(List more, std::size_t levels, CellMerger& merger, const Token& token) {
  const std::vector<double> none(levels, kInfinity);
  const Limits unlimited{kInfinity, none, none, 0};
  merger.begin(unlimited);
  merger.add(0, view(), more);
  Partial next;
  next.joins_ = std::move(joins_);
  Origins& origins = next.joins_.emplace_back();
  for (const Joined& point : merger.finish(token)) {
    next.push(point.time, point.fixed, point.level);
    origins.before.push_back(point.left);
    origins.own.push_back(point.right);
  }
  *this = std::move(next);
}

void Partial::trace(std::uint32_t point, CountedVector<std::uint32_t>& to) const {
  const std::size_t first = to.size();
  to.resize(first + joins_.size() + 1);
  for (std::size_t k = joins_.size(); k > 0; --k) {
    to[first + k] = joins_[k - 1].own[point];
    point = joins_[k - 1].before[point];
  }
  to[first] = point;
}

}  // namespace tensoropt::search
