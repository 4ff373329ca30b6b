#include "points.hpp"

#include <numeric>

#include "model.hpp"

namespace tensoropt::search {

Partial::Partial(List first) : from_(1) {
  for (std::uint32_t i = 0; i < first.size; ++i)
    push(first.time[i], first.fixed[i], first.level ? first.level[i] : 0);
  from_[0].resize(first.size);
  std::iota(from_[0].begin(), from_[0].end(), 0u);
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
  next.from_.resize(from_.size() + 1);
  for (const Joined& point : merger.finish(token)) {
    next.push(point.time, point.fixed, point.level);
    for (std::size_t k = 0; k < from_.size(); ++k) next.from_[k].push_back(from_[k][point.left]);
    next.from_.back().push_back(point.right);
  }
  *this = std::move(next);
}

}  // namespace tensoropt::search
